"""The index finds what a search of the whole text finds, however the text came in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime.core import ngram
from tidemark_runtime.planning import capacity


def searched(tokens: list[int], count: int) -> tuple[tuple[int, ...], int] | None:
    """By comparing every place, newest first; only the newest places with the last pair count."""
    pair = tokens[-2:]
    places = [end for end in range(len(tokens) - 2, 0, -1) if tokens[end - 1 : end + 1] == pair]
    best, longest = -1, 1
    for end in places[: ngram.MOST_TRIED]:
        length = 0
        while length < ngram.MOST_MATCH and length <= end and tokens[end - length] == tokens[-1 - length]:
            length += 1
        if length > longest:
            best, longest = end, length
    if best < 0:
        return None
    found = list(tokens)
    for index in range(count):
        found.append(found[best + 1 + index])
    return tuple(found[len(tokens) :]), longest


@given(tokens=st.lists(st.integers(0, 3), min_size=1, max_size=80), count=st.integers(1, 6), cuts=st.integers(1, 9))
def test_the_longest_newest_match_is_found(tokens: list[int], count: int, cuts: int) -> None:
    index = ngram.Index(10_000)  # no two of the few pairs share a place
    for end in range(1, len(tokens), cuts):
        index.extend(tokens[:end], 1000)
    while index.extend(tokens, 3) == 3:
        pass
    found = index.guess(tokens, count)
    expected = searched(tokens, count) if len(tokens) > 1 else None
    assert (found and (found.tokens, found.match)) == expected


def test_a_period_is_continued() -> None:
    text = [5, 6, 7] * 4
    index = ngram.Index(100)
    index.extend(text, 1000)
    found = index.guess(text, 7)
    assert found == ngram.Guess((5, 6, 7, 5, 6, 7, 5), ngram.MOST_MATCH)


@pytest.mark.parametrize("text", [[], [1], [1, 2], [1, 2, 3, 4, 5]])
def test_what_repeats_nothing_gives_no_guess(text: list[int]) -> None:
    index = ngram.Index(100)
    index.extend(text, 1000)
    assert index.guess(text, 4) is None
    assert index.guess([1, 2, 1, 2], 0) is None


def test_places_that_share_a_hash_are_told_apart() -> None:
    index = ngram.Index(2)  # the smallest table: 64 places for thousands of pairs
    text = [(number * 7919) % 3001 for number in range(3000)]
    text += text[100:110]
    index.extend(text, 10_000)
    found = index.guess(text, 3)
    assert found is None or found.tokens == tuple(text[110:113])


class Counting(list[int]):
    """Knows how often it was looked into."""

    num_read = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def, override]
        self.num_read += 1
        return super().__getitem__(key)


def test_memory_and_work_of_a_look_up_are_bounded() -> None:
    text = [7] * 32_000
    index = ngram.Index(32_768)
    index.extend(text, 100_000)
    assert index.num_bytes <= capacity.guess_index_bytes(32_768)
    seen = Counting(text)
    assert index.guess(seen, 4) is not None
    assert seen.num_read <= 2 * ngram.MOST_TRIED * (ngram.MOST_MATCH + 1) + 8, "a look-up walks through the whole text"


@pytest.mark.parametrize("most", [2, 64, 65, 1000, 4096, 4097, 131_072])
def test_an_index_takes_no_more_than_is_planned_for_it(most: int) -> None:
    index = ngram.Index(most)
    text = [7, 8] * most
    for known in range(0, most + 1, max(1, most // 97)):
        index.extend(text[:known], most)
        assert index.num_bytes <= capacity.guess_index_bytes(most)
    index.extend(text[:most], most)
    assert 0.9 * capacity.guess_index_bytes(most) - 512 < index.num_bytes <= capacity.guess_index_bytes(most)
