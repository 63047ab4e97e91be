"""What an op's calls take is told while the watch runs, and only then."""

from __future__ import annotations

import pytest
import torch

from tidemark_kernels import dispatch, grouped, halves, ops


def every_simple_op() -> None:
    x = torch.randn(3, 64)
    quants = torch.randint(0, 16, (32, 64), dtype=torch.uint8)
    weight = grouped.GroupedWeight.pack(quants, torch.rand(32, 2), torch.rand(32, 2), 4, 32)
    ops.grouped_linear(x, weight)
    ops.grouped_linear_int8(x, weight)
    ops.grouped_rows(weight, torch.tensor([3]))
    ops.dense_linear_f32(x, grouped.PackedDense.pack(torch.randn(32, 64)))
    half = halves.PackedHalf.pack(torch.randn(32, 64).half())
    ops.half_linear(x, half)
    ops.half_rows(half, torch.tensor([3]))
    ops.rms_norm(x, torch.ones(64), 1e-5)
    ops.silu_mul(x)


def attention() -> None:
    slab = torch.zeros(2, 4 * 16 * 4 * 2, dtype=torch.uint8)
    layer = ops.LayerSegments.from_offsets([0], [4 * 16 * 4], torch.float32, torch.float32)
    token_page, token_row = torch.tensor([1, 1], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    turns = (torch.ones(2, 8), torch.zeros(2, 8), 1, 1, 16, 16, None, None, 1e-6)
    q = ops.rope_and_write(torch.randn(2, 48), *turns, slab, layer, token_page, token_row)
    table, starts, lengths = (torch.tensor(data, dtype=torch.int32) for data in ([[1]], [0, 2], [2]))
    ops.paged_attention(q, slab, layer, table, starts, lengths, 4, 0.25)


def timed() -> dict[str, float]:
    with dispatch.current().watch.running() as seconds:
        every_simple_op()
        attention()
    return seconds


def test_every_op_is_timed_on_the_compiled_path(native: dispatch.Choice) -> None:
    seconds = timed()
    assert set(seconds) == set(dispatch.OPS)
    assert all(0 < spent < 60 for spent in seconds.values())


def test_every_op_is_timed_on_the_torch_path(without_compiler: dispatch.Choice) -> None:
    assert set(timed()) == set(dispatch.OPS)


def test_calls_add_up_and_a_new_run_begins_at_nothing(native: dispatch.Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, watch = torch.randn(3, 64), torch.ones(64), native.watch
    with watch.running() as first:
        ops.rms_norm(x, weight, 1e-5)
        once = first["rms_norm"]
        ops.rms_norm(x, weight, 1e-5)
    assert first["rms_norm"] > once > 0
    with watch.running() as second:
        pass
    assert (second, list(first)) == ({}, ["rms_norm"])


def test_nothing_is_told_while_it_stands_still_nor_after_an_error(native: dispatch.Choice) -> None:
    with pytest.raises(RuntimeError, match="in the middle"), native.watch.running() as seconds:
        raise RuntimeError("in the middle")
    every_simple_op()
    assert seconds == {}
    assert native.watch.now() == 0.0
