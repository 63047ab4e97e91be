"""Q, K and V of a step: norms of heads, rotary embedding, and the write into pages."""

from __future__ import annotations

import torch

from tidemark_kernels import checks
from tidemark_kernels.device import arguments, layout
from tidemark_kernels.jit import kv_write as jit
from tidemark_kernels.tuning import kv_write as tuning


def rope_and_write(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    slab: torch.Tensor,
    segments: layout.DeviceSegments,
    token_page: torch.Tensor,
    token_row: torch.Tensor,
    block_size: int,
    positions: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotary embedding (half-split form) of q and k; k and v go into their pages in the segments' dtypes.

    qkv `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]` bfloat16, float16 or float32; cos and sin float32
    `[num_tokens, rotary_dim / 2]`, or, with `positions` (int32 or int64 `[num_tokens]`), tables `[num_positions,
    rotary_dim / 2]` of which each token takes one row; q_norm and k_norm `[head_dim]`, applied per head before
    rotation; slab uint8 `[num_pages, page_bytes]`, pages and segments at multiples of 16 bytes; token_page and
    token_row int32 `[num_tokens]`: where each token's k and v go. Returns q `[num_tokens, num_heads, head_dim]`.

    A token whose page or row is not there writes nothing: -1 is for tokens that fill up a captured graph. A position
    that is not in the tables makes NaN of the token's q and k. No two tokens may have one place.
    """
    num_tokens = qkv.shape[0]
    _check(qkv, cos, sin, positions, (num_heads, num_kv_heads, head_dim, rotary_dim), q_norm, k_norm)
    _check_pages(qkv, slab, segments, token_page, token_row, (block_size, num_kv_heads, head_dim))
    if out is None:
        out = qkv.new_empty(num_tokens, num_heads, head_dim)
    else:
        arguments.tensor("out", out, (qkv.dtype,), (num_tokens, num_heads, head_dim), qkv.device)
    if not num_tokens:
        return out
    form = tuning.form(num_heads, num_kv_heads, head_dim, rotary_dim, segments.k_codes + segments.v_codes)
    jit.rope_and_write[(num_tokens * form.programs_a_token,)](
        *(qkv, cos, sin, positions, q_norm, k_norm, out, slab, segments.table, segments.fixed, token_page, token_row),
        *(slab.shape[0], cos.shape[0], slab.shape[1], eps),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        ROTARY_DIM=rotary_dim,
        BLOCK_SIZE=block_size,
        CODES=form.codes,
        HEADS=form.heads,
        HALF=form.half,
        REST=form.rest,
        num_warps=form.num_warps,
    )
    return out


def _check(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor | None,
    shape: tuple[int, int, int, int],
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
) -> None:
    num_heads, num_kv_heads, head_dim, rotary_dim = shape
    num_tokens, device = qkv.shape[0], qkv.device
    checks.heads(num_heads, num_kv_heads, head_dim)
    checks.rotary(rotary_dim, head_dim)
    arguments.tensor("qkv", qkv, arguments.FLOATS, (num_tokens, (num_heads + 2 * num_kv_heads) * head_dim))
    num_angles = num_tokens if positions is None else cos.shape[0]
    for name, angles in (("cos", cos), ("sin", sin)):
        arguments.tensor(name, angles, (torch.float32,), (num_angles, rotary_dim // 2), device)
    if positions is not None:
        arguments.tensor("positions", positions, arguments.INTEGERS, (num_tokens,), device)
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            arguments.tensor(name, norm, arguments.FLOATS, (head_dim,), device)


def _check_pages(
    qkv: torch.Tensor,
    slab: torch.Tensor,
    segments: layout.DeviceSegments,
    token_page: torch.Tensor,
    token_row: torch.Tensor,
    shape: tuple[int, int, int],
) -> None:
    block_size, num_kv_heads, head_dim = shape
    arguments.pages(slab, qkv.device)
    arguments.tensor("segments.table", segments.table, (torch.int64,), (2, num_kv_heads, 3), qkv.device)
    arguments.tensor("token_page", token_page, (torch.int32,), (qkv.shape[0],), qkv.device)
    arguments.tensor("token_row", token_row, (torch.int32,), (qkv.shape[0],), qkv.device)
    checks.layer(segments.source, num_kv_heads, slab.shape[1], block_size, head_dim)
    arguments.segments_in_pages(segments.source)
