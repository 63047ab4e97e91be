"""Looks for the end of a text earlier in the same text: what came after it then is a guess at what comes now.

Answers that copy (extraction, edits of code, summaries that quote, tables) repeat long runs of their prompt or of
themselves. Finding them needs no model: Saxena, "Prompt Lookup Decoding", 2023, and "LLMA", Yang et al.,
arXiv 2304.04487.

The index keeps for each pair of neighbouring tokens the position where it ended last, and for each position the one
before it with the same pair: a hash table with chains, in two arrays of 4 bytes an entry. A token costs two writes. A
look-up follows the chain of the last pair, newest first, for at most `MOST_TRIED` places, and takes the longest match.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_MATCH = 2
"""Tokens that must be the same: fewer say next to nothing."""
MOST_MATCH = 8
"""A match of so many ends the search: a longer one would not guess better."""
MOST_TRIED = 16
"""Places that are compared: so a look-up takes microseconds in text that is nothing but repetition, too."""
_NOWHERE = -1
_MIX = 2_654_435_761
"""Knuth's, 2^32 over the golden ratio."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What may come next."""

    tokens: tuple[int, ...]
    match: int
    """Tokens before it that are the same as at the end of the text, LEAST_MATCH to MOST_MATCH."""


class Index:
    """Of one text that only grows. The same text gives the same guesses, however it was cut when it was taken in."""

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens`: the longest it can become; sizes the table."""
        size = 1 << max(6, (max_tokens - 1).bit_length())
        self._mask = size - 1
        self._newest = array("i", [_NOWHERE]) * size
        """By hash of a pair: the position of its second token, where it came last."""
        self._before = array("i", [_NOWHERE])
        """By position: the one before it with the same hash."""

    @property
    def num_bytes(self) -> int:
        """With what arrays keep for further entries; `planning.capacity.guess_index_bytes` is the most of it."""
        return sys.getsizeof(self._newest) + sys.getsizeof(self._before)

    def extend(self, tokens: Sequence[int], limit: int) -> int:
        """Take in up to `limit` more of `tokens`, all but the last one, which is what will be looked for; how many were
        taken in. It has caught up when that is less than `limit`."""
        newest, before, mask = self._newest, self._before, self._mask
        first = len(before)
        last = min(len(tokens) - 1, first + limit)
        for position in range(first, last):
            place = ((tokens[position - 1] * _MIX + tokens[position]) * _MIX >> 13) & mask
            before.append(newest[place])
            newest[place] = position
        return max(0, last - first)

    def guess(self, tokens: Sequence[int], count: int) -> Guess | None:
        """Up to `count` tokens after `tokens`, as taken in; None where its end was not seen before.

        Where what came then reaches the end of the text, it goes on with the guess itself: a period is continued.
        """
        num_tokens = len(tokens)
        if num_tokens < LEAST_MATCH or count < 1:
            return None
        place = ((tokens[-2] * _MIX + tokens[-1]) * _MIX >> 13) & self._mask
        position, best, longest = self._newest[place], _NOWHERE, LEAST_MATCH - 1
        for _ in range(MOST_TRIED):
            if position == _NOWHERE:
                break
            length = _same(tokens, position)
            if length > longest:
                best, longest = position, length
                if length == MOST_MATCH:
                    break
            position = self._before[position]
        if best == _NOWHERE:
            return None
        found = list(tokens[best + 1 : best + 1 + count])
        for index in range(count - len(found)):
            found.append(found[index])
        return Guess(tuple(found), longest)


def _same(tokens: Sequence[int], position: int) -> int:
    """Tokens before and with `position` that are the same as at the end, at most MOST_MATCH."""
    last = len(tokens) - 1
    length = 0
    while length < MOST_MATCH and length <= position and tokens[position - length] == tokens[last - length]:
        length += 1
    return length
