"""Rotary embedding, the write of K and V, and attention, for all layers of one step.

A step's tables are the same in every layer: they are checked and turned into C structures once, and a layer is one
call. What is computed is `ops.rope_and_write` and then `ops.paged_attention`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from tidemark_kernels import checks, dispatch, ops
from tidemark_kernels import segments as segments_module
from tidemark_kernels.cpu import library

_CODES = segments_module.DTYPE_CODES
_NO_MEMORY = 1
_FIRST_TOKEN = 2
"""`tm_attend` returns this plus the first token that has no place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """A model's attention. `rotary_dim`: elements of a head that turn; `eps`: of the norms of heads."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTables:
    """What `ops.rope_and_write` and `ops.paged_attention` say of the arguments of the same names."""

    slab: torch.Tensor
    block_size: int
    cos: torch.Tensor
    sin: torch.Tensor
    token_page: torch.Tensor
    token_row: torch.Tensor
    page_table: torch.Tensor
    query_start: torch.Tensor
    context_lens: torch.Tensor


class AttentionStep:
    """One step's attention. Not for two threads at a time: the layers share room for q."""

    def __init__(self, shape: HeadShape, tables: StepTables) -> None:
        """Raises `ValueError` naming what does not fit."""
        num_tokens, num_chunks = tables.token_page.shape[0], tables.context_lens.shape[0]
        half, int32 = shape.rotary_dim // 2, (torch.int32,)
        checks.heads(shape.num_heads, shape.num_kv_heads, shape.head_dim)
        checks.rotary(shape.rotary_dim, shape.head_dim)
        checks.tensor("slab", tables.slab, (torch.uint8,), (-1, -1))
        checks.tensor("cos", tables.cos, (torch.float32,), (num_tokens, half))
        checks.tensor("sin", tables.sin, (torch.float32,), (num_tokens, half))
        checks.tensor("token_page", tables.token_page, int32, (num_tokens,))
        checks.tensor("token_row", tables.token_row, int32, (num_tokens,))
        checks.tensor("context_lens", tables.context_lens, int32, (num_chunks,))
        checks.tensor("query_start", tables.query_start, int32, (num_chunks + 1,))
        checks.tensor("page_table", tables.page_table, int32, (num_chunks, -1))
        self._shape = shape
        self._tables = tables
        self._num_tokens = num_tokens
        self._width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
        self._choice = dispatch.current()
        self._library = self._choice.library
        self._structure: library.Step | None = None
        self._queries: torch.Tensor | None = None

    def attend(
        self,
        qkv: torch.Tensor,
        segments: segments_module.LayerSegments,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """One layer. qkv `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]`; returns `[num_tokens, num_heads *
        head_dim]`.

        K and V are in their pages afterwards. Raises `ValueError` as the two ops do.
        """
        if self._library is None:
            return self._by_ops(qkv, segments, q_norm, k_norm, scale, window, softcap)
        shape, tables = self._shape, self._tables
        checks.tensor("qkv", qkv, checks.FLOATS, (self._num_tokens, self._width))
        checks.layer(segments, shape.num_kv_heads, tables.slab.shape[1], tables.block_size, shape.head_dim)
        for name, norm in (("q_norm", q_norm), ("k_norm", k_norm)):
            if norm is not None:
                checks.tensor(name, norm, (torch.float32,), (shape.head_dim,))
        checks.limits(window, softcap)
        began = self._choice.watch.now()
        structure = self._structure_for(qkv)
        out = qkv.new_empty(self._num_tokens, shape.num_heads * shape.head_dim)
        attention = structure.attention
        attention.out, attention.scale = out.data_ptr(), scale
        attention.window, attention.softcap = window or 0, softcap or 0.0
        wrong = self._library.attend(
            ctypes.addressof(structure),
            qkv.data_ptr(),
            None if q_norm is None else q_norm.data_ptr(),
            None if k_norm is None else k_norm.data_ptr(),
            segments.handle,
            torch.get_num_threads(),
        )
        if wrong:
            self._refuse(wrong, window)
        self._choice.count("rope_and_write", dispatch.COMPILED, segments.dtype_names)
        self._choice.count("paged_attention", dispatch.COMPILED, segments.dtype_names, began)  # the time of both
        return out

    def _structure_for(self, qkv: torch.Tensor) -> library.Step:
        if self._structure is None or self._queries is None or self._queries.dtype is not qkv.dtype:
            shape, tables, code = self._shape, self._tables, _CODES[qkv.dtype]
            heads, kv_heads, head_dim = shape.num_heads, shape.num_kv_heads, shape.head_dim
            self._queries = qkv.new_empty(self._num_tokens, heads * head_dim)
            self._structure = library.Step(
                library.RopeShape(self._num_tokens, heads, kv_heads, head_dim, shape.rotary_dim, shape.eps, code),
                library.Attention(
                    q=self._queries.data_ptr(),
                    page_table=tables.page_table.data_ptr(),
                    query_start=tables.query_start.data_ptr(),
                    context_lens=tables.context_lens.data_ptr(),
                    max_pages=tables.page_table.shape[1],
                    chunks=len(tables.context_lens),
                    heads=heads,
                    kv_heads=kv_heads,
                    head_dim=head_dim,
                    dtype=code,
                    tokens=self._num_tokens,
                ),
                library.Slab(tables.slab.data_ptr(), *tables.slab.shape, tables.block_size),
                tables.cos.data_ptr(),
                tables.sin.data_ptr(),
                tables.token_page.data_ptr(),
                tables.token_row.data_ptr(),
            )
        return self._structure

    def _refuse(self, wrong: int, window: int | None) -> None:
        tables, num_pages = self._tables, len(self._tables.slab)
        if wrong == _NO_MEMORY:
            raise MemoryError(f"no memory for the parts of an attention over {self._num_tokens} tokens")
        if wrong >= _FIRST_TOKEN:
            checks.places(tables.token_page, tables.token_row, num_pages, tables.block_size)
        checks.chunks(
            self._num_tokens,
            num_pages,
            tables.page_table,
            tables.query_start,
            tables.context_lens,
            tables.block_size,
            window,
        )

    def _by_ops(
        self,
        qkv: torch.Tensor,
        segments: segments_module.LayerSegments,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        shape, tables = self._shape, self._tables
        queries = ops.rope_and_write(
            qkv,
            tables.cos,
            tables.sin,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.rotary_dim,
            q_norm,
            k_norm,
            shape.eps,
            tables.slab,
            segments,
            tables.token_page,
            tables.token_row,
        )
        places = (tables.page_table, tables.query_start, tables.context_lens, tables.block_size)
        mixed = ops.paged_attention(queries, tables.slab, segments, *places, scale, window, softcap)
        return mixed.view(self._num_tokens, -1)
