"""Many arrays in one copy, and pinned memory that is not written to while a copy reads it."""

from __future__ import annotations

import made_devices
import numpy as np
import pytest
import torch

from tidemark_runtime.worker import accelerators, device_buffers

ARRAYS = {
    "wide": np.arange(5, dtype=np.int64),
    "narrow": np.arange(7, dtype=np.int32) - 3,
    "empty": np.zeros(0, dtype=np.int32),
    "square": np.arange(6, dtype=np.int32).reshape(2, 3),
}


def test_what_was_written_is_what_arrives() -> None:
    staging, packed = device_buffers.Staging(accelerators.Interpreter()), device_buffers.Packed.of(ARRAYS)
    views = packed.views(staging.send(ARRAYS, packed))
    for name, array in ARRAYS.items():
        assert torch.equal(views[name], torch.from_numpy(array)), name
        assert views[name].data_ptr() % 16 == 0 or not array.size


def test_a_target_is_written_in_place_and_keeps_what_shorter_arrays_do_not_reach() -> None:
    staging, packed = device_buffers.Staging(accelerators.Interpreter()), device_buffers.Packed.of(ARRAYS)
    target = torch.zeros(packed.num_bytes, dtype=torch.uint8)
    assert staging.send(ARRAYS, packed, target) is target
    assert packed.views(target)["narrow"].tolist() == [-3, -2, -1, 0, 1, 2, 3]


def test_an_array_too_long_for_its_place_is_refused() -> None:
    packed = device_buffers.Packed.of(ARRAYS)
    with pytest.raises(ValueError, match="narrow has 32 bytes, its place has 28"):
        packed.write(np.zeros(packed.num_bytes, dtype=np.uint8), {"narrow": np.zeros(8, dtype=np.int32)})


def test_a_piece_is_written_to_again_only_after_its_copy() -> None:
    device = made_devices.Written()
    staging, packed = device_buffers.Staging(device), device_buffers.Packed.of(ARRAYS)
    device.log.clear()
    for _ in range(device_buffers.NUM_PIECES + 1):
        staging.send(ARRAYS, packed)
    expected = [line for piece in (1, 2, 3, 4, 1) for line in (f"host waits {piece}", f"record {piece}")]
    assert device.log == expected


def test_a_piece_grows_to_what_is_sent() -> None:
    staging = device_buffers.Staging(accelerators.Interpreter())
    large = {"tokens": np.arange(100_000, dtype=np.int32)}
    packed = device_buffers.Packed.of(large)
    assert packed.views(staging.send(large, packed))["tokens"][-1] == 99_999
    assert staging.num_bytes >= 400_000


def test_results_are_copies() -> None:
    tensor = torch.arange(3)
    returned = device_buffers.Returned(accelerators.Interpreter(), [tensor, torch.ones(2, 2)])
    tensor.zero_()
    ids, ones = returned.arrays()
    assert (ids.tolist(), ones.shape) == ([0, 1, 2], (2, 2))
