"""Which sizes are recorded, in which order, and which one a batch gets."""

from __future__ import annotations

import itertools

import made_devices
import pytest

from tidemark_runtime.worker import graphs


@pytest.mark.parametrize(
    ("max_num_seqs", "expected"),
    [
        (1, (1,)),
        (3, (1, 2, 3)),
        (16, (1, 2, 4, 8, 16)),
        (64, (1, 2, 4, 8, 16, 24, 32, 48, 64)),
        (70, (1, 2, 4, 8, 16, 24, 32, 48, 64, 70)),
    ],
)
def test_sizes_end_with_the_largest_batch(max_num_seqs: int, expected: tuple[int, ...]) -> None:
    assert graphs.sizes(max_num_seqs) == expected


def test_no_more_than_half_of_a_record_is_empty_and_from_16_on_no_more_than_a_third() -> None:
    among = graphs.sizes(512)
    for count in range(1, 513):
        size = graphs.size_for(count, among)
        assert size is not None
        assert (size - count) / size <= (1 / 3 if count > 16 else 1 / 2)
    assert graphs.size_for(513, among) is None


def test_the_largest_is_recorded_first_and_the_others_in_its_memory() -> None:
    device, ran = made_devices.Recording(), []
    clock = itertools.count(10.0, 2.0)

    def prepare(size: int) -> tuple[str, object]:
        return f"memory of {size}", lambda: ran.append(size)

    made = graphs.record(device, (1, 2, 4), prepare, lambda: next(clock))
    assert ran == [4, 2, 1]  # each once before it is recorded, and not while it is
    records = [call for call in device.calls if call != "give back"]
    assert records == ["record 1", "record 2 in the memory of 1", "record 3 in the memory of 1"]
    assert (made.sizes, made.num_bytes, made.seconds) == ((1, 2, 4), 3000, 2.0)
    found = made.find(3)
    assert found is not None
    assert (found.size, found.step) == (4, "memory of 4")
    found.graph.replay()
    assert ran == [4, 2, 1, 4]
    assert made.find(5) is None
