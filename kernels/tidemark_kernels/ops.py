"""The ops a model is composed of, on CPU tensors. `reference` says what each computes.

Each op checks its arguments (`ValueError` names what does not fit), allocates its result unless `out` is given, and
runs the path that `dispatch.current()` chose. One token's result never depends on the other tokens of the step, nor on
their number, nor on the number of threads; this holds bit for bit on the compiled path.
"""

from __future__ import annotations

import ctypes

import torch

from tidemark_kernels import checks, dispatch, grouped, halves, reference
from tidemark_kernels import segments as segments_module
from tidemark_kernels.cpu import library

LayerSegments = segments_module.LayerSegments
GroupedWeight = grouped.GroupedWeight
PackedDense = grouped.PackedDense
PackedHalf = halves.PackedHalf
_Weight = grouped.GroupedWeight | grouped.PackedDense | halves.PackedHalf
_LINEAR_OPS = {
    grouped.GroupedWeight: "grouped_linear",
    grouped.PackedDense: "dense_linear_f32",
    halves.PackedHalf: "half_linear",
}

_CODES = segments_module.DTYPE_CODES
_INT32 = (torch.int32,)
_FLOAT32 = (torch.float32,)
_NAMES = {dtype: (dispatch.dtype_name(dtype),) for dtype in (*checks.FLOATS, torch.int8)}


# ------------------------------------------------------------------------------------------------ matrix products


