"""Paged attention against the reference in float64, and what must be equal bit for bit."""

from __future__ import annotations

from typing import Any

import attention_problem
import kernel_case
import pytest
import torch
from attention_problem import CPU, Problem

from tidemark_kernels import segments as segments_module
from tidemark_kernels.device import attention, layout, work_list

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INT8, E4M3, E5M2 = torch.int8, torch.float8_e4m3fn, torch.float8_e5m2
SHORT = segments_module.code_name
ALWAYS = frozenset({"poisoned output", "poisoned pages", "permuted pages"})
"""`Built` fills everything else with NaN, and shuffles pages."""


def case(name: str, covers: set[str], **asked: Any) -> kernel_case.Case:
    problem = Problem(**asked)
    return kernel_case.Case("paged_attention", name, ALWAYS | covers, lambda: problem.built().compared())


EVERY_DTYPE = tuple(
    case(f"KV {SHORT(code)}, q {q}", {"every dtype"}, k=dtype, v=dtype, q=q, head_dim=32, v_spread=2.0)
    for code, dtype in segments_module.CODE_DTYPES.items()
    if code in layout.CODES
    for q in (F32, F16, BF16)
)
HEAD_DIMS = tuple(
    case(f"head_dim {head_dim}, K {k}, V {v}", {"odd shape"}, head_dim=head_dim, k=k, v=v, q=F16, num_kv_heads=1)
    for head_dim, k, v in (
        *((80, INT8, BF16), (80, F16, E4M3), (96, E4M3, INT8), (96, F32, F16)),
        *((128, INT8, INT8), (192, F16, E5M2), (192, E4M3, F16), (256, E5M2, INT8), (64, BF16, E4M3)),
    )
)
GROUPS = tuple(
    case(f"group {group}", {"odd shape"}, group=group, counts=(3, 1), contexts=(9, 21), k=INT8, v=E4M3, q=F16)
    for group in (1, 3, 4, 7, 8, 20)
)
BORDERS = tuple(
    case(
        f"block_size {block}",
        {"page border"},
        block_size=block,
        counts=(1, 1, 1, 2),
        contexts=(block - 1, block, block + 1, 2 * block),
        k=INT8,
        num_kv_heads=1,
    )
    for block in (8, 32, 64)
)
KV: dict[str, Any] = {"num_kv_heads": 1, "group": 4}
SPLITS = (
    case("split", set(), contexts=(270,), k=INT8, v=INT8, q=F16, v_spread=3.0, num_kv_heads=1),
    case("split beside short ones", set(), counts=(1, 1, 1), contexts=(5, 260, 128), k=F16, v=F16, q=F16, **KV),
    case("drafts over a long context", set(), counts=(5, 1), contexts=(200, 40), k=INT8, v=INT8, q=F16, **KV),
    case("split, window", {"odd shape"}, contexts=(350,), window=201, **KV),
    case("split, some rows see nothing of a part", set(), counts=(6,), contexts=(259,), k=E4M3, v=E5M2, q=F16, **KV),
)
OTHERS = (
    case("one token", {"one token"}, counts=(1,), contexts=(1,), k=BF16, v=BF16, q=BF16),
    case("one token of int8", {"one token"}, counts=(1,), contexts=(1,), k=INT8, v=INT8, q=BF16),
    case("nobody", {"empty"}, counts=(), contexts=()),
    case("chunks without queries", {"empty"}, counts=(0, 2, 0), contexts=(0, 5, 20), k=INT8),
    case("map by head", {"precision map"}, k=(BF16, INT8), v=(INT8, E4M3), q=BF16, counts=(2, 1), contexts=(40, 8)),
    case("map of keys", {"precision map"}, k=F16, v=E5M2, q=F16, counts=(2, 1), contexts=(40, 8)),
    case("map with float32", {"precision map"}, k=(F32, F16, E4M3), v=(F16, INT8, F32), q=F16, num_kv_heads=3),
    case("K of the other 16 bits", {"precision map"}, k=BF16, v=F16, q=F16),
    case("window", set(), counts=(1, 3, 30), contexts=(90, 70, 33), window=20, k=INT8, v=F16, q=F16),
    case("window of one", set(), counts=(1, 2), contexts=(50, 2), window=1),
    case("softcap", set(), counts=(1, 4), contexts=(40, 9), softcap=3.0, k=E4M3, v=E4M3, q=F16),
    case("mixed step", {"odd shape"}, counts=(1, 33, 9, 1), contexts=(70, 50, 9, 3), **KV),
    case("prompt in tiles of 64", set(), counts=(15,), contexts=(40,), k=INT8, v=INT8, q=F16, **KV),
    case("prompt in tiles of 128", set(), counts=(50,), contexts=(90,), k=E4M3, v=INT8, q=F16, **KV),
    case("prompt of wide heads", set(), counts=(20,), contexts=(20,), head_dim=192, k=BF16, v=INT8, q=BF16, **KV),
    case("large queries", set(), q_factor=1e7, k=INT8, v=BF16, q=BF16),
    case("fixed scales", {"every dtype"}, k=(INT8, E4M3, E5M2), v=(E5M2, INT8, E4M3), fixed=True, num_kv_heads=3),
    case("fixed scales, q of 16 bits", set(), k=INT8, v=E4M3, fixed=True, q=F16, counts=(1, 3), contexts=(40, 9)),
)
BROKEN = tuple(
    case(
        f"broken {what} of {SHORT(code)}{', fixed' if fixed else ''}, q {q}",
        set(),
        k=segments_module.CODE_DTYPES[code],
        v=segments_module.CODE_DTYPES[code],
        q=q,
        fixed=fixed,
        counts=(1, 2),
        contexts=(40, 20),
        broken=((what, 0, 1, 33), (what, 1, 0, 17)),
    )
    for code, fixed, q in (
        *((3, False, F16), (3, True, F16), (3, True, F32), (4, False, BF16), (4, True, F16)),
        *((5, True, F16), (1, False, F16), (0, False, F32)),
    )
    for what in ("k", "v")
)
CASES: tuple[kernel_case.Case, ...] = (
    *(EVERY_DTYPE + HEAD_DIMS + GROUPS + BORDERS),
    *(SPLITS + OTHERS + BROKEN),
)
LACKS: dict[str, dict[str, str]] = {}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case: kernel_case.Case) -> None:
    kernel_case.check(case)


