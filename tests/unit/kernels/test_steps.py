"""A step's attention in one call a layer gives what the two ops give, bit for bit, and refuses what they refuse."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tidemark_kernels import dispatch, ops, steps

SHAPE = steps.HeadShape(num_heads=6, num_kv_heads=2, head_dim=32, rotary_dim=16, eps=1e-5)
BLOCK_SIZE = 16
COUNTS, CONTEXTS = (1, 40, 3), (70, 40, 19)
NUM_TOKENS = sum(COUNTS)


def segments(dtype: torch.dtype = torch.float32) -> ops.LayerSegments:
    size = BLOCK_SIZE * SHAPE.head_dim * dtype.itemsize
    return ops.LayerSegments.from_offsets([0, 2 * size], [size, 3 * size], dtype, dtype)


def tables() -> steps.StepTables:
    """Three sequences; each one's new tokens are its last."""
    pages_of = [-(-context // BLOCK_SIZE) for context in CONTEXTS]
    table = torch.zeros(len(CONTEXTS), max(pages_of), dtype=torch.int32)
    order, start = torch.randperm(sum(pages_of)).int(), 0
    places: list[tuple[int, int]] = []
    for chunk, (count, context, pages) in enumerate(zip(COUNTS, CONTEXTS, pages_of, strict=True)):
        table[chunk, :pages] = order[start : start + pages]
        start += pages
        places += [(int(table[chunk, k // BLOCK_SIZE]), k % BLOCK_SIZE) for k in range(context - count, context)]
    pages, rows = (torch.tensor(part, dtype=torch.int32) for part in zip(*places, strict=True))
    return steps.StepTables(
        slab=torch.randn(sum(pages_of), 4 * BLOCK_SIZE * SHAPE.head_dim).view(torch.uint8),
        block_size=BLOCK_SIZE,
        cos=torch.randn(NUM_TOKENS, SHAPE.rotary_dim // 2),
        sin=torch.randn(NUM_TOKENS, SHAPE.rotary_dim // 2),
        token_page=pages,
        token_row=rows,
        page_table=table,
        query_start=torch.tensor([0, 1, 41, 44], dtype=torch.int32),
        context_lens=torch.tensor(CONTEXTS, dtype=torch.int32),
    )


def by_ops(
    given: steps.StepTables, qkv: torch.Tensor, norm: torch.Tensor | None, window: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the slab afterwards."""
    slab = given.slab.clone()
    queries = ops.rope_and_write(
        qkv,
        given.cos,
        given.sin,
        SHAPE.num_heads,
        SHAPE.num_kv_heads,
        SHAPE.head_dim,
        SHAPE.rotary_dim,
        norm,
        norm,
        SHAPE.eps,
        slab,
        segments(),
        given.token_page,
        given.token_row,
    )
    chunks = (given.page_table, given.query_start, given.context_lens, BLOCK_SIZE)
    return ops.paged_attention(queries, slab, segments(), *chunks, 0.2, window).view(NUM_TOKENS, -1), slab


def random_qkv(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(NUM_TOKENS, (SHAPE.num_heads + 2 * SHAPE.num_kv_heads) * SHAPE.head_dim).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_give_what_the_ops_give(kernels: dispatch.Choice, dtype: torch.dtype) -> None:
    """Several layers on one step, with settings of their own: nothing of one may stay for the next."""
    given = tables()
    step = steps.AttentionStep(SHAPE, given)
    for norm, window in ((None, None), (torch.randn(SHAPE.head_dim), 20), (None, None)):
        qkv = random_qkv(dtype)
        wanted, slab = by_ops(given, qkv, norm, window)
        assert torch.equal(step.attend(qkv, segments(), norm, norm, 0.2, window), wanted)
        assert torch.equal(given.slab, slab)


def test_the_torch_path(without_compiler: dispatch.Choice) -> None:
    given, qkv = tables(), random_qkv()
    wanted, slab = by_ops(given, qkv, None, None)
    assert torch.equal(steps.AttentionStep(SHAPE, given).attend(qkv, segments(), None, None, 0.2), wanted)
    assert torch.equal(given.slab, slab)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cos", torch.zeros(NUM_TOKENS, 7), r"cos is float32 \[44, 7\]"),
        ("token_row", torch.zeros(NUM_TOKENS, dtype=torch.int64), "token_row is int64"),
        ("query_start", torch.zeros(2, dtype=torch.int32), r"query_start is int32 \[2\]"),
        ("page_table", torch.zeros(2, 5, dtype=torch.int32), r"page_table is int32 \[2, 5\]"),
        ("slab", torch.zeros(3), "slab is float32"),
    ],
)
def test_tables_that_do_not_fit_are_named(kernels: dispatch.Choice, name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        steps.AttentionStep(SHAPE, dataclasses.replace(tables(), **{name: value}))


def test_layers_that_do_not_fit_are_named(kernels: dispatch.Choice) -> None:
    step, qkv, norm = steps.AttentionStep(SHAPE, tables()), random_qkv(), torch.ones(SHAPE.head_dim)
    one_head = ops.LayerSegments.from_offsets([0], [2048], torch.float32, torch.float32)
    too_far = ops.LayerSegments.from_offsets([0, 4096], [2048, 6148], torch.float32, torch.float32)
    for arguments, message in (
        ((qkv[:, 1:].contiguous(), segments(), None, None, 0.2), "qkv is float32"),
        ((qkv, one_head, None, None, 0.2), "num_kv_heads is 2, expected 1 as in segments"),
        ((qkv, too_far, None, None, 0.2), "end at byte 8196, expected at most page_bytes 8192"),
        ((qkv, segments(), norm[:-1], norm, 0.2), "q_norm is float32"),
        ((qkv, segments(), norm, norm.double(), 0.2), "k_norm is float64"),
        ((qkv, segments(), None, None, 0.2, -1), "window is -1"),
        ((qkv, segments(), None, None, 0.2, None, float("nan")), "softcap nan"),
    ):
        with pytest.raises(ValueError, match=message):
            step.attend(*arguments)


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("token_page", 3, 12, r"token_page\[3\] is 12, expected 0 to 9"),
        ("token_row", 2, 16, r"token_row\[2\] is 16, expected 0 to 15"),
        ("page_table", (0, 1), 10, r"page_table\[0\] names page 10, expected 0 to 9"),
        ("context_lens", 1, 39, "chunk 1 has 40 queries and context_lens 39"),
    ],
)
def test_places_that_do_not_exist_are_named(
    kernels: dispatch.Choice, name: str, index: object, value: int, message: str
) -> None:
    given = tables()
    getattr(given, name)[index] = value
    with pytest.raises(ValueError, match=message):
        steps.AttentionStep(SHAPE, given).attend(random_qkv(), segments(), None, None, 0.2)
