"""What each op of `ops` computes, in plain torch: slow and obvious. Same names, same arguments.

`compute` is the type of the arithmetic: float32 where this is the path that runs (no compiler), float64 in tests.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from tidemark_kernels import grouped
from tidemark_kernels import segments as segments_module


def grouped_linear(
    x: torch.Tensor, weight: grouped.GroupedWeight, compute: torch.dtype = torch.float32
) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` -> `[num_tokens, num_outputs]` of `compute`."""
    return functional.linear(x.to(compute), weight.dequantize().to(compute))


def grouped_linear_int8(
    x: torch.Tensor, weight: grouped.GroupedWeight, compute: torch.dtype = torch.float32
) -> torch.Tensor:
    """As `grouped_linear`, with x rounded to 8 bits first."""
    return functional.linear(rounded_to_8_bits(x, weight.part_size).to(compute), weight.dequantize().to(compute))


def rounded_to_8_bits(x: torch.Tensor, part_size: int) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` -> float32: every part of a row is -127..127 times a scale, its largest / 127.

    A part without a number above 2^-100 becomes zeros, one with an infinity or a NaN becomes NaN.
    """
    parts = x.float().reshape(len(x), x.shape[1] // part_size, part_size)
    largest = parts.abs().amax(dim=2, keepdim=True)
    codes = (parts * (127.0 / largest)).round()
    rounded = torch.where(largest < 2.0**-100, torch.zeros_like(parts), codes * (largest / 127.0))
    return torch.where(largest.isfinite(), rounded, torch.full_like(parts, torch.nan)).flatten(1)


def grouped_rows(weight: grouped.GroupedWeight, ids: torch.Tensor) -> torch.Tensor:
    """ids `[num_tokens]` -> float32 `[num_tokens, num_inputs]`."""
    return weight.dequantize(ids)


def dense_linear_f32(
    x: torch.Tensor, weight: grouped.PackedDense, compute: torch.dtype = torch.float32
) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` -> `[num_tokens, num_outputs]` of `compute`."""
    return functional.linear(x.to(compute), weight.dense().to(compute))


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    compute: torch.dtype = torch.float32,
) -> torch.Tensor:
    """x `[num_tokens, width]`; with `residual`, that becomes `residual + x` in place and is what is normalised."""
    if residual is not None:
        residual.copy_(residual.to(compute) + x.to(compute))
        x = residual
    wide = x.to(compute)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(compute)).to(x.dtype)


def silu_mul(gate_up: torch.Tensor, compute: torch.dtype = torch.float32) -> torch.Tensor:
    """gate_up `[num_tokens, 2 * width]` -> silu(gate) * up `[num_tokens, width]`."""
    gate, up = gate_up.to(compute).chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


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
    segments: segments_module.LayerSegments,
    token_page: torch.Tensor,
    token_row: torch.Tensor,
    compute: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Norms and turns q and k, writes k and v into pages; returns q `[num_tokens, num_heads, head_dim]`."""
    heads = qkv.to(compute).view(len(qkv), num_heads + 2 * num_kv_heads, head_dim)
    q, k, v = torch.split(heads, [num_heads, num_kv_heads, num_kv_heads], dim=1)
    q = q if q_norm is None else rms_norm(q, q_norm, eps, compute=compute)
    k = k if k_norm is None else rms_norm(k, k_norm, eps, compute=compute)
    q, k = (_rotate(part, cos.to(compute), sin.to(compute), rotary_dim) for part in (q, k))
    num_rows = segments.rows_in(slab.shape[1], head_dim)
    where = (token_page.long(), token_row.long())
    for head in range(num_kv_heads):
        for part, kind in ((k, "k"), (v, "v")):
            rows, scales = head_views(slab, segments, head, kind, num_rows, head_dim)
            if scales is None:
                rows[where] = part[:, head].to(rows.dtype)
            else:
                rows[where], scales[where] = quantized(part[:, head].float(), rows.dtype)
    return q.to(qkv.dtype).contiguous()


