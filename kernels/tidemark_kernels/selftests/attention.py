"""Rotary embedding, the write of K and V, and attention, as a step does them: through `steps.AttentionStep`.

Two steps on a slab of some pages, every byte of which is first poisoned: 255s are NaN in each float, and the scale NaN
where there are scales. The first step writes what is there before; the second one has, at once, a sequence of one
token, one that fills a page exactly, one decode whose token is the first of a new page, and a chunk that goes on behind
a prefix and crosses the border of a page. Afterwards every page that was nobody's must still be poisoned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels import ops, reference, steps
from tidemark_kernels import segments as segments_module
from tidemark_kernels.selftests import outcomes, target

_POISON = 255
_SPARE_PAGES = 3
"""Nobody's."""
_LARGE_CHANNEL = 30.0
"""One channel of K so much larger than the others, as in real models: what a scale must stand."""

_WRITE_TOLERANCES = {
    "float32": outcomes.FLOAT32_TOLERANCE,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "int8": 2e-1,
    "int4": 4.0,
    "fp8_e4m3": 1.5,
    "fp8_e5m2": 3.0,
}
"""Of K as it is kept: one code more or less of the largest element, some ten times the root mean square here. A last
bit that differs before rounding may change a code; V, which nothing turns, must be equal."""


@dataclass(frozen=True, slots=True)
class Call:
    """One layer of one step, for whatever computes it."""

    heads: steps.HeadShape
    tables: steps.StepTables
    """On the processor; K and V belong into their slab."""
    qkv: torch.Tensor
    segments: segments_module.LayerSegments
    norms: tuple[torch.Tensor | None, torch.Tensor | None]
    scale: float
    window: int | None


def on_processor(call: Call) -> torch.Tensor:
    """`[num_tokens, num_heads * head_dim]`."""
    step = steps.AttentionStep(call.heads, call.tables)
    return step.attend(call.qkv, call.segments, *call.norms, call.scale, call.window)


def steps_of_layers(
    given: target.Target,
    seeded: torch.Generator,
    compute: Callable[[Call], torch.Tensor] = on_processor,
    tolerance_of: Callable[[torch.dtype, str], float] = lambda dtype, _kv: outcomes.TOLERANCES[dtype],
) -> Iterator[outcomes.Outcome]:
    """Of `rope_and_write` and `paged_attention`. `tolerance_of`: activations' dtype and that of K or V -> attention's.

    K within one code of the reference, V equal to it as numbers, nothing else touched. Attention against the reference
    on the pages as they were written, by KV head, so that each dtype has an error of its own.
    """
    for layer in distinct(given.layers):
        case = _Case(given, layer, seeded, compute)
        for step in case.run():
            yield from _written(case, step)
            yield from _attended(case, step, tolerance_of)


def distinct(layers: Sequence[target.Layer]) -> list[target.Layer]:
    """One of each kind: dtypes by head, fixed scales or none, window."""
    kinds: dict[object, target.Layer] = {}
    for layer in layers:
        part = layer.segments
        dtypes = (*part.k_dtypes.tolist(), *part.v_dtypes.tolist())
        fixed = ((part.k_fixed > 0).tolist(), (part.v_fixed > 0).tolist())
        kinds.setdefault(str((dtypes, fixed, layer.window)), layer)
    return list(kinds.values())


@dataclass(frozen=True, slots=True)
class _Sequence:
    before: int
    """Tokens whose K and V are there already."""
    new: int


@dataclass(frozen=True, slots=True)
class _Step:
    """One step that has run."""

    tables: steps.StepTables
    """Its slab as the kernels left it."""
    qkv: torch.Tensor
    out: torch.Tensor
    """`[num_tokens, num_heads, head_dim]`, of the kernels."""
    queries: torch.Tensor
    """The reference's, float64 arithmetic."""
    expected: torch.Tensor
    """A slab that the reference has written instead."""


