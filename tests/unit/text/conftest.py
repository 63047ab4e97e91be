"""Small made tokenizers of both families, as a GGUF file's metadata would describe them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime.text import gguf_text, text_model, token_table

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
WITH_BOS = "{{ bos_token }}{% for message in messages %}[INST] {{ message['content'] }} [/INST]{% endfor %}"
CONTROL, USER_DEFINED, BYTE, NORMAL, UNKNOWN = 3, 4, 6, 1, 2


def byte_level_metadata() -> dict[str, Any]:
    """All bytes, some merges (one of them inside a Chinese character), three control tokens, one plain whole token."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = [token_table.byte_to_character()[byte] for byte in range(256)]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "è ª", "Ġ Ġ", "1 2"]
    joined = [merge.replace(" ", "") for merge in merges]
    tokens = [*special, *alphabet, *joined, "<think>"]
    types = [CONTROL] * 3 + [NORMAL] * (256 + len(joined)) + [USER_DEFINED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def sentencepiece_metadata() -> dict[str, Any]:
    """Byte tokens, a few pieces with distinct scores, and a template that writes the begin token itself."""
    pieces = [
        "▁",
        *"helowrdabnIST[]/x.",
        "he",
        "ll",
        "hell",
        "hello",
        "▁w",
        "or",
        "ld",
        "▁wor",
        "▁world",
        "▁hello",
        "▁▁",
        "ab",
        "ba",
    ]
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *data, *pieces]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(index) for index in range(len(pieces))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": WITH_BOS,
    }


@pytest.fixture(scope="session")
def byte_level() -> text_model.TextModel:
    return gguf_text.from_metadata(byte_level_metadata(), "made")


@pytest.fixture(scope="session")
def sentencepiece() -> text_model.TextModel:
    return gguf_text.from_metadata(sentencepiece_metadata(), "made")


@pytest.fixture
def byte_level_fields() -> dict[str, Any]:
    return byte_level_metadata()


@pytest.fixture
def sentencepiece_fields() -> dict[str, Any]:
    return sentencepiece_metadata()
