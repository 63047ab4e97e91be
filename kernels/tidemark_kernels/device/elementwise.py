"""Norms, the gated activation, and rows of an embedding."""

from __future__ import annotations

import torch

from tidemark_kernels.device import arguments
from tidemark_kernels.jit import elementwise as jit
from tidemark_kernels.tuning import elementwise as tuning


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    rows: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x `[num_tokens, width]` bfloat16, float16 or float32, weight `[width]` of any of them -> normalised x.

    With `residual` (like x): it becomes `residual + x` in place, and is what is normalised. `out` may be x itself.
    With `rows` (int32 or int64 `[num_rows]`) only those rows are normalised, the result is `[num_rows, width]`, and the
    residual stays as it is; `out` must then be other memory. A row that is not there (-1) becomes zeros.
    """
    arguments.tensor("x", x, arguments.FLOATS, (-1, -1))
    num_tokens, width = x.shape
    arguments.tensor("weight", weight, arguments.FLOATS, (width,), x.device)
    if residual is not None:
        arguments.tensor("residual", residual, (x.dtype,), (num_tokens, width), x.device)
    if rows is not None:
        arguments.tensor("rows", rows, arguments.INTEGERS, (-1,), x.device)
    num_rows = num_tokens if rows is None else rows.shape[0]
    if out is None:
        out = x.new_empty(num_rows, width)
    else:
        arguments.tensor("out", out, (x.dtype,), (num_rows, width), x.device)
    if not num_rows or not width:
        return out
    form = tuning.norm(width)
    kernel = jit.norm_rows if form.is_whole else jit.norm_wide_rows
    kernel[(num_rows,)](
        *(x, weight, residual, rows, out), *(num_tokens, width, eps), BLOCK=form.block, num_warps=form.num_warps
    )
    return out


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """gate_up `[num_tokens, 2 * width]` bfloat16, float16 or float32, gate first -> silu(gate) * up `[num_tokens,
    width]`."""
    arguments.tensor("gate_up", gate_up, arguments.FLOATS, (-1, -1))
    num_tokens, both = gate_up.shape
    if both % 2:
        raise ValueError(f"gate_up has {both} columns, expected an even number: gate, then up")
    width = both // 2
    if out is None:
        out = gate_up.new_empty(num_tokens, width)
    else:
        arguments.tensor("out", out, (gate_up.dtype,), (num_tokens, width), gate_up.device)
    form = tuning.columns(width)
    num_programs = num_tokens * -(-width // form.block)
    if num_programs:
        jit.silu_mul[(num_programs,)](gate_up, out, width, BLOCK=form.block, num_warps=form.num_warps)
    return out


def embedding_rows(table: torch.Tensor, ids: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Rows `ids` (int32 or int64 `[num_tokens]`) of table `[num_rows, width]` bfloat16, float16 or float32 ->
    `[num_tokens, width]` of its dtype. The id -1 is a row of zeros; any other that is not there becomes NaN."""
    arguments.tensor("table", table, arguments.FLOATS, (-1, -1))
    arguments.tensor("ids", ids, arguments.INTEGERS, (-1,), table.device)
    num_rows, width = table.shape
    if out is None:
        out = table.new_empty(ids.shape[0], width)
    else:
        arguments.tensor("out", out, (table.dtype,), (ids.shape[0], width), table.device)
    form = tuning.columns(width)
    num_programs = ids.shape[0] * -(-width // form.block)
    if num_programs:
        jit.embedding_rows[(num_programs,)](
            table, ids, out, num_rows, width, BLOCK=form.block, num_warps=form.num_warps
        )
    return out
