"""What each op of `ops` computes, in plain torch: slow and obvious. Same names, same arguments.

`compute` is the type of the arithmetic: float32 where this is the path that runs (no compiler), float64 in tests.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from tidemark_kernels import grouped, halves
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
    # Not `127.0 / largest`: torch takes the reciprocal first and rounds twice.
    codes = (parts * (torch.full_like(largest, 127.0) / largest)).round()
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


def half_linear(x: torch.Tensor, weight: halves.PackedHalf, compute: torch.dtype = torch.float32) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` -> `[num_tokens, num_outputs]` of `compute`."""
    return functional.linear(x.to(compute), weight.dense().to(compute))


def half_rows(weight: halves.PackedHalf, ids: torch.Tensor) -> torch.Tensor:
    """ids `[num_tokens]` -> float32 `[num_tokens, num_inputs]`."""
    return weight.dense(ids).float()


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    compute: torch.dtype = torch.float32,
    rows: torch.Tensor | None = None,
) -> torch.Tensor:
    """x `[num_tokens, width]`; with `residual`, that becomes `residual + x` in place and is what is normalised.

    With `rows`: only those, and the residual stays as it is; a row that is not there (-1) becomes zeros.
    """
    if rows is not None:
        x = embedding_rows(x, torch.where(rows < len(x), rows, -1))
        residual = None if residual is None else embedding_rows(residual, torch.where(rows < len(residual), rows, -1))
    if residual is not None:
        residual.copy_(residual.to(compute) + x.to(compute))
        x = residual
    wide = x.to(compute)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.to(compute)).to(x.dtype)


