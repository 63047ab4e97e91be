"""Where a text may be divided for a sentencepiece-style tokenizer, which merges over the whole of it.

Byte pair encoding without words: a token can reach over the place between two characters only if some token of the
vocabulary has these two side by side. Where none has, what stands before and after is merged independently, so a cut
there changes nothing: exact, not an approximation. Between most words and between most Chinese characters it is so.

Such a tokenizer also puts a space in front of a text. A later part must not get one, so it is encoded behind a guard,
a character that no token holds, whose ids are known and dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import tokenizers
from tokenizers import models

from tidemark_runtime.text import token_table

GUARD = "\ue000"
"""Private use: nobody writes it, and where a vocabulary has it nothing is cut."""
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_MARK = token_table.SPACE_MARK


@dataclass(frozen=True, slots=True)
class Joins:
    """What must stay together."""

    pairs: frozenset[str]
    """Two characters side by side in a token, a space written as U+2581."""
    ends: frozenset[str]
    """Last characters of tokens that are matched whole: what follows them may get a space in front."""

    def place(self, text: str, start: int, end: int) -> int | None:
        """The first index from `start` to before `end` that `text` may be cut in front of."""
        before = text[start - 1]
        for index in range(start, min(end, len(text))):
            after = text[index]
            pair = (before + after).replace(" ", _MARK)
            if pair not in self.pairs and not before.isspace() and before not in self.ends:
                return index
            before = after
        return None


def read(tokenizer: tokenizers.Tokenizer) -> Joins | None:
    """None for a tokenizer of which it is not known that cuts are exact."""
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    added = list(tokenizer.get_added_tokens_decoder().values())
    if (
        not _merges_plainly(tokenizer.model)
        or not _only_marks_spaces(tokenizer)
        or sum(_BYTE.fullmatch(token) is not None for token in vocab) < 256
        or any(_BYTE.search(token) and not _BYTE.fullmatch(token) for token in vocab)
        or any(token.single_word for token in added)
        or any(GUARD in token for token in (*vocab, *(token.content for token in added)))
    ):
        return None
    whole = [f"{_MARK}{token.content}".replace(" ", _MARK) for token in added]
    pairs = frozenset(before + after for token in (*vocab, *whole) for before, after in pairwise(token))
    return Joins(pairs, frozenset(token[-1] for token in whole))


def _merges_plainly(model: Any) -> bool:
    return (
        isinstance(model, models.BPE)
        and model.byte_fallback
        and not model.dropout
        and not model.continuing_subword_prefix
        and not model.end_of_word_suffix
    )


def _only_marks_spaces(tokenizer: tokenizers.Tokenizer) -> bool:
    """Nothing is done to the text but U+2581 for a space, and one in front."""
    return all(_is_known(part) for part in _steps(tokenizer))


def _steps(tokenizer: tokenizers.Tokenizer) -> Iterator[dict[str, Any]]:
    yield from token_table.flattened(tokenizer.normalizer, "normalizers")
    yield from token_table.flattened(tokenizer.pre_tokenizer, "pretokenizers")


def _is_known(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "Prepend":
            return bool(part["prepend"] == _MARK)
        case "Replace":
            return bool(part["pattern"] == {"String": " "} and part["content"] == _MARK)
        case "Metaspace":
            return bool(part["replacement"] == _MARK)
        case _:
            return False