class _Case:
    """One layer's two steps."""

    def __init__(
        self,
        given: target.Target,
        layer: target.Layer,
        seeded: torch.Generator,
        compute: Callable[[Call], torch.Tensor],
    ) -> None:
        self.given, self.layer, self.heads = given, layer, given.heads
        self._compute = compute
        self._seeded = seeded
        size = given.block_size
        self._sequences = (
            _Sequence(0, 1),
            _Sequence(0, size),
            _Sequence(2 * size, 1),
            _Sequence(size - 1, 3),
        )
        needed = [-(-(each.before + each.new) // size) for each in self._sequences]
        num_pages = sum(needed) + _SPARE_PAGES
        order = torch.randperm(num_pages, generator=seeded).tolist()
        self._pages = [[order.pop() for _ in range(count)] for count in needed]
        self.spare = order
        self.slab = torch.full((num_pages, given.page_bytes), _POISON, dtype=torch.uint8)
        self._expected = self.slab.clone()
        self.norms: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
        if given.head_norms:
            q_norm, k_norm = (torch.rand(self.heads.head_dim, generator=seeded) + 0.5 for _ in range(2))
            self.norms = (q_norm, k_norm)
        self.scale = self.heads.head_dim**-0.5

    def run(self) -> Iterator[_Step]:
        """Each step after it has run, before the next one."""
        before = [_Sequence(0, each.before) for each in self._sequences]
        for sequences in (before, list(self._sequences)):
            yield self._step(sequences)

    def _step(self, sequences: list[_Sequence]) -> _Step:
        tables = self._tables(sequences)
        qkv = self._qkv(len(tables.token_page))
        expected, shape = self._expected, self.heads
        queries = reference.rope_and_write(
            qkv,
            tables.cos,
            tables.sin,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            shape.rotary_dim,
            *self.norms,
            shape.eps,
            expected,
            self.layer.segments,
            tables.token_page,
            tables.token_row,
        )
        out = self._compute(
            Call(shape, tables, qkv.clone(), self.layer.segments, self.norms, self.scale, self.layer.window)
        )
        return _Step(tables, qkv, out.view_as(queries), queries, expected)

    def _tables(self, sequences: list[_Sequence]) -> steps.StepTables:
        """Of those of `sequences` that have new tokens."""
        size = self.given.block_size
        chunks = [(each, pages) for each, pages in zip(sequences, self._pages, strict=True) if each.new]
        places = [
            (pages[at // size], at % size, at)
            for each, pages in chunks
            for at in range(each.before, each.before + each.new)
        ]
        token_page, token_row, positions = (torch.tensor(part, dtype=torch.int32) for part in zip(*places, strict=True))
        # What lies beyond a context names a page that is nobody's: reading it would show.
        table = torch.full((len(chunks), max(len(pages) for _, pages in chunks) + 1), self.spare[0], dtype=torch.int32)
        for row, (_, pages) in enumerate(chunks):
            table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        half = self.heads.rotary_dim // 2
        angles = positions[:, None].float() * 10_000.0 ** (-torch.arange(half) / max(1, half))
        counts = torch.tensor([0, *(each.new for each, _ in chunks)])
        return steps.StepTables(
            slab=self.slab,
            block_size=size,
            cos=angles.cos(),
            sin=angles.sin(),
            token_page=token_page,
            token_row=token_row,
            page_table=table,
            query_start=counts.cumsum(0).to(torch.int32),
            context_lens=torch.tensor([each.before + each.new for each, _ in chunks], dtype=torch.int32),
        )

    def _qkv(self, num_tokens: int) -> torch.Tensor:
        """Standard normal, one channel of each head of K much larger, and the K and V of the last token all zero."""
        shape = self.heads
        heads = torch.randn(
            num_tokens, shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim, generator=self._seeded
        )
        heads[:, shape.num_heads : -shape.num_kv_heads, shape.head_dim // 2] *= _LARGE_CHANNEL
        heads[-1, shape.num_heads :] = 0.0
        return heads.flatten(1).to(self.given.dtype)


def _written(case: _Case, step: _Step) -> Iterator[outcomes.Outcome]:
    part, tables, shape = case.layer.segments, step.tables, case.heads
    where = (tables.token_page.long(), tables.token_row.long())
    for head in range(shape.num_kv_heads):
        for kind in ("k", "v"):
            have, want = (
                _numbers(slab, part, head, kind, tables.block_size, shape.head_dim)[where]
                for slab in (tables.slab, step.expected)
            )
            name = _dtype_of(part, head, kind)
            if kind == "v":
                yield outcomes.Outcome("rope_and_write", name, outcomes.equal(have, want), 0.0, f"V of KV head {head}")
            else:
                error, tolerance = outcomes.difference(have, want), _WRITE_TOLERANCES[name]
                yield outcomes.Outcome("rope_and_write", name, error, tolerance, f"K of KV head {head}")
    spare_is_poisoned = all(torch.equal(tables.slab[page], step.expected[page]) for page in case.spare)
    error = 0.0 if spare_is_poisoned else math.inf
    for name in part.dtype_names:
        yield outcomes.Outcome("rope_and_write", name, error, 0.0, "bytes of pages that are nobody's")


def _attended(
    case: _Case, step: _Step, tolerance_of: Callable[[torch.dtype, str], float]
) -> Iterator[outcomes.Outcome]:
    part, tables = case.layer.segments, step.tables
    want = reference.paged_attention(
        step.queries.to(torch.float64),
        tables.slab,
        part,
        tables.page_table,
        tables.query_start,
        tables.context_lens,
        tables.block_size,
        case.scale,
        case.layer.window,
        compute=torch.float64,
    )
    group = case.heads.num_heads // case.heads.num_kv_heads
    for head in range(case.heads.num_kv_heads):
        of_head = slice(head * group, (head + 1) * group)
        error = outcomes.difference(step.out[:, of_head], want[:, of_head])
        for name in {_dtype_of(part, head, "k"), _dtype_of(part, head, "v")}:
            tolerance = tolerance_of(case.given.dtype, name)
            yield outcomes.Outcome("paged_attention", name, error, tolerance, f"queries of KV head {head}")


def _numbers(
    slab: torch.Tensor, part: segments_module.LayerSegments, head: int, kind: str, block_size: int, head_dim: int
) -> torch.Tensor:
    """What a head's segment holds: float64 `[num_pages, block_size, head_dim]`."""
    views = reference.head_views(slab, part, head, kind, block_size, head_dim)
    return reference.numbers(*views, torch.arange(len(slab)), torch.float64)


def _dtype_of(part: ops.LayerSegments, head: int, kind: str) -> str:
    codes = part.k_dtypes if kind == "k" else part.v_dtypes
    return segments_module.code_name(int(codes[head]))
