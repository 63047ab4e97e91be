"""Attention over pages against its reference, and independent of chunking, company and threads bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tidemark_kernels import dispatch, ops, reference
from tidemark_kernels import segments as segments_module

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
QUANTIZED = I8, E4M3, E5M2, I4 = torch.int8, torch.float8_e4m3fn, torch.float8_e5m2, segments_module.INT4


@dataclass
class Case:
    """Sequences of K and V in random pages of a slab that is NaN elsewhere."""

    slab: torch.Tensor
    layer: ops.LayerSegments
    tables: list[torch.Tensor]
    lengths: list[int]
    queries: list[torch.Tensor]
    block_size: int
    options: dict[str, float | int | None]

    def run(
        self, spans: Sequence[tuple[int, int, int]], reference_path: bool = False, dtype: torch.dtype = F32
    ) -> list[torch.Tensor]:
        """Attention of chunks (sequence, from, to), as a step computes them together."""
        table = torch.full((len(spans), max(map(len, self.tables)) + 2), -1, dtype=torch.int32)
        for row, (sequence, _, to) in enumerate(spans):
            used = -(-to // self.block_size)
            table[row, :used] = self.tables[sequence][:used]
        counts = [to - start for _, start, to in spans]
        starts = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)
        q = torch.cat([self.queries[sequence][start:to] for sequence, start, to in spans]).to(dtype)
        lengths = torch.tensor([to for _, _, to in spans], dtype=torch.int32)
        arguments = (q, self.slab, self.layer, table, starts, lengths, self.block_size, q.shape[2] ** -0.5)
        if reference_path:
            result = reference.paged_attention(*arguments, **self.options, compute=torch.float64)  # type: ignore[arg-type]
        else:
            result = ops.paged_attention(*arguments, **self.options)  # type: ignore[arg-type]
        return list(torch.split(result, counts))

    def whole(self) -> list[tuple[int, int, int]]:
        return [(sequence, 0, length) for sequence, length in enumerate(self.lengths)]


def made(
    lengths: list[int],
    heads: int = 3,
    kv_heads: int = 1,
    head_dim: int = 16,
    block_size: int = 16,
    dtypes: Sequence[torch.dtype] = (F32,),
    fixed: float = 0.0,
    **options: float | int | None,
) -> Case:
    kinds = [dtypes[index % len(dtypes)] for index in range(2 * kv_heads)]
    offsets, scales, at = [], [], 0
    for kind in kinds:
        offsets.append(at)
        code = segments_module.DTYPE_CODES[kind]
        at += -(-block_size * segments_module.row_bytes(code, head_dim) // 4) * 4
        in_page = kind in QUANTIZED and not (fixed and kind is not I4)
        scales.append(at if in_page else -1)
        at = -(-(at + block_size * segments_module.scale_bytes(code, head_dim)) // 64) * 64
    needed = [-(-length // block_size) for length in lengths]
    slab = torch.full((sum(needed) + 3, at), 255, dtype=torch.uint8)  # 0xff...: NaN in every dtype
    order = torch.randperm(len(slab)).to(torch.int32)
    tables = list(torch.split(order[: sum(needed)], needed))
    factors = [fixed if at == -1 and kind in QUANTIZED else 0.0 for at, kind in zip(scales, kinds, strict=True)]
    layer = ops.LayerSegments.from_offsets(
        *(offsets[::2], offsets[1::2], kinds[::2], kinds[1::2]),
        *(scales[::2], scales[1::2], factors[::2], factors[1::2]),
    )
    for index, kind in enumerate(kinds):
        rows, row_scales = reference.head_views(slab, layer, index // 2, "kv"[index % 2], block_size, head_dim)
        for table, length in zip(tables, lengths, strict=True):
            positions, values = torch.arange(length), torch.randn(length, head_dim)
            where = table[positions // block_size].long(), positions % block_size
            if row_scales is None:
                rows[where] = values.to(kind)
            elif factors[index]:
                rows[where] = reference.quantized_by(factors[index], values, kind)
            else:
                rows[where], row_scales[where] = reference.quantized(values * torch.rand(length, 1) * 3, kind)
    queries = [torch.randn(length, heads, head_dim) for length in lengths]
    return Case(slab, layer, tables, lengths, queries, block_size, options)


@pytest.mark.parametrize("block_size", [1, 5, 16, 32])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (3, 1), (4, 1), (8, 1), (6, 2)])
def test_paged_attention(kernels: dispatch.Choice, block_size: int, heads: int, kv_heads: int) -> None:
    case = made([1, 17, 160], heads, kv_heads, 16, block_size)
    for spans in (case.whole(), [(0, 0, 1), (1, 16, 17), (2, 159, 160)], [(2, 100, 150), (1, 3, 3), (0, 0, 1)]):
        for have, want in zip(case.run(spans), case.run(spans, reference_path=True), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("head_dim", [8, 16, 64, 72, 80, 128, 256])
@pytest.mark.parametrize(
    "dtypes",
    [(F32,), (F16,), (BF16,), (F32, BF16, F16, F32), (I8,), (E4M3,), (E5M2,), (I4,), (I8, BF16, E4M3, E5M2, I4)],
)
def test_head_sizes_and_dtypes(kernels: dispatch.Choice, head_dim: int, dtypes: Sequence[torch.dtype]) -> None:
    case = made([140, 3], 4, 2, head_dim, 16, dtypes)
    spans = [(0, 90, 140), (1, 2, 3)]
    for have, want in zip(case.run(spans), case.run(spans, reference_path=True), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("block_size", [5, 16])
@pytest.mark.parametrize("head_dim", [8, 72, 128])
@pytest.mark.parametrize("dtypes", [(I8,), (E4M3,), (E5M2,), (I8, I4, BF16, E4M3)])
def test_fixed_scales(kernels: dispatch.Choice, block_size: int, head_dim: int, dtypes: Sequence[torch.dtype]) -> None:
    case = made([140, 3], 4, 2, head_dim, block_size, dtypes, fixed=1 / 64)
    spans = [(0, 90, 140), (1, 2, 3)]
    for have, want in zip(case.run(spans), case.run(spans, reference_path=True), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fixed", [0.0, 1 / 64])
def test_the_torch_path_reads_every_dtype(without_compiler: dispatch.Choice, fixed: float) -> None:
    case = made([40, 3], 4, 2, 72, 5, (I8, I4, E4M3, BF16), fixed=fixed)
    spans = [(0, 30, 40), (1, 2, 3)]
    for have, want in zip(case.run(spans), case.run(spans, reference_path=True), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [1, 7, 130, 1000])
@pytest.mark.parametrize("softcap", [None, 2.0, 30.0])
def test_window_and_softcap(kernels: dispatch.Choice, window: int, softcap: float | None) -> None:
    case = made([300, 40], 3, 1, 16, 5, window=window, softcap=softcap)
    spans = [(0, 0, 300), (1, 39, 40)]
    for have, want in zip(case.run(spans), case.run(spans, reference_path=True), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


def test_pages_below_the_window_are_not_read(kernels: dispatch.Choice) -> None:
    case = made([300], 3, 1, 16, 16, window=40)
    wanted = case.run([(0, 290, 300)])
    case.tables[0][: (290 - 40) // 16] = -1
    assert torch.equal(case.run([(0, 290, 300)])[0], wanted[0])


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"window": 50}, {"softcap": 5.0}, {"dtypes": (BF16, F32)}, {"heads": 8, "head_dim": 80}),
        *({"dtypes": (I8,)}, {"dtypes": (I4,), "head_dim": 72}, {"dtypes": (I8, E4M3), "fixed": 0.02}),
    ],
)
def test_a_query_does_not_depend_on_chunks_company_or_threads(
    kernels: dispatch.Choice, options: dict[str, Any]
) -> None:
    case = made([330, 129, 1], **options)  # type: ignore[arg-type]
    whole = case.run(case.whole())
    for number in (1, 3):
        torch.set_num_threads(number)
        assert torch.equal(case.run([(0, 0, 330)])[0], whole[0]), "alone"
        parts = [(0, 0, 100), (0, 100, 101), (0, 101, 128), (0, 128, 300), (0, 300, 330)]
        assert torch.equal(torch.cat(case.run(parts)), whole[0]), "in chunks, one step"
        assert torch.equal(torch.cat([case.run([part])[0] for part in parts]), whole[0]), "in chunks, a step each"
        for position in (0, 127, 128, 129, 255, 329):
            one = case.run([(1, 128, 129), (0, position, position + 1), (2, 0, 1)])
            assert torch.equal(one[1], whole[0][position : position + 1]), f"decode at {position}"
            assert torch.equal(one[0], whole[1][128:])


def test_bfloat16_queries(kernels: dispatch.Choice) -> None:
    case = made([50], 4, 2, 32, 16, (BF16,))
    have, want = case.run([(0, 30, 50)], dtype=BF16)[0], case.run([(0, 30, 50)], reference_path=True, dtype=BF16)[0]
    assert have.dtype == BF16
    torch.testing.assert_close(have, want, rtol=8e-3, atol=1e-3)


def test_large_scores_do_not_overflow(kernels: dispatch.Choice) -> None:
    case = made([200], 1, 1, 16)
    case.queries[0] *= 1000
    torch.testing.assert_close(
        case.run(case.whole())[0], case.run(case.whole(), reference_path=True)[0], rtol=1e-4, atol=1e-4
    )


def test_nan_in_a_key_reaches_the_queries_that_see_it(kernels: dispatch.Choice) -> None:
    case = made([40], 1, 1, 16)
    case.queries[0][20] = float("nan")
    result = case.run(case.whole())[0]
    assert bool(result[20].isnan().all())
    assert not bool(result[[row for row in range(40) if row != 20]].isnan().any())


def test_nothing_to_do(kernels: dispatch.Choice) -> None:
    case = made([4])
    assert case.run([(0, 4, 4)])[0].shape == (0, 3, 16)


def test_impossible_steps_are_refused_before_a_page_is_read(kernels: dispatch.Choice) -> None:
    case = made([40], 2, 1, 16, 16)
    q, table = torch.randn(3, 2, 16), case.tables[0].view(1, 3)

    def run(
        starts: list[int], context: int, pages: torch.Tensor = table, block_size: int = 16, window: int = 0
    ) -> None:
        ops.paged_attention(
            q,
            case.slab,
            case.layer,
            pages,
            torch.tensor(starts, dtype=torch.int32),
            torch.tensor([context], dtype=torch.int32),
            block_size,
            0.25,
            window,
        )

    wrong_page = table.clone()
    wrong_page[0, 1] = len(case.slab)
    impossible: list[tuple[Callable[[], None], str]] = [
        (lambda: run([0, 2], 40), "query_start goes from 0 to 2, expected 0 to 3"),
        (lambda: run([0, 3], 2), "chunk 0 has 3 queries and context_lens 2"),
        (lambda: run([0, 3], 49), "chunk 0 needs 4 pages, expected at most 3"),
        (lambda: run([0, 3], 40, wrong_page), f"page_table.0. names page {len(case.slab)}"),
        (lambda: run([0, 3], 40, block_size=4096), "expected at most page_bytes"),
        (lambda: run([0, 3], 40, window=-1), "window is -1"),
        (lambda: run([0, 3], 40, table.long()), "page_table is int64"),
    ]
    for call, message in impossible:
        with pytest.raises(ValueError, match=message):
            call()
