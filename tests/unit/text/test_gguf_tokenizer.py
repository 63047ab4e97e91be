"""Tokenizers from a GGUF file's metadata: the rules by name, and refusals by name."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.text import gguf_text, gguf_tokenizer, pre_tokenizers, text_model

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def words(name: str, text: str) -> list[str]:
    rules = pre_tokenizers.named(name, "made")
    normalizer = rules.normalizer()
    text = normalizer.normalize_str(text) if normalizer else text
    cut = [text[start:end] for _, (start, end) in rules.pre_tokenizer().pre_tokenize_str(text)]
    return [word for word in cut if word]


@pytest.mark.parametrize(
    ("name", "text", "cut"),
    [
        ("smollm", "a  12 don't", ["a", "  ", "1", "2", " don", "'t"]),
        ("starcoder", "x=10", ["x", "=", "1", "0"]),
        ("gpt-2", "a  12 don't", ["a", " ", " 12", " don", "'t"]),
        ("llama-bpe", "12345 DON'T!\n\n x", ["123", "45", " DON", "'T", "!\n\n", " x"]),
        ("qwen2", "12 e\u0301!\nx", ["1", "2", " é", "!\n", "x"]),
        ("tekken", "helloWorld 12/\n", ["hello", "World", " ", "1", "2", "/\n"]),
        ("default", "a+b 1234!", ["a", "+", "b", " ", "123", "4", "!"]),
    ],
)
def test_words_by_rule(name: str, text: str, cut: list[str]) -> None:
    assert words(name, text) == cut


@pytest.mark.parametrize("name", ["gpt-4o", "", None, 3])
def test_unknown_rules_are_refused_by_name(byte_level_fields: dict[str, Any], name: object) -> None:
    byte_level_fields["tokenizer.ggml.pre"] = name
    with pytest.raises(errors.UnsupportedModel, match=r"made: tokenizer\.ggml\.pre: got") as caught:
        gguf_text.from_metadata(byte_level_fields, "made")
    assert repr(name) in str(caught.value)
    assert "smollm" in str(caught.value)


@pytest.mark.parametrize("family", ["bert", "t5", "rwkv", None])
def test_other_families_are_refused_by_name(byte_level_fields: dict[str, Any], family: object) -> None:
    byte_level_fields["tokenizer.ggml.model"] = family
    with pytest.raises(errors.UnsupportedModel, match=repr(family)):
        gguf_text.from_metadata(byte_level_fields, "made")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("tokenizer.ggml.tokens", None, "tokens is missing"),
        ("tokenizer.ggml.merges", None, "merges is missing"),
        ("tokenizer.ggml.merges", ["hello"], "got 'hello'"),
        ("tokenizer.ggml.merges", ["q zz"], "merges do not fit"),
        ("tokenizer.ggml.token_type", [1], "got 1 values"),
        ("tokenizer.ggml.eos_token_id", 10**6, r"eos_token_id: got 1000000, expected an id below"),
    ],
)
def test_contradictions_are_named(byte_level_fields: dict[str, Any], key: str, value: object, reason: str) -> None:
    byte_level_fields[key] = value
    with pytest.raises(errors.CorruptModel, match=reason):
        gguf_text.from_metadata(byte_level_fields, "made")


def test_sentencepiece_needs_a_score_a_token(sentencepiece_fields: dict[str, Any]) -> None:
    sentencepiece_fields["tokenizer.ggml.scores"].pop()
    with pytest.raises(errors.CorruptModel, match="scores"):
        gguf_text.from_metadata(sentencepiece_fields, "made")


def test_who_adds_a_begin_token_when_the_file_does_not_say(
    byte_level_fields: dict[str, Any], sentencepiece_fields: dict[str, Any]
) -> None:
    assert gguf_tokenizer.adds_bos(sentencepiece_fields, "made")
    del byte_level_fields["tokenizer.ggml.add_bos_token"]
    assert not gguf_tokenizer.adds_bos(byte_level_fields, "made")
    byte_level_fields["tokenizer.ggml.pre"] = "llama-bpe"
    assert gguf_tokenizer.adds_bos(byte_level_fields, "made")


@ANY_SPEED
@given(st.text("helowrdab x語", min_size=1, max_size=30) | st.text("abh ", min_size=1, max_size=10))
def test_merges_from_scores_do_what_sentencepiece_does(sentencepiece: text_model.TextModel, text: str) -> None:
    ids = sentencepiece.encode(text, add_special=False)
    assert [sentencepiece.token_bytes(token_id) for token_id in ids] == joined_by_score(sentencepiece, " " + text)


def joined_by_score(model: text_model.TextModel, text: str) -> list[bytes]:
    """Sentencepiece's rule as its paper has it: join the best scoring neighbours, the left ones first, until none is a
    token; what is no token then stands as its bytes. In the made vocabulary a lower id scores better."""
    ids = {model.token_bytes(token_id).decode(): token_id for token_id in range(259, model.vocab_size)}
    parts = list(text)
    while True:
        pairs = [(ids[a + b], place) for place, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ids]
        if not pairs:
            break
        _, place = min(pairs)
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
    return [
        data for part in parts for data in ([part.encode()] if part in ids else [bytes([b]) for b in part.encode()])
    ]


def test_without_a_space_prefix_nothing_is_put_before_a_text(sentencepiece_fields: dict[str, Any]) -> None:
    sentencepiece_fields["tokenizer.ggml.add_space_prefix"] = False
    model = gguf_text.from_metadata(sentencepiece_fields, "made")
    assert [model.token_text(i) for i in model.encode("hello world", add_special=False)] == ["hello", " world"]
    assert model.decode(model.encode(" hello", add_special=False)) == " hello"
