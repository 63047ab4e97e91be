"""The bytes a kernel moves are counted from its loads and stores: on kernels whose traffic is known by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
import toy_kernels

from tidemark_kernels.compiled import bytes_moved

ROOT = Path(__file__).resolve().parents[3]


def test_a_copy_moves_every_byte_once_each_way() -> None:
    x, out = torch.ones(1024), torch.empty(1024)
    with bytes_moved.counting({"x": x, "out": out}) as counted:
        toy_kernels.twice[(2,)](x, out, 1024, STEP=1, BLOCK=512)
    assert out.eq(2).all()
    assert counted.by_tensor["x"].loaded_bytes == 4096
    assert counted.by_tensor["out"].stored_bytes == 4096
    assert counted.moved_bytes == counted.asked_bytes == 8192


def test_a_stride_moves_sectors_of_which_half_is_wasted() -> None:
    x, out = torch.ones(2048), torch.empty(1024)
    with bytes_moved.counting({"x": x}) as counted:
        toy_kernels.twice[(2,)](x, out, 1024, STEP=2, BLOCK=512)
    assert counted.by_tensor["x"].loaded_bytes == 8192
    assert counted.by_tensor["x"].asked_bytes == 4096
    assert counted.by_tensor["other"].stored_bytes == 4096


def test_masked_lanes_move_nothing() -> None:
    x, out = torch.ones(1024), torch.empty(1024)
    with bytes_moved.counting({"x": x, "out": out}) as counted:
        toy_kernels.twice[(2,)](x, out, 100, STEP=1, BLOCK=512)
    assert counted.by_tensor["x"].asked_bytes == 400
    assert counted.by_tensor["x"].loaded_bytes == 416  # 12.5 sectors


def test_a_tile_that_is_loaded_again_counts_again() -> None:
    a, b = torch.ones(16, 64, dtype=torch.float16), torch.ones(64, 16, dtype=torch.float16)
    out = torch.empty(16, 16)
    with bytes_moved.counting({"a": a, "b": b, "out": out}) as counted:
        for _ in range(2):
            toy_kernels.product[(1,)](a, b, out, 64, BLOCK=16)
    assert out.eq(64).all()
    assert counted.by_tensor["a"].loaded_bytes == counted.by_tensor["b"].loaded_bytes == 2 * 2048
    assert counted.by_tensor["out"].stored_bytes == 2 * 1024


def test_nothing_is_counted_afterwards() -> None:
    x, out = torch.ones(512), torch.empty(512)
    with bytes_moved.counting({"x": x}) as counted:
        pass
    toy_kernels.twice[(1,)](x, out, 512, STEP=1, BLOCK=512)
    assert counted.moved_bytes == 0


def test_what_cannot_be_counted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    monkeypatch.setattr(knobs.runtime, "interpret", False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET is not 1"), bytes_moved.counting({}):
        pass


@pytest.fixture
def kernel_bytes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("kernel_bytes")


def test_one_head_counted_for_all_is_what_all_move(kernel_bytes: ModuleType) -> None:
    paged_case = kernel_bytes.paged_case
    model = paged_case.Model(num_heads=4, num_kv_heads=2, head_dim=16, block_size=8)
    case = paged_case.make(torch.device("cpu"), "int8", [1, 1], [40, 130], model)
    with bytes_moved.counting(case.tensors()) as full:
        case.run()
    with bytes_moved.counting(case.tensors(), every=2) as counted:
        case.run()
    assert counted.by_tensor == full.by_tensor
    assert full.by_tensor["pages"].moved_bytes >= 170 * 2 * 2 * (16 + 4)


@pytest.mark.parametrize("kv_dtype", ["bfloat16", "int8", "fp8_e4m3"])
def test_decode_attention_moves_little_beside_keys_and_values(kernel_bytes: ModuleType, kv_dtype: str) -> None:
    """At 256 tokens; `benchmarks/results/kernel_bytes.md` has 4k and 32k."""
    line = kernel_bytes.decode_line(kv_dtype, 256)
    assert line.useful >= 0.95
    assert line.counted.by_tensor["other"].moved_bytes == 0