def paged_attention(
    q: torch.Tensor,
    slab: torch.Tensor,
    segments: segments_module.LayerSegments,
    page_table: torch.Tensor,
    query_start: torch.Tensor,
    context_lens: torch.Tensor,
    block_size: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    compute: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Causal attention of each chunk's queries over the keys of its pages: `[num_tokens, num_heads, head_dim]`."""
    out = torch.empty_like(q)
    group, head_dim = q.shape[1] // segments.num_kv_heads, q.shape[2]
    for chunk, context in enumerate(context_lens.tolist()):
        start, stop = query_start[chunk : chunk + 2].tolist()
        pages = page_table[chunk, : -(-context // block_size)].long()
        queries = torch.arange(context - (stop - start), context)[:, None]
        keys = torch.arange(context)[None, :]
        visible = (keys <= queries) if window is None else (keys <= queries) & (keys > queries - window)
        first = int(visible.any(dim=0).int().argmax()) if stop > start else 0
        for head in range(q.shape[1]):
            kv = head // group
            k, v = (
                numbers(
                    *head_views(slab, segments, kv, kind, block_size, head_dim), pages[first // block_size :], compute
                ).reshape(-1, head_dim)[first % block_size :][: context - first]
                for kind in ("k", "v")
            )
            scores = q[start:stop, head].to(compute) @ k.T * scale
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            scores = scores.masked_fill(~visible[:, first:], float("-inf"))
            out[start:stop, head] = (torch.softmax(scores, dim=-1) @ v).to(q.dtype)
    return out


def head_views(
    slab: torch.Tensor, segments: segments_module.LayerSegments, head: int, kind: str, block_size: int, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Elements `[num_pages, block_size, head_dim]` and scales `[num_pages, block_size]` of a head's K ("k") or V."""
    offsets, dtypes, scales = (
        (segments.k_offsets, segments.k_dtypes, segments.k_scales)
        if kind == "k"
        else (segments.v_offsets, segments.v_dtypes, segments.v_scales)
    )
    rows = segment_view(slab, int(offsets[head]), int(dtypes[head]), block_size, head_dim)
    at = int(scales[head])
    return rows, None if at < 0 else slab[:, at : at + 4 * block_size].view(torch.float32)


def numbers(rows: torch.Tensor, scales: torch.Tensor | None, pages: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    """What the elements of `pages` stand for: `[len(pages), block_size, head_dim]` of `compute`."""
    found = rows[pages].to(compute)
    return found if scales is None else found * scales[pages].to(compute)[..., None]


def quantized(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x float32 `[num_rows, width]` -> elements of `dtype` and float32 scales `[num_rows]`.

    The largest magnitude of a row becomes the largest number of the dtype. A row without a number above 2^-100 becomes
    zeros with scale 0; one with an infinity or a NaN becomes zeros with the scale NaN.
    """
    top = segments_module.LARGEST[segments_module.DTYPE_CODES[dtype]]
    largest = x.abs().amax(dim=1)
    usable = largest.isfinite() & (largest >= 2.0**-100)
    inverse = torch.where(usable, top / largest, torch.zeros_like(largest))
    scaled = torch.where(usable[:, None], x * inverse[:, None], torch.zeros_like(x))
    scales = torch.where(usable, largest / top, torch.where(largest.isfinite(), 0.0, torch.nan))
    return (scaled.round() if dtype is torch.int8 else scaled).to(dtype), scales


def segment_view(slab: torch.Tensor, offset: int, code: int, block_size: int, head_dim: int) -> torch.Tensor:
    """One segment of all pages as a view `[num_pages, block_size, head_dim]` of its dtype."""
    dtype = segments_module.CODE_DTYPES[code]
    part = slab[:, offset : offset + block_size * head_dim * dtype.itemsize]
    return part.view(dtype).view(len(slab), block_size, head_dim)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rotary_dim: int) -> torch.Tensor:
    """The half-split (NeoX) form on the first `rotary_dim` elements of `[num_tokens, heads, head_dim]`."""
    half = rotary_dim // 2
    first, second, rest = heads[..., :half], heads[..., half:rotary_dim], heads[..., rotary_dim:]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