# ------------------------------------------------------------------------------------------------ equal bit for bit


def test_a_chunk_has_the_same_bits_alone_and_in_company() -> None:
    asked: dict[str, Any] = {"k": INT8, "v": INT8, "q": F16, "num_kv_heads": 1}
    together = Problem(counts=(1, 3, 1), contexts=(150, 20, 17), **asked).built()
    all_of_it = together.run()
    for chunk, (first, stop) in enumerate(((0, 1), (1, 4), (4, 5))):
        alone = Problem(counts=(stop - first,), contexts=(together.problem.contexts[chunk],), **asked).built()
        q = together.q[first:stop].contiguous()
        got = alone.run(
            slab=together.slab, page_table=together.page_table[chunk : chunk + 1].contiguous(), q=q, out=q.clone()
        )
        assert torch.equal(got, all_of_it[first:stop])


def test_a_prompt_has_the_same_bits_however_it_is_cut() -> None:
    whole = Problem(counts=(60,), contexts=(70,), k=F16, v=F16, q=F16, num_kv_heads=1, group=4).built()
    all_of_it = whole.run()
    work = work_list.plan((28,), (70,), whole.problem.shape)
    part = whole.run(
        attention.WorkTensors.of(work, CPU),
        q=whole.q[32:].contiguous(),
        out=torch.empty_like(whole.q[32:]),
    )
    assert torch.equal(part, all_of_it[32:])


