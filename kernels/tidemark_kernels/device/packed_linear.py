"""Products with packed weights, and rows of them, on tensors of a device."""

from __future__ import annotations

import torch
import triton

from tidemark_kernels.device import packed_weight
from tidemark_kernels.jit import packed_linear as kernels
from tidemark_kernels.tuning import packed_linear as tuning

ACTIVATIONS = (torch.bfloat16, torch.float16, torch.float32)


def packed_linear(
    x: torch.Tensor,
    weight: packed_weight.PackedWeight,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` W^T + bias -> `[num_tokens, num_outputs]` in the dtype of `out`, default that of x.

    bfloat16, float16 or float32; rows of x and `out` may lie apart. `bias` `[num_outputs]` in any of these.
    `workspace`: float32, `workspace_floats` elements or more; what is in it is lost. Raises `ValueError`.

    Sums are float32. A row's bits do not depend on other rows, nor on their number within a class of steps: 1 to 8
    rows, to 16, to 64, to 256, more. With 16 or fewer, weights are exact; with more they are rounded to the dtype of x.
    A row with an infinity or a NaN in it becomes NaN, or infinite, in all outputs; other rows do not notice.
    """
    _check(x, weight, bias)
    num_rows = x.shape[0]
    if out is None:
        out = torch.empty(num_rows, weight.num_outputs, dtype=x.dtype, device=x.device)
    _check_out(out, x, weight)
    if num_rows == 0:
        return out
    if weight.order is not None:
        x = x.index_select(1, weight.order)
    chosen = tuning.config(num_rows, weight.k_run, x.dtype == torch.float32)
    splits, steps_a_split = _split(chosen, weight)
    if splits == 1:
        _launch(x, weight, bias, out, chosen, splits, steps_a_split)
        return out
    partial = _workspace(workspace, splits * num_rows * weight.num_outputs, x.device)
    _launch(x, weight, None, partial, chosen, splits, steps_a_split)
    kernels.sum_splits_kernel[(num_rows, triton.cdiv(weight.num_outputs, tuning.SUM_BLOCK))](
        partial, bias, out, num_rows, weight.num_outputs, splits, out.stride(0), BLOCK_OUTPUTS=tuning.SUM_BLOCK
    )
    return out


def workspace_floats(num_rows: int, weight: packed_weight.PackedWeight, is_float32: bool = False) -> int:
    """Float32's that `packed_linear` needs for partial sums of so many rows; 0 where inputs are not split."""
    if num_rows == 0:
        return 0
    splits, _ = _split(tuning.config(num_rows, weight.k_run, is_float32), weight)
    return splits * num_rows * weight.num_outputs if splits > 1 else 0


def packed_rows(
    ids: torch.Tensor,
    weight: packed_weight.PackedWeight,
    dtype: torch.dtype = torch.float32,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rows `ids` (int64 `[num_tokens]`) of the matrix, dequantized: `[num_tokens, num_inputs]` of `dtype`, or of `out`.

    An id that is no row gives NaN. Raises `ValueError`.
    """
    if ids.dtype != torch.int64 or ids.dim() != 1 or not ids.is_contiguous() or ids.device != weight.device:
        raise ValueError(
            f"ids are {ids.dtype} {list(ids.shape)} on {ids.device}, expected contiguous int64 [num_tokens] on "
            f"{weight.device}"
        )
    if weight.order is not None:
        raise ValueError("weight has an order of inputs, expected none: no checkpoint has act-order in a table")
    shape = (ids.shape[0], weight.num_inputs)
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=ids.device)
    if tuple(out.shape) != shape or out.dtype not in ACTIVATIONS or not out.is_contiguous() or out.device != ids.device:
        raise ValueError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}, expected contiguous bfloat16, float16 or float32 "
            f"{list(shape)} on {ids.device}"
        )
    if not len(ids):
        return out
    kernels.packed_rows_kernel[(len(ids), triton.cdiv(weight.num_inputs, tuning.ROWS_BLOCK))](
        ids,
        weight.codes,
        weight.affine.words,
        weight.affine.supers,
        out,
        weight.num_outputs,
        weight.num_inputs,
        weight.padded_outputs,
        weight.num_pieces,
        KIND=weight.kind,
        OFFSET=weight.affine.offset,
        SCALES=weight.affine.kind,
        GROUP=weight.group,
        K_RUN=weight.k_run,
        BLOCK_INPUTS=tuning.ROWS_BLOCK,
    )
    return out


def _split(chosen: tuning.Config, weight: packed_weight.PackedWeight) -> tuple[int, int]:
    """Splits of the inputs, none of them empty, and stages in each."""
    num_steps = weight.padded_inputs // tuning.block_inputs(chosen, weight.kind)
    steps_a_split = triton.cdiv(num_steps, tuning.splits(chosen, weight.num_outputs, weight.padded_inputs))
    return triton.cdiv(num_steps, steps_a_split), steps_a_split


def _launch(
    x: torch.Tensor,
    weight: packed_weight.PackedWeight,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    chosen: tuning.Config,
    splits: int,
    steps_a_split: int,
) -> None:
    """`target`: the result, or partial sums where there is more than one split."""
    row_tiles = triton.cdiv(x.shape[0], chosen.block_rows)
    output_tiles = triton.cdiv(weight.num_outputs, chosen.block_outputs)
    kernels.packed_linear_kernel[(row_tiles, output_tiles, splits)](
        x,
        weight.codes,
        weight.affine.words,
        weight.affine.supers,
        bias,
        target,
        x.shape[0],
        weight.num_outputs,
        weight.num_inputs,
        weight.padded_outputs,
        weight.num_pieces,
        steps_a_split,
        x.stride(0),
        target.stride(0),
        KIND=weight.kind,
        OFFSET=weight.affine.offset,
        SCALES=weight.affine.kind,
        GROUP=weight.group,
        PART=tuning.part_of(weight.kind, weight.group_size, weight.num_inputs),
        K_RUN=weight.k_run,
        SCALE_FIRST=chosen.scale_first,
        PARTIAL=splits > 1,
        BLOCK_ROWS=chosen.block_rows,
        BLOCK_OUTPUTS=chosen.block_outputs,
        BLOCK_INPUTS=tuning.block_inputs(chosen, weight.kind),
        STAGES=chosen.num_stages,
        num_warps=chosen.num_warps,
        num_stages=chosen.num_stages,
    )


def _workspace(workspace: torch.Tensor | None, num_floats: int, device: torch.device) -> torch.Tensor:
    if workspace is None:
        return torch.empty(num_floats, dtype=torch.float32, device=device)
    fits = workspace.dtype == torch.float32 and workspace.is_contiguous() and workspace.device == device
    if not fits or workspace.numel() < num_floats:
        raise ValueError(
            f"workspace is {workspace.dtype} {list(workspace.shape)} on {workspace.device}, expected contiguous "
            f"float32 of {num_floats} elements or more on {device}"
        )
    return workspace


def _check(x: torch.Tensor, weight: packed_weight.PackedWeight, bias: torch.Tensor | None) -> None:
    fits = x.dim() == 2 and x.shape[1] == weight.num_inputs and x.stride(1) == 1
    if not fits or x.dtype not in ACTIVATIONS or x.device != weight.device:
        raise ValueError(
            f"x is {x.dtype} {list(x.shape)} with strides {list(x.stride())} on {x.device}, expected bfloat16, float16 "
            f"or float32 [num_tokens, {weight.num_inputs}], rows contiguous, on {weight.device}"
        )
    if bias is None:
        return
    if tuple(bias.shape) != (weight.num_outputs,) or bias.dtype not in ACTIVATIONS or not bias.is_contiguous():
        raise ValueError(
            f"bias is {bias.dtype} {list(bias.shape)}, expected contiguous bfloat16, float16 or float32 "
            f"[{weight.num_outputs}]"
        )
    if bias.device != weight.device:
        raise ValueError(f"bias is on {bias.device}, expected {weight.device}")


def _check_out(out: torch.Tensor, x: torch.Tensor, weight: packed_weight.PackedWeight) -> None:
    fits = tuple(out.shape) == (x.shape[0], weight.num_outputs) and out.stride(-1) == 1 and out.device == x.device
    if not fits or out.dtype not in ACTIVATIONS:
        raise ValueError(
            f"out is {out.dtype} {list(out.shape)} on {out.device}, expected bfloat16, float16 or float32 "
            f"[{x.shape[0]}, {weight.num_outputs}], rows contiguous, on {x.device}"
        )