def grouped_linear(
    x: torch.Tensor,
    weight: grouped.GroupedWeight,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x `[num_tokens, num_inputs]` float32 or bfloat16 -> `[num_tokens, num_outputs]`.

    Sums are float32. The result has x's dtype, or `out_dtype` (float32 for logits).
    """
    return _linear(x, weight, out, out_dtype)


def dense_linear_f32(
    x: torch.Tensor,
    weight: grouped.PackedDense,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """As `grouped_linear`, with a float32 matrix in panels."""
    return _linear(x, weight, out, out_dtype)


def half_linear(
    x: torch.Tensor,
    weight: halves.PackedHalf,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """As `grouped_linear`, with a matrix of 16 bits in panels; products and sums are float32."""
    return _linear(x, weight, out, out_dtype)


def half_rows(weight: halves.PackedHalf, ids: torch.Tensor) -> torch.Tensor:
    """As `grouped_rows`, from a table of 16 bits."""
    return weight.rows(ids)


def _linear(
    x: torch.Tensor,
    weight: _Weight,
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> torch.Tensor:
    num_tokens, wanted = _check_linear(x, weight, out, out_dtype)
    current = dispatch.current()
    chosen, path, began = current.library, dispatch.COMPILED, current.watch.now()
    if chosen is None or chosen.panel_width != weight.panel_width:
        path = dispatch.TORCH
        if isinstance(weight, grouped.GroupedWeight):
            result = reference.grouped_linear(x, weight)
        elif isinstance(weight, halves.PackedHalf):
            result = reference.half_linear(x, weight)
        else:
            result = reference.dense_linear_f32(x, weight)
    else:
        wide = x if x.dtype == torch.float32 else x.float()
        reuse = out is not None and out.dtype == torch.float32
        result = out if reuse and out is not None else wide.new_empty(num_tokens, weight.num_outputs)
        chosen.linear(weight.handle, wide.data_ptr(), result.data_ptr(), num_tokens, torch.get_num_threads())
    current.count(_LINEAR_OPS[type(weight)], path, _NAMES[torch.float32], began)
    if out is None:
        return result if result.dtype == wanted else result.to(wanted)
    return out if result is out else out.copy_(result)


def grouped_linear_int8(
    x: torch.Tensor, weight: grouped.GroupedWeight, out_dtype: torch.dtype | None = None
) -> torch.Tensor:
    """As `grouped_linear`, with x rounded to 8 bits: parts of `weight.part_size` inputs have a scale of their own.

    The weights stay exactly as they are stored; sums within a part are whole numbers, those over parts float32.
    A row with an infinity or a NaN becomes NaN.
    """
    if weight.is_float:
        raise ValueError("weight holds 8-bit floats, expected whole numbers: 8-bit activations need those")
    num_tokens, wanted = _check_linear(x, weight, None, out_dtype)
    current = dispatch.current()
    chosen, path, began = current.library, dispatch.COMPILED, current.watch.now()
    if chosen is None or chosen.panel_width != weight.panel_width:
        path = dispatch.TORCH
        result = reference.grouped_linear_int8(x, weight)
    else:
        wide = x if x.dtype == torch.float32 else x.float()
        result = wide.new_empty(num_tokens, weight.num_outputs)
        room = wide.new_empty(num_tokens * weight.int8_room_floats)
        chosen.linear_int8(
            weight.handle, wide.data_ptr(), room.data_ptr(), result.data_ptr(), num_tokens, torch.get_num_threads()
        )
    current.count("grouped_linear_int8", path, _NAMES[torch.int8], began)
    return result if result.dtype == wanted else result.to(wanted)


def _check_linear(
    x: torch.Tensor,
    weight: _Weight,
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> tuple[int, torch.dtype]:
    """Tokens, and the dtype of the result."""
    num_tokens, wanted = x.shape[0], out_dtype or x.dtype
    checks.tensor("x", x, checks.FLOATS, (num_tokens, weight.num_inputs))
    if out is not None:
        checks.tensor("out", out, (wanted,), (num_tokens, weight.num_outputs))
    return num_tokens, wanted


def grouped_rows(weight: grouped.GroupedWeight, ids: torch.Tensor) -> torch.Tensor:
    """Embedding: ids int64 `[num_tokens]` -> float32 `[num_tokens, num_inputs]`, exactly dequantized."""
    return weight.rows(ids)


# ---------------------------------------------------------------------------------------------------- elementwise


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """x `[num_tokens, width]` float32 or bfloat16, weight float32 `[width]` -> normalised x.

    With `residual` (like x): it becomes `residual + x` in place, and is what is normalised. `out` may be x itself.
    """
    checks.tensor("x", x, checks.FLOATS, (-1, -1))
    num_tokens, width = x.shape
    checks.tensor("weight", weight, _FLOAT32, (width,))
    if residual is not None:
        checks.tensor("residual", residual, (x.dtype,), (num_tokens, width))
    if out is None:
        out = x.new_empty(num_tokens, width)
    else:
        checks.tensor("out", out, (x.dtype,), (num_tokens, width))
    current = dispatch.current()
    chosen, began = current.library, current.watch.now()
    if chosen is None:
        out.copy_(reference.rms_norm(x, weight, eps, residual))
        current.count("rms_norm", dispatch.TORCH, _NAMES[x.dtype], began)
        return out
    chosen.rms_norm(
        _CODES[x.dtype],
        x.data_ptr(),
        weight.data_ptr(),
        None if residual is None else residual.data_ptr(),
        out.data_ptr(),
        num_tokens,
        width,
        eps,
        torch.get_num_threads(),
    )
    current.count("rms_norm", dispatch.COMPILED, _NAMES[x.dtype], began)
    return out


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """gate_up `[num_tokens, 2 * width]`, gate first -> silu(gate) * up `[num_tokens, width]`."""
    checks.tensor("gate_up", gate_up, checks.FLOATS, (-1, -1))
    num_tokens, both = gate_up.shape
    if both % 2:
        raise ValueError(f"gate_up has {both} columns, expected an even number: gate, then up")
    if out is None:
        out = gate_up.new_empty(num_tokens, both // 2)
    else:
        checks.tensor("out", out, (gate_up.dtype,), (num_tokens, both // 2))
    current = dispatch.current()
    chosen, began = current.library, current.watch.now()
    if chosen is None:
        out.copy_(reference.silu_mul(gate_up))
        current.count("silu_mul", dispatch.TORCH, _NAMES[out.dtype], began)
        return out
    chosen.silu_mul(
        _CODES[gate_up.dtype],
        gate_up.data_ptr(),
        out.data_ptr(),
        num_tokens,
        both // 2,
        torch.get_num_threads(),
    )
    current.count("silu_mul", dispatch.COMPILED, _NAMES[out.dtype], began)
    return out


# ------------------------------------------------------------------------------------------------ attention and KV


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
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotary embedding (half-split form) of q and k; k and v go into their pages in the segments' dtypes.

    qkv `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]` float32 or bfloat16; cos and sin float32
    `[num_tokens, rotary_dim / 2]`; q_norm and k_norm float32 `[head_dim]`, applied per head before rotation; slab uint8
    `[num_pages, page_bytes]`; token_page and token_row int32 `[num_tokens]`: where each token's k and v go.
    Returns q `[num_tokens, num_heads, head_dim]`.
    Raises `ValueError`, writing nothing, for a page or row that is not there.
    """
    num_tokens = qkv.shape[0]
    _check_rope(qkv, cos, sin, (num_heads, num_kv_heads, head_dim, rotary_dim), q_norm, k_norm, segments)
    checks.tensor("slab", slab, (torch.uint8,), (-1, -1))
    num_rows = segments.rows_in(slab.shape[1], head_dim)
    checks.tensor("token_page", token_page, _INT32, (num_tokens,))
    checks.tensor("token_row", token_row, _INT32, (num_tokens,))
    if out is None:
        out = qkv.new_empty(num_tokens, num_heads, head_dim)
    else:
        checks.tensor("out", out, (qkv.dtype,), (num_tokens, num_heads, head_dim))
    current = dispatch.current()
    chosen, began = current.library, current.watch.now()
    if chosen is None:
        checks.places(token_page, token_row, len(slab), num_rows)
        shape = (num_heads, num_kv_heads, head_dim, rotary_dim)
        out.copy_(
            reference.rope_and_write(qkv, cos, sin, *shape, q_norm, k_norm, eps, slab, segments, token_page, token_row)
        )
        current.count("rope_and_write", dispatch.TORCH, segments.dtype_names, began)
        return out
    c_shape = library.RopeShape(num_tokens, num_heads, num_kv_heads, head_dim, rotary_dim, eps, _CODES[qkv.dtype])
    c_slab = library.Slab(slab.data_ptr(), slab.shape[0], slab.shape[1], num_rows)
    wrong = chosen.rope_and_write(
        ctypes.addressof(c_shape),
        qkv.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        None if q_norm is None else q_norm.data_ptr(),
        None if k_norm is None else k_norm.data_ptr(),
        ctypes.addressof(c_slab),
        segments.handle,
        token_page.data_ptr(),
        token_row.data_ptr(),
        out.data_ptr(),
        torch.get_num_threads(),
    )
    if wrong:
        checks.places(token_page, token_row, len(slab), num_rows)
    current.count("rope_and_write", dispatch.COMPILED, segments.dtype_names, began)
    return out


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
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention over pages: `[num_tokens, num_heads, head_dim]`, like q.

    One chunk is the queries of one sequence in this step. page_table int32 `[num_chunks, max_pages]`; query_start int32
    `[num_chunks + 1]`: chunk c owns queries `query_start[c]` up to `query_start[c + 1]`; context_lens int32
    `[num_chunks]`: tokens including this chunk, so query i of chunk c sits at `context_lens[c] - count + i`.
    A query sees keys up to its own position and, with `window`, above `position - window`; pages wholly below that are
    not read. `window` and `softcap`: None or 0 for none.
    """
    checks.tensor("q", q, checks.FLOATS, (-1, -1, -1))
    num_tokens, num_heads, head_dim = q.shape
    checks.heads(num_heads, segments.num_kv_heads, head_dim)
    checks.slab(slab, segments, block_size, head_dim)
    num_chunks = context_lens.shape[0]
    checks.tensor("context_lens", context_lens, _INT32, (num_chunks,))
    checks.tensor("query_start", query_start, _INT32, (num_chunks + 1,))
    checks.tensor("page_table", page_table, _INT32, (num_chunks, -1))
    window, softcap = window or None, softcap or None
    checks.limits(window, softcap)
    if out is None:
        out = torch.empty_like(q)
    else:
        checks.tensor("out", out, (q.dtype,), (num_tokens, num_heads, head_dim))
    current = dispatch.current()
    chosen, began = current.library, current.watch.now()
    if chosen is None:
        checks.chunks(num_tokens, len(slab), page_table, query_start, context_lens, block_size, window)
        out.copy_(
            reference.paged_attention(
                q, slab, segments, page_table, query_start, context_lens, block_size, scale, window, softcap
            )
        )
        current.count("paged_attention", dispatch.TORCH, segments.dtype_names, began)
        return out
    c_attention = library.Attention(
        q.data_ptr(),
        out.data_ptr(),
        page_table.data_ptr(),
        query_start.data_ptr(),
        context_lens.data_ptr(),
        page_table.shape[1],
        num_chunks,
        num_heads,
        segments.num_kv_heads,
        head_dim,
        window or 0,
        scale,
        softcap or 0.0,
        _CODES[q.dtype],
        num_tokens,
    )
    c_slab = library.Slab(slab.data_ptr(), slab.shape[0], slab.shape[1], block_size)
    wrong = chosen.paged_attention(
        ctypes.addressof(c_attention), ctypes.addressof(c_slab), segments.handle, torch.get_num_threads()
    )
    if wrong < 0:
        checks.chunks(num_tokens, len(slab), page_table, query_start, context_lens, block_size, window)
    if wrong > 0:
        raise MemoryError(f"no memory for the parts of an attention over {num_tokens} tokens")
    current.count("paged_attention", dispatch.COMPILED, segments.dtype_names, began)
    return out


# ------------------------------------------------------------------------------------------------ longer checks


def _check_rope(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    shape: tuple[int, int, int, int],
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    segments: segments_module.LayerSegments,
) -> None:
    num_heads, num_kv_heads, head_dim, rotary_dim = shape
    checks.heads(num_heads, num_kv_heads, head_dim)
    checks.kv_heads(num_kv_heads, segments)
    checks.rotary(rotary_dim, head_dim)
    checks.tensor("qkv", qkv, checks.FLOATS, (qkv.shape[0], (num_heads + 2 * num_kv_heads) * head_dim))
    checks.tensor("cos", cos, _FLOAT32, (qkv.shape[0], rotary_dim // 2))
    checks.tensor("sin", sin, _FLOAT32, (qkv.shape[0], rotary_dim // 2))
    for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
        if norm is not None:
            checks.tensor(name, norm, _FLOAT32, (head_dim,))
