"""Which path an op of a device runs, and the reason where it is not our kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tidemark_kernels import device_dispatch

NEED = device_dispatch.Need(
    dtype=torch.bfloat16, head_dim=128, block_size=16, kv_dtypes=("bfloat16", "int8"), vocab_size=128_256
)
H200 = device_dispatch.Target(kind="cuda", capability=(9, 0))


def test_what_kernels_were_written_for_runs_them() -> None:
    choices = device_dispatch.choose(NEED, H200)
    assert choices.unplanned == ()
    assert {each.op for each in choices.paths} == set(device_dispatch.OPS)
    assert [each.dtype for each in choices.paths if each.op == "paged_attention"] == ["bfloat16", "int8"]
    assert all(choices.runs_kernel(op) for op in device_dispatch.OPS)
    with pytest.raises(KeyError):
        choices.runs_kernel("unheard_of")


@pytest.mark.parametrize(
    ("need", "target", "ops", "reason"),
    [
        ({}, {"missing": "no Triton"}, set(device_dispatch.OPS), "no Triton"),
        ({}, {"capability": (7, 5)}, set(device_dispatch.OPS), "CUDA capability 7.5, kernels need 8.0"),
        ({"dtype": torch.float64}, {}, set(device_dispatch.OPS), "activations are float64"),
        ({"kv_dtypes": ("int4",)}, {}, {"paged_attention", "rope_and_write"}, "4 bits"),
        ({"head_dim": 72}, {}, {"paged_attention", "rope_and_write"}, "heads have 72 elements"),
        ({"head_dim": 512}, {}, {"paged_attention", "rope_and_write"}, "heads have 512 elements"),
        ({"block_size": 12}, {}, {"paged_attention", "rope_and_write"}, "kvCache.blockSize is 12"),
        ({"vocab_size": 1}, {}, {"sample"}, "1 tokens"),
    ],
)
def test_what_no_kernel_was_written_for_says_why(
    need: dict[str, Any], target: dict[str, Any], ops: set[str], reason: str
) -> None:
    choices = device_dispatch.choose(dataclasses.replace(NEED, **need), dataclasses.replace(H200, **target))
    assert {each.op for each in choices.unplanned} == ops
    for each in choices.unplanned:
        assert (each.planned, each.path) == (device_dispatch.TRITON, device_dispatch.TORCH)
        assert reason in each.reason
        assert not choices.runs_kernel(each.op)


def test_heads_of_72_elements_are_fine_in_16_bits() -> None:
    """Rows of 8-bit elements must begin at multiples of 16 bytes."""
    plain = dataclasses.replace(NEED, head_dim=72, kv_dtypes=("bfloat16",))
    assert device_dispatch.choose(plain, H200).unplanned == ()
