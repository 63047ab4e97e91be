"""The text side of a Hugging Face folder: tokenizer.json and the settings beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from tidemark_runtime import errors
from tidemark_runtime.text import chat_template, end_tokens, text_model

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_PROBE = "a"


def load(folder: Path) -> text_model.TextModel:
    """Raises UnsupportedModel or CorruptModel, naming the file."""
    tokenizer = _tokenizer(folder)
    settings = _json(folder / "tokenizer_config.json")
    named = _named_tokens({**_json(folder / "special_tokens_map.json"), **settings})
    sources = _template_sources(folder, settings)
    templates = {name: chat_template.ChatTemplate(source, named, str(folder)) for name, source in sources.items()}
    prefix_ids, suffix_ids = _added_around(tokenizer, settings, named)
    bos_id = _id_of(tokenizer, named.get("bos_token"))
    special = text_model.SpecialTokens(
        bos_id=bos_id if bos_id is not None else next(iter(prefix_ids), None),
        prefix_ids=prefix_ids,
        suffix_ids=suffix_ids,
        end_ids=_end_ids(folder, tokenizer, named, sources),
        named=named,
    )
    return text_model.TextModel(tokenizer, special, templates, str(folder))


def _tokenizer(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        others = sorted(entry.name for entry in folder.glob("*") if entry.name in ("tokenizer.model", "vocab.json"))
        seen = f" It has {', '.join(others)}, which is not enough." if others else ""
        raise errors.UnsupportedModel(
            f"{folder}: there is no tokenizer.json.{seen} Save it with the fast tokenizer of its library"
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise errors.CorruptModel(f"{path}: not a tokenizer: {error}") from error
    if not isinstance(tokenizer.model, models.BPE):
        kind = type(tokenizer.model).__name__
        raise errors.UnsupportedModel(f"{path}: tokenizers of the kind {kind} are not supported, expected BPE")
    # A training's length limit and padding must not touch prompts.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _added_around(
    tokenizer: tokenizers.Tokenizer, settings: Mapping[str, Any], named: Mapping[str, str]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids put before and after a text: what tokenizer_config.json says outright, else what tokenizer.json does."""
    inner: list[int] = tokenizer.encode(_PROBE, add_special_tokens=False).ids
    outer: list[int] = tokenizer.encode(_PROBE, add_special_tokens=True).ids
    starts = range(len(outer) - len(inner) + 1)
    start = next((start for start in starts if outer[start : start + len(inner)] == inner), 0)
    prefix, suffix = tuple(outer[:start]), tuple(outer[start + len(inner) :])
    begin, end = _id_of(tokenizer, named.get("bos_token")), _id_of(tokenizer, named.get("eos_token"))
    if isinstance(settings.get("add_bos_token"), bool):
        prefix = (begin,) if settings["add_bos_token"] and begin is not None else ()
    if isinstance(settings.get("add_eos_token"), bool):
        suffix = (end,) if settings["add_eos_token"] and end is not None else ()
    return prefix, suffix


def _end_ids(
    folder: Path, tokenizer: tokenizers.Tokenizer, named: Mapping[str, str], sources: Mapping[str, str]
) -> tuple[int, ...]:
    stated = _json(folder / "generation_config.json").get("eos_token_id")
    if stated is None:
        stated = _json(folder / "config.json").get("eos_token_id")
    ends = [stated] if isinstance(stated, int) else list(stated or [])
    named_end = _id_of(tokenizer, named.get("eos_token"))
    ends += [named_end] if named_end is not None else []
    ends += end_tokens.of_templates(tokenizer, sources.values())
    return tuple(dict.fromkeys(ends))


def _template_sources(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name. A chat_template.jinja wins over tokenizer_config.json, as it does for Hugging Face."""
    stated = settings.get("chat_template")
    sources: dict[str, str] = {}
    if isinstance(stated, str):
        sources[text_model.DEFAULT_TEMPLATE] = stated
    elif isinstance(stated, list):
        sources.update({str(entry["name"]): str(entry["template"]) for entry in stated})
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        sources[path.stem] = path.read_text(encoding="utf-8")
    file = folder / "chat_template.jinja"
    if file.is_file():
        sources[text_model.DEFAULT_TEMPLATE] = file.read_text(encoding="utf-8")
    return sources


def _named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like: a string, or an object whose `content` is the string."""
    texts = {name: settings.get(name) for name in _NAMED}
    texts = {name: text.get("content") if isinstance(text, dict) else text for name, text in texts.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _id_of(tokenizer: tokenizers.Tokenizer, text: str | None) -> int | None:
    return tokenizer.token_to_id(text) if text is not None else None


def _json(path: Path) -> dict[str, Any]:
    """The object in the file; empty when there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise errors.CorruptModel(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise errors.CorruptModel(f"{path}: got {type(content).__name__}, expected an object")
    return content