def embedding_rows(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """table `[num_rows, width]`, ids `[num_tokens]` -> its rows; of the id -1 zeros, of any other not there NaN."""
    is_there = (ids >= 0) & (ids < len(table))
    found = table[torch.where(is_there, ids, 0).long()]
    missing = torch.where(ids == -1, 0.0, torch.nan).to(table.dtype)
    return torch.where(is_there[:, None], found, missing[:, None])


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
            fixed = float((segments.k_fixed if kind == "k" else segments.v_fixed)[head])
            if scales is None:
                rows[where] = part[:, head].to(rows.dtype)
            elif fixed:
                rows[where] = quantized_by(fixed, part[:, head].float(), rows.dtype)
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
        queries = torch.arange(context - (stop - start), context, device=q.device)[:, None]
        keys = torch.arange(context, device=q.device)[None, :]
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
    """Elements `[num_pages, block_size, head_dim]` and scales `[num_pages, block_size]` of a head's K ("k") or V.

    Of 4 bits: bytes of two elements `[num_pages, block_size, head_dim / 2]` and bfloat16
    `[num_pages, block_size, groups, 2]`. Both are views, except of a fixed scale: that is repeated for every row.
    """
    offsets, dtypes, scales, fixed = (
        (segments.k_offsets, segments.k_dtypes, segments.k_scales, segments.k_fixed)
        if kind == "k"
        else (segments.v_offsets, segments.v_dtypes, segments.v_scales, segments.v_fixed)
    )
    rows = segment_view(slab, int(offsets[head]), int(dtypes[head]), block_size, head_dim)
    at, code = int(scales[head]), int(dtypes[head])
    if fixed[head]:
        is_broken = rows.view(torch.uint8)[:, :, 0] == broken_code(rows.dtype)
        return rows, torch.where(is_broken, torch.nan, fixed[head])
    if at < 0:
        return rows, None
    found = slab[:, at : at + segments_module.scale_bytes(code, head_dim) * block_size]
    if code == segments_module.INT4_CODE:
        return rows, found.view(torch.bfloat16).view(len(slab), block_size, -1, 2)
    return rows, found.view(torch.float32)


def numbers(rows: torch.Tensor, scales: torch.Tensor | None, pages: torch.Tensor, compute: torch.dtype) -> torch.Tensor:
    """What the elements of `pages` stand for: `[len(pages), block_size, head_dim]` of `compute`."""
    if rows.dtype == torch.uint8 and scales is not None:
        codes = torch.stack((rows[pages] & 15, rows[pages] >> 4), dim=-1).flatten(-2).to(compute)
        spread = scales[pages].to(compute).repeat_interleave(segments_module.INT4_GROUP, dim=2)[:, :, : codes.shape[2]]
        return codes * spread[..., 0] + spread[..., 1]
    found = rows[pages].to(compute)
    return found if scales is None else found * scales[pages].to(compute)[..., None]


def quantized(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x float32 `[num_rows, width]` -> elements of `dtype` and float32 scales `[num_rows]`.

    The largest magnitude of a row becomes the largest number of the dtype. A row without a number above 2^-100 becomes
    zeros with scale 0; one with an infinity or a NaN becomes zeros with the scale NaN. 4 bits (`segments.INT4`, or
    uint8, which holds two of them): as `quantized_to_4_bits`.
    """
    if dtype in (segments_module.INT4, torch.uint8):
        return quantized_to_4_bits(x)
    top = segments_module.LARGEST[segments_module.DTYPE_CODES[dtype]]
    largest = x.abs().amax(dim=1)
    usable = largest.isfinite() & (largest >= 2.0**-100)
    # Not `top / largest`: torch takes the reciprocal first and rounds twice.
    inverse = torch.where(usable, torch.full_like(largest, top) / largest, torch.zeros_like(largest))
    scaled = torch.where(usable[:, None], x * inverse[:, None], torch.zeros_like(x))
    scales = torch.where(usable, largest / top, torch.where(largest.isfinite(), 0.0, torch.nan))
    return (scaled.round() if dtype is torch.int8 else scaled).to(dtype), scales


def quantized_by(fixed: float, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x float32 `[num_rows, width]` -> elements of `dtype`, all with the one scale `fixed`; what is beyond is clipped.

    A row with an infinity or a NaN becomes zeros, of which the first is `broken_code`.
    """
    top = segments_module.LARGEST[segments_module.DTYPE_CODES[dtype]]
    usable = x.isfinite().all(dim=1, keepdim=True)
    scaled = (torch.where(usable, x, 0.0) * (1.0 / torch.tensor(fixed, device=x.device))).clamp(-top, top)
    codes = (scaled.round() if dtype is torch.int8 else scaled).to(dtype)
    codes.view(torch.uint8)[~usable[:, 0], 0] = broken_code(dtype)
    return codes


def broken_code(dtype: torch.dtype) -> int:
    """The first element of a row that held an infinity or a NaN, where the scale is fixed: no number becomes it."""
    return 0x80 if dtype is torch.int8 else 0xFF


def quantized_to_4_bits(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x float32 `[num_rows, width]` -> bytes of two elements, the first in the low half, uint8 `[num_rows, width / 2]`,
    and of each group the scale and the smallest number, bfloat16 `[num_rows, groups, 2]`.

    A number is its code, 0 to 15, times the scale, plus the smallest number. A group whose numbers are one, or nearly,
    has the scale 0; one with an infinity or a NaN, or that spans more than float32 can say, the scale NaN.
    """
    groups = [_group_of_4_bits(group) for group in torch.split(x, segments_module.INT4_GROUP, dim=1)]
    codes = torch.cat([codes for codes, _ in groups], dim=1)
    return codes[:, ::2] | codes[:, 1::2] << 4, torch.stack([pair for _, pair in groups], dim=1)


def _group_of_4_bits(group: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    top = float(segments_module.INT4_LARGEST)
    finite = group.isfinite().all(dim=1, keepdim=True)
    numbers = torch.where(finite, group, 0.0)
    least = numbers.amin(1, keepdim=True).bfloat16()
    spread = numbers.amax(1, keepdim=True) - least.float()
    usable = finite & spread.isfinite()
    scale = torch.where(usable & (spread >= 2.0**-100), spread / top, 0.0).bfloat16()
    inverse = torch.where(scale > 0, 1.0 / scale.float(), 0.0)
    codes = torch.where(scale > 0, ((numbers - least.float()) * inverse).clamp(0.0, top).round(), 0.0)
    pair = torch.cat((torch.where(usable, scale, torch.nan), torch.where(usable, least, 0.0)), dim=1)
    return codes.to(torch.uint8), pair


def segment_view(slab: torch.Tensor, offset: int, code: int, block_size: int, head_dim: int) -> torch.Tensor:
    """One segment of all pages as a view `[num_pages, block_size, head_dim]` of its dtype; 4 bits as bytes of two."""
    part = slab[:, offset : offset + block_size * segments_module.row_bytes(code, head_dim)]
    dtype = torch.uint8 if code == segments_module.INT4_CODE else segments_module.CODE_DTYPES[code]
    return part.view(dtype).view(len(slab), block_size, -1)


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rotary_dim: int) -> torch.Tensor:
    """The half-split (NeoX) form on the first `rotary_dim` elements of `[num_tokens, heads, head_dim]`."""
    half = rotary_dim // 2
    first, second, rest = heads[..., :half], heads[..., half:rotary_dim], heads[..., rotary_dim:]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
