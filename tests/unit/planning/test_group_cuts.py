"""Which quantized checkpoints can be divided is decided beforehand as the engine decides it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tidemark_runtime import errors
from tidemark_runtime.model import packing, sharded_checkpoint, tensors
from tidemark_runtime.planning import group_cuts, model_files, weight_bytes

MATRICES = weight_bytes.MatrixShape(
    num_layers=1, hidden_size=32, intermediate_size=192, num_heads=12, num_kv_heads=12, head_dim=16, vocab_size=48
)


def model(group_size: int, *, act_order: bool = False) -> model_files.ModelFile:
    packed = model_files.Packing(method="gptq", bits=4, group_size=group_size, act_order=act_order)
    return model_files.ModelFile(
        where="/m/config.json", matrices=MATRICES, max_context_tokens=64, dtype="float16", packing=packed
    )


def engine_cuts(group_size: int, size: int) -> bool:
    """Whether the engine gives each rank its part of 192 inputs."""
    width = 192
    found = tensors.Grouped(
        torch.zeros(2, width, dtype=torch.uint8), torch.ones(2, width // group_size), None, 4, group_size
    )
    for rank in range(size):
        own = range(rank * width // size, (rank + 1) * width // size)
        try:
            sharded_checkpoint.cut_out("down_proj", found, sharded_checkpoint.Cut(1, own, width), size)
        except errors.UnsupportedModel:
            return False
    return True


@pytest.mark.parametrize("group_size", [16, 32, 48, 64, 96, 192])
@pytest.mark.parametrize("size", [2, 3, 4, 6, 12])
def test_it_says_what_the_engine_does(group_size: int, size: int) -> None:
    try:
        group_cuts.check(model(group_size), size)
        fits = True
    except errors.CapacityError:
        fits = False
    assert fits == engine_cuts(group_size, size)


def test_the_kernels_smallest_group_is_the_same() -> None:
    assert group_cuts.LEAST_GROUP == packing.GROUP_MULTIPLE


def test_one_device_cuts_nothing_and_one_scale_a_row_is_cut() -> None:
    group_cuts.check(model(128), 1)
    group_cuts.check(model(-1), 4)


def test_the_message_has_the_numbers_that_do() -> None:
    told = (
        r"groups of /m/config.json cannot be divided among 4 devices: o_proj has 192 inputs in groups of 64, 48 of "
        r"them on a device; down_proj has .* Set hardware.count to one of 1, 3, 6, 12, or quantize again"
    )
    with pytest.raises(errors.CapacityError, match=told):
        group_cuts.check(model(64), 4)


def test_act_order_is_for_one_device() -> None:
    with pytest.raises(errors.CapacityError, match=r"in act-order, .* Set hardware.count to 1, or"):
        group_cuts.check(model(32, act_order=True), 2)
    group_cuts.check(model(-1, act_order=True), 2)


def test_a_gguf_is_cut_by_the_groups_of_its_own_types() -> None:
    """Q4_K has groups of 32, Q6_K of 16; float16 has none."""
    stored = model_files.ModelFile(
        where="/m/a.gguf",
        matrices=MATRICES,
        max_context_tokens=64,
        dtype="bfloat16",
        summed={"o_proj": frozenset({"F16"}), "down_proj": frozenset({"Q4_K", "Q6_K"})},
    )
    group_cuts.check(stored, 6)
    with pytest.raises(errors.CapacityError, match="12 devices: down_proj has 288 inputs in groups of 32, 24 of"):
        group_cuts.check(dataclasses.replace(stored, summed={"down_proj": frozenset({"Q4_K"})}, matrices=UNEVEN), 12)


UNEVEN = dataclasses.replace(MATRICES, intermediate_size=12 * 24)
"""24 inputs on each of 12 devices: neither whole groups, nor an even part of one."""
