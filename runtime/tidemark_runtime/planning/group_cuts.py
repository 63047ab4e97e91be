"""Whether a quantized checkpoint can be divided among devices: groups of inputs that share a scale are never cut.

Only the matrices behind which the devices add up are cut along their inputs: attention's output (o_proj) and the MLP's
(down_proj). The engine decides the same, matrix by matrix, while it loads (`model.sharded_checkpoint`); a test compares
the two.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_runtime import errors
from tidemark_runtime.planning import capacity, model_files, weight_bytes

LEAST_GROUP = 16
"""Inputs; the kernels' own, as `model.packing.GROUP_MULTIPLE`."""
OUTPUT, DOWN = "o_proj", "down_proj"


def check(model: model_files.ModelFile, num_devices: int) -> None:
    """Raises `CapacityError` where `num_devices` would cut a group of `model`, with what would do."""
    groups = _groups(model)
    wrong = list(_cut(model.matrices, groups, num_devices)) if num_devices > 1 else []
    if not wrong:
        return
    raise errors.CapacityError(
        f"the groups of {model.where} cannot be divided among {num_devices} devices: {'; '.join(wrong)}. Set "
        f"hardware.count to {_numbers(model, groups)}, or quantize again with a group_size that divides what a device "
        "has and without act-order"
    )


def check_packed(matrices: weight_bytes.MatrixShape, group_size: int, num_devices: int, where: str) -> None:
    """As `check`, of a model in groups of `group_size` inputs, -1: all of a row."""
    packing = model_files.Packing(method="awq", bits=4, group_size=group_size, act_order=False)
    check(
        model_files.ModelFile(where=where, matrices=matrices, max_context_tokens=1, dtype="float16", packing=packing),
        num_devices,
    )


def _groups(model: model_files.ModelFile) -> dict[str, frozenset[int]]:
    """Matrix -> the sizes of its groups, by layer they may differ; 0: in act-order. -1: all of a row."""
    if model.packing is not None:
        is_ordered = model.packing.act_order and model.packing.group_size != -1
        size = frozenset({0 if is_ordered else model.packing.group_size})
        return {OUTPUT: size, DOWN: size}
    return {
        name: frozenset(model_files.GGUF_GROUPS[kind].group_size for kind in kinds if kind in model_files.GGUF_GROUPS)
        for name, kinds in model.summed.items()
    }


def _cut(matrices: weight_bytes.MatrixShape, groups: dict[str, frozenset[int]], num_devices: int) -> Iterator[str]:
    inputs = {OUTPUT: matrices.num_heads * matrices.head_dim, DOWN: matrices.intermediate_size}
    for name, sizes in groups.items():
        own, rest = divmod(inputs[name], num_devices)
        for size in sorted(sizes):
            if size == 0:
                yield f"{name} in act-order, which puts inputs of every device into each group"
            elif rest or not _divides(own, inputs[name] if size == -1 else size):
                shown = "one group a row" if size == -1 else f"groups of {size}"
                yield f"{name} has {inputs[name]} inputs in {shown}, {own} of them on a device"


def _divides(own: int, size: int) -> bool:
    """Whether a device's inputs are whole groups, or an even part of one that the kernels can have."""
    return own % size == 0 or (size % own == 0 and own % LEAST_GROUP == 0)


def _numbers(model: model_files.ModelFile, groups: dict[str, frozenset[int]]) -> str:
    shape = capacity.ModelShape(
        **{
            name: getattr(model.matrices, name)
            for name in (
                *("num_layers", "num_heads", "num_kv_heads", "head_dim"),
                *("hidden_size", "intermediate_size", "vocab_size"),
            )
        },
        max_context_tokens=model.max_context_tokens,
        weights_bytes=0,
    )
    fits = [count for count in capacity.dividers(shape) if count == 1 or not list(_cut(model.matrices, groups, count))]
    return f"one of {', '.join(map(str, fits))}" if len(fits) > 1 else "1"
