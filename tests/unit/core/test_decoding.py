"""The calendar of the decode set keeps nobody who has left."""

from __future__ import annotations

import gc
import weakref

from tidemark_runtime.core import decoding, sampling, sequence


class Tracked(sequence.Sequence):
    """Can be asked whether it is still somewhere."""

    __slots__ = ("__weakref__",)


def _decoding(number: int, max_tokens: int = 1000) -> Tracked:
    entry = Tracked(
        str(number),
        list(range(20)),
        sampling.SamplingParams(max_tokens=max_tokens),
        order=number,
        arrival_seconds=0.0,
    )
    entry.slot, entry.pages, entry.num_computed, entry.num_sampled = number, [0, 1], 20, 1
    return entry


def test_who_leaves_early_is_not_kept_until_its_last_step() -> None:
    members = decoding.DecodeSet(16)
    entry = _decoding(0)
    members.enter(entry, 5)
    members.leave(entry, 7)
    assert entry.num_computed == 23
    seen = weakref.ref(entry)
    del entry
    gc.collect()
    assert seen() is None


def test_a_slot_that_another_has_taken_over_is_asked_for_the_other_one() -> None:
    members = decoding.DecodeSet(16)
    first, second = _decoding(0), _decoding(0)
    members.enter(first, 5)
    needs_at = first.next_page_step
    members.leave(first, 5)
    members.enter(second, 6)
    assert members.needing_a_page(needs_at) == []
    assert members.needing_a_page(second.next_page_step) == [second]


def test_the_last_step_is_said_once_and_only_of_members() -> None:
    members = decoding.DecodeSet(16)
    stays, goes = _decoding(0, max_tokens=4), _decoding(1, max_tokens=4)
    members.enter(stays, 5)
    members.enter(goes, 5)
    members.leave(goes, 6)
    assert list(members.ending(stays.last_step)) == [stays]
    assert list(members.ending(stays.last_step)) == []
