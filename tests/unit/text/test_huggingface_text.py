"""The text side of a Hugging Face folder: which file says what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, processors

from tidemark_runtime import errors
from tidemark_runtime.model import sources
from tidemark_runtime.text import gguf_tokenizer, loading, text_model

USER = [{"role": "user", "content": "hello"}]


@pytest.fixture
def tokenizer(byte_level_fields: dict[str, Any]) -> tokenizers.Tokenizer:
    return gguf_tokenizer.build(byte_level_fields, "made")


def load(folder: Path, tokenizer: tokenizers.Tokenizer | None, **files: object) -> text_model.TextModel:
    """Write the folder, `tokenizer_config={...}` as tokenizer_config.json, and load it."""
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return loading.load(sources.ModelSource("huggingface", folder, "made"))


def test_a_bare_tokenizer_is_enough(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    model = load(tmp_path, tokenizer)
    assert model.decode(model.encode("hello 語", add_special=True)) == "hello 語"
    assert (model.bos_id, model.end_ids, model.has_chat_template) == (None, (), False)


def test_end_tokens_come_from_all_places(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    model = load(
        tmp_path,
        tokenizer,
        generation_config={"eos_token_id": [5, 0]},
        config={"eos_token_id": 9},
        tokenizer_config={"eos_token": {"content": "<|endoftext|>"}, "chat_template": "<|im_end|>"},
    )
    assert model.end_ids == (5, 0, 2)


def test_the_models_config_names_the_end_when_nothing_else_does(
    tmp_path: Path, tokenizer: tokenizers.Tokenizer
) -> None:
    assert load(tmp_path, tokenizer, config={"eos_token_id": 9}).end_ids == (9,)


@pytest.mark.parametrize(("adds", "prefix"), [(True, [1]), (False, [])])
def test_the_settings_decide_on_the_begin_token(
    tmp_path: Path, tokenizer: tokenizers.Tokenizer, adds: bool, prefix: list[int]
) -> None:
    """B031: tokenizer_config.json wins over what tokenizer.json does."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", 0), ("<|im_end|>", 2)]
    )
    settings = {"add_bos_token": adds, "bos_token": "<|im_start|>", "chat_template": "{{ bos_token }}hello"}
    model = load(tmp_path, tokenizer, tokenizer_config=settings)
    hello = model.encode("hello", add_special=False)
    assert model.encode("hello", add_special=True) == [*prefix, *hello, 2]
    assert model.encode_chat(USER) == [1, *hello]


def test_the_tokenizers_own_processor_decides_otherwise(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)]
    )
    model = load(tmp_path, tokenizer)
    assert model.encode("hello", add_special=True) == [1, *model.encode("hello", add_special=False), 2]
    assert model.bos_id == 1


def test_a_trainings_limits_do_not_touch_prompts(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.enable_truncation(max_length=2)
    tokenizer.enable_padding(length=64)
    model = load(tmp_path, tokenizer)
    assert model.decode(model.encode("hello world hello", add_special=False)) == "hello world hello"


def test_a_template_file_wins_and_names_are_kept(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    (tmp_path / "chat_template.jinja").write_text("from the file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("with tools")
    model = load(tmp_path, tokenizer, tokenizer_config={"chat_template": "from the settings"})
    assert model.render_chat(USER) == "from the file"
    assert model.render_chat(USER, tools=[{"name": "t"}]) == "with tools"


def test_templates_in_a_list(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    model = load(tmp_path, tokenizer, tokenizer_config={"chat_template": templates})
    assert (model.render_chat(USER), model.render_chat(USER, tools=[{}])) == ("plain", "tools")


def test_only_a_template_for_tools(tmp_path: Path, tokenizer: tokenizers.Tokenizer) -> None:
    templates = [{"name": "tool_use", "template": "tools"}]
    model = load(tmp_path, tokenizer, tokenizer_config={"chat_template": templates})
    with pytest.raises(errors.InvalidRequest, match="tool_use"):
        model.render_chat(USER)


def test_a_folder_without_tokenizer_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(errors.UnsupportedModel, match=r"no tokenizer\.json.*tokenizer\.model"):
        load(tmp_path, None)


@pytest.mark.parametrize("kind", [models.WordPiece, models.WordLevel])
def test_other_kinds_are_refused_by_name(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(errors.UnsupportedModel, match=kind.__name__):
        load(tmp_path, tokenizers.Tokenizer(kind({"[UNK]": 0}, unk_token="[UNK]")))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_files_are_named(tmp_path: Path, tokenizer: tokenizers.Tokenizer, name: str) -> None:
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / name).write_text("{")
    with pytest.raises(errors.CorruptModel, match=name):
        load(tmp_path, None)