def test_split_keys_give_what_whole_ones_give() -> None:
    split = Problem(contexts=(270,), k=INT8, v=INT8, num_kv_heads=1).built()
    whole = work_list.plan((1,), (270,), Problem(kv_bytes=1.0, num_kv_heads=1).shape)
    assert len(split.problem.work.items[0]) > 1
    assert len(whole.items[0]) == 1
    tensors = attention.WorkTensors.of(whole, CPU)
    tensors.shape = split.problem.shape
    torch.testing.assert_close(split.run(), split.run(tensors), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------------------ captured graphs


def room_for(problem: Problem, programs: int) -> attention.WorkTensors:
    room = work_list.capacity(4, 5, 400, 1000, problem.shape)
    return attention.WorkTensors.with_room(room, problem.shape, CPU, 4, 20, 400, max_programs=programs)


def test_one_room_serves_step_after_step() -> None:
    asked: dict[str, Any] = {"k": INT8, "v": INT8, "q": F16, "num_kv_heads": 1, "group": 4}
    work = room_for(Problem(**asked), programs=3)
    staging = torch.empty(len(work.buffer), dtype=torch.int32)
    for counts, contexts in (((1, 5, 1), (150, 20, 17)), ((1,), (9,)), ((), ()), ((5,), (130,))):
        built = Problem(counts=counts, contexts=contexts, **asked).built()
        work.copy_(built.problem.work, staging)
        q, table = torch.zeros(20, 4, 16, dtype=F16), torch.full((4, 26), attention_problem.NO_PAGE, dtype=torch.int32)
        q[: len(built.q)] = built.q
        table[: len(counts), : built.page_table.shape[1]] = built.page_table
        out = torch.full_like(q, torch.nan)
        built.run(work, out=out, q=q, page_table=table)
        assert torch.equal(out[: len(built.q)], built.run())
        assert out[len(built.q) :].isnan().all()


def test_nothing_is_done_before_the_first_step() -> None:
    built = Problem().built()
    out = torch.full((20, 4, 16), 7.0)
    table = torch.full((4, 26), attention_problem.NO_PAGE, dtype=torch.int32)
    built.run(room_for(built.problem, 5), out=out, q=torch.zeros_like(out), page_table=table)
    assert out.eq(7).all()


@pytest.mark.parametrize(
    ("counts", "contexts", "message"),
    [
        ((1,) * 5, (9,) * 5, "has 5 chunks, expected at most 4"),
        ((1,), (401,), "has 401 tokens of context, expected at most 400"),
        ((10, 11), (20, 20), "has 21 tokens, expected at most 20"),
        ((30,), (200,), "a step needs"),
    ],
)
def test_steps_beyond_the_room_are_refused(counts: tuple[int, ...], contexts: tuple[int, ...], message: str) -> None:
    problem = Problem(num_kv_heads=1, group=4)
    with pytest.raises(ValueError, match=message):
        room_for(problem, 5).copy_(work_list.plan(counts, contexts, problem.shape))


# ---------------------------------------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_size": 12}, "block_size is 12, expected a power of two"),
        ({"window": 5}, "window is 5, expected None as in work"),
        ({"softcap": 0.0}, r"softcap is 0.0, expected more than 0"),
        ({"q": torch.zeros(1, 4, 8)}, r"q is float32 \[1, 4, 8\] on cpu, expected"),
        ({"q": torch.zeros(0, 4, 16)}, "q has 0 tokens, expected at least 1 as in work"),
        ({"page_table": torch.zeros(1, 2, dtype=torch.int32)}, r"page_table is \[1, 2\], expected at least \[1, 3\]"),
        ({"out": torch.zeros(1, 4, 16, dtype=F16)}, "out is float16"),
        ({"slab": torch.zeros(9, 100, dtype=torch.uint8)}, "pages of 100 bytes"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem().built().run(**changes)


def test_a_small_workspace_is_refused() -> None:
    with pytest.raises(ValueError, match="workspace has 1 floats, expected at least"):
        Problem(contexts=(300,)).built().run(workspace=torch.zeros(1))


def test_a_head_of_odd_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="head_dim is 24, expected a multiple of 16"):
        Problem(head_dim=24, k=INT8).built().run()
