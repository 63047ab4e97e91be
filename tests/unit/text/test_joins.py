"""Sentencepiece-style texts in parts: the same ids as whole, whatever puts the space in front."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.text import encoding, gguf_tokenizer, joins

PREPEND = {"type": "Prepend", "prepend": "▁"}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
SEQUENCE = {"type": "Sequence", "normalizers": [PREPEND, REPLACE]}
WHOLE = tokenizers.AddedToken("<e>", rstrip=True, normalized=False)
ODD = (WHOLE, tokenizers.AddedToken("q z", lstrip=True, normalized=True), tokenizers.AddedToken("w", normalized=True))


def metaspace(scheme: str, *, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


RULES: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "prepend and replace": (SEQUENCE, None),
    "replace only": (REPLACE, None),
    "metaspace first": (None, metaspace("first", split=False)),
    "metaspace always": (None, metaspace("always", split=False)),
    "metaspace never": (None, metaspace("never", split=False)),
    "metaspace first, split": (None, metaspace("first", split=True)),
    "metaspace always, split": (None, metaspace("always", split=True)),
}
PARTS = [*"helowrdab  \nxü語é></", "hello", " world", "  ", "</s>", "<s>", "<0x0A>", "▁", "<e>", "q z", "\u3000"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)


def changed(fields: dict[str, Any], **parts: Any) -> tokenizers.Tokenizer:
    """The made tokenizer with other parts of its tokenizer.json."""
    state = json.loads(gguf_tokenizer.build(fields, "made").to_str())
    model = state["model"] | parts.pop("model", {})
    return tokenizers.Tokenizer.from_str(json.dumps({**state, **parts, "model": model}))


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut wherever one is possible."""
    monkeypatch.setattr(encoding, "PART_CHARACTERS", 1)


@pytest.mark.parametrize("added", [(), ODD], ids=["plain", "odd added tokens"])
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.usefixtures("short_parts")
def test_parts_have_the_same_ids_as_the_whole(
    sentencepiece_fields: dict[str, Any], rules: str, added: tuple[tokenizers.AddedToken, ...]
) -> None:
    normalizer, pre_tokenizer = RULES[rules]
    tokenizer = changed(sentencepiece_fields, normalizer=normalizer, pre_tokenizer=pre_tokenizer)
    tokenizer.add_tokens(list(added))
    encoder = encoding.Encoder(tokenizer)

    @settings(max_examples=60, deadline=None)
    @given(text=TEXTS)
    def check(text: str) -> None:
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids

    check()


def test_long_texts_are_cut(sentencepiece_fields: dict[str, Any]) -> None:
    tokenizer = gguf_tokenizer.build(sentencepiece_fields, "made")
    known = joins.read(tokenizer)
    assert known is not None
    for text in ("hello world " * 20_000, "語言" * 100_000, "xdxw" * 50_000):
        parts = list(encoding.cut(text, known.place))
        assert "".join(parts) == text
        assert max(map(len, parts)) < 1.1 * encoding.PART_CHARACTERS
        assert encoding.Encoder(tokenizer).encode(text) == tokenizer.encode(text, add_special_tokens=False).ids


def test_what_tokens_reach_across_is_not_cut_but_bounded(sentencepiece_fields: dict[str, Any]) -> None:
    """`ab` and `ba` are tokens, so in `abab…` there is no place."""
    encoder = encoding.Encoder(gguf_tokenizer.build(sentencepiece_fields, "made"))
    assert len(encoder.encode("ab" * 50_000)) == 50_001
    with pytest.raises(errors.InvalidRequest, match="1000002 bytes without a place where it can be divided"):
        encoder.encode("ab" * 500_001)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "NFKC"}},
        {"normalizer": {"type": "Prepend", "prepend": "x"}},
        {"normalizer": {**REPLACE, "content": "_"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": {**metaspace("first", split=False), "replacement": "_"}},
        {"model": {"byte_fallback": False}},
        {"model": {"dropout": 0.1}},
        {"model": {"end_of_word_suffix": "</w>"}},
    ],
    ids=str,
)
def test_tokenizers_of_which_it_is_not_known_are_not_cut(
    sentencepiece_fields: dict[str, Any], parts: dict[str, Any]
) -> None:
    assert joins.read(changed(sentencepiece_fields)) is not None
    assert joins.read(changed(sentencepiece_fields, **parts)) is None


@pytest.mark.parametrize("token", ["<0x41>b", f"a{joins.GUARD}"])
def test_vocabularies_that_would_break_the_rule_are_not_cut(sentencepiece_fields: dict[str, Any], token: str) -> None:
    sentencepiece_fields["tokenizer.ggml.tokens"][-1] = token
    assert joins.read(gguf_tokenizer.build(sentencepiece_fields, "made")) is None


def test_a_missing_byte_and_a_token_of_one_word(sentencepiece_fields: dict[str, Any]) -> None:
    tokenizer = gguf_tokenizer.build(sentencepiece_fields, "made")
    tokenizer.add_tokens([tokenizers.AddedToken("x", single_word=True)])
    assert joins.read(tokenizer) is None
    tokens = sentencepiece_fields["tokenizer.ggml.tokens"]
    tokens[tokens.index("<0x41>")] = "zz"
    assert joins.read(gguf_tokenizer.build(sentencepiece_fields, "made")) is None
