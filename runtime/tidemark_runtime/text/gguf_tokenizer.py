"""Builds a tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`), which has no tokenizer.json.

Two families are read: `gpt2`, byte-level byte pair encoding with its merges, and `llama`, sentencepiece-style byte
pair encoding, whose merges follow from the tokens' scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers

from tidemark_runtime import errors
from tidemark_runtime.text import pre_tokenizers, token_table

_CONTROL, _USER_DEFINED = 3, 4
"""Of `tokenizer.ggml.token_type`: special tokens, and plain ones that are matched whole in the text."""


def build(metadata: Mapping[str, Any], origin: str) -> tokenizers.Tokenizer:
    """The tokenizer the metadata describes; `origin` names the file in messages.

    Raises UnsupportedModel for other families and rules, CorruptModel where the metadata contradict themselves.
    """
    family = metadata.get("tokenizer.ggml.model")
    tokens = _tokens(metadata, origin)
    if family == "gpt2":
        tokenizer = _byte_level(metadata, tokens, origin)
    elif family == "llama":
        tokenizer = _sentencepiece(metadata, tokens, origin)
    else:
        raise errors.UnsupportedModel(
            f"{origin}: tokenizer.ggml.model: got {family!r}, expected 'gpt2' (byte-level) or 'llama' (sentencepiece)"
        )
    _add_whole_tokens(tokenizer, metadata, tokens, origin)
    return tokenizer


def adds_bos(metadata: Mapping[str, Any], origin: str) -> bool:
    """Whether a begin token is put before texts; without a word in the file, what its rules imply."""
    stated = metadata.get("tokenizer.ggml.add_bos_token")
    if isinstance(stated, bool):
        return stated
    if metadata.get("tokenizer.ggml.model") == "llama":
        return True
    return pre_tokenizers.named(metadata.get("tokenizer.ggml.pre"), origin).adds_bos


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str], origin: str) -> tokenizers.Tokenizer:
    rules = pre_tokenizers.named(metadata.get("tokenizer.ggml.pre"), origin)
    merges = metadata.get("tokenizer.ggml.merges")
    if not isinstance(merges, list):
        raise errors.CorruptModel(f"{origin}: tokenizer.ggml.merges is missing, expected a list of pairs")
    pairs = [_pair(merge, origin) for merge in merges]
    tokenizer = _bpe(origin, tokens, pairs, ignore_merges=rules.whole_words)
    normalizer = rules.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = rules.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any], tokens: Sequence[str], origin: str) -> tokenizers.Tokenizer:
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        seen = len(scores) if isinstance(scores, list) else "none"
        raise errors.CorruptModel(
            f"{origin}: tokenizer.ggml.scores: got {seen}, expected one for each of {len(tokens)}"
        )
    unknown_id = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    tokenizer = _bpe(
        origin,
        tokens,
        _merges_by_score(tokens, scores),
        byte_fallback=True,
        fuse_unk=True,
        unk_token=tokens[unknown_id] if unknown_id < len(tokens) else None,
    )
    mark = token_table.SPACE_MARK
    prefixes = metadata.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(mark)] if prefixes else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", mark)])
    strip = [decoders.Strip(" ", 1, 0)] if prefixes else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(mark, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_by_score(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Sentencepiece joins the two neighbours whose joint token scores best: as a list of merges, every way to make a
    token of two others, best score first, and then shorter left parts first (as Hugging Face's converter has it)."""
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    ways = [
        (-score, (len(left), len(right)), ids[left], ids[right], left, right)
        for token, score in zip(tokens, scores, strict=True)
        for left, right in _halves(token)
        if left in ids and right in ids
    ]
    ways.sort()
    return [(left, right) for *_, left, right in ways]


def _halves(token: str) -> Iterator[tuple[str, str]]:
    return ((token[:index], token[index:]) for index in range(1, len(token)))


def _bpe(origin: str, tokens: Sequence[str], merges: list[tuple[str, str]], **options: Any) -> tokenizers.Tokenizer:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    try:
        return tokenizers.Tokenizer(models.BPE(vocab, merges, **options))
    except Exception as error:  # the library raises nothing narrower
        raise errors.CorruptModel(f"{origin}: the tokenizer's merges do not fit its tokens: {error}") from error


def _add_whole_tokens(
    tokenizer: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str], origin: str
) -> None:
    types = metadata.get("tokenizer.ggml.token_type", [])
    if len(types) not in (0, len(tokens)):
        raise errors.CorruptModel(
            f"{origin}: tokenizer.ggml.token_type: got {len(types)} values, expected one for each of {len(tokens)}"
        )
    control = [token for token, kind in zip(tokens, types, strict=False) if kind == _CONTROL]
    plain = [token for token, kind in zip(tokens, types, strict=False) if kind == _USER_DEFINED]
    tokenizer.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in plain])


def _tokens(metadata: Mapping[str, Any], origin: str) -> list[str]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise errors.CorruptModel(f"{origin}: tokenizer.ggml.tokens is missing: the file holds no tokenizer")
    return tokens


def _pair(merge: str, origin: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right):
        raise errors.CorruptModel(f"{origin}: tokenizer.ggml.merges: got {merge!r}, expected two parts and a space")
    return left, right
