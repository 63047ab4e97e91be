"""The text side of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.model import gguf_file
from tidemark_runtime.text import chat_template, end_tokens, gguf_tokenizer, text_model

_NAMED = {
    "bos_token": "tokenizer.ggml.bos_token_id",
    "eos_token": "tokenizer.ggml.eos_token_id",
    "unk_token": "tokenizer.ggml.unknown_token_id",
    "pad_token": "tokenizer.ggml.padding_token_id",
}
_END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_TEMPLATE = "tokenizer.chat_template"


def load(path: Path) -> text_model.TextModel:
    """Raises ModelNotFound, CorruptModel or UnsupportedModel, naming the file."""
    return from_metadata(gguf_file.read(path).metadata, str(path))


def from_metadata(metadata: Mapping[str, Any], origin: str) -> text_model.TextModel:
    """The text side the metadata describe; `origin` names the file in messages."""
    tokenizer = gguf_tokenizer.build(metadata, origin)
    special = _special_tokens(metadata, origin)
    sources = _template_sources(metadata)
    templates = {name: chat_template.ChatTemplate(source, special.named, origin) for name, source in sources.items()}
    ends = [*special.end_ids, *end_tokens.of_templates(tokenizer, sources.values())]
    special = text_model.SpecialTokens(
        special.bos_id, special.prefix_ids, special.suffix_ids, tuple(dict.fromkeys(ends)), special.named
    )
    return text_model.TextModel(tokenizer, special, templates, origin)


def _special_tokens(metadata: Mapping[str, Any], origin: str) -> text_model.SpecialTokens:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    ids = {name: _token_id(metadata, key, len(tokens), origin) for name, key in _NAMED.items()}
    bos_id, eos_id = ids["bos_token"], ids["eos_token"]
    ends = (_token_id(metadata, key, len(tokens), origin) for key in _END_KEYS)
    return text_model.SpecialTokens(
        bos_id=bos_id,
        prefix_ids=(bos_id,) if bos_id is not None and gguf_tokenizer.adds_bos(metadata, origin) else (),
        suffix_ids=(eos_id,) if eos_id is not None and metadata.get("tokenizer.ggml.add_eos_token") else (),
        end_ids=tuple(end for end in ends if end is not None),
        named={name: tokens[token_id] for name, token_id in ids.items() if token_id is not None},
    )


def _token_id(metadata: Mapping[str, Any], key: str, num_tokens: int, origin: str) -> int | None:
    token_id = metadata.get(key)
    if token_id is None:
        return None
    if not isinstance(token_id, int) or not 0 <= token_id < num_tokens:
        raise errors.CorruptModel(f"{origin}: {key}: got {token_id!r}, expected an id below {num_tokens}")
    return token_id


def _template_sources(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name; `tokenizer.chat_template` is the default one, `tokenizer.chat_template.NAME` another."""
    sources = {
        key.removeprefix(f"{_TEMPLATE}."): value
        for key, value in metadata.items()
        if key.startswith(f"{_TEMPLATE}.") and isinstance(value, str)
    }
    default = metadata.get(_TEMPLATE)
    return {text_model.DEFAULT_TEMPLATE: default, **sources} if isinstance(default, str) else sources
