"""What is said of several ranks together: pages and kernel paths of all of them, nothing of the first one alone."""

from __future__ import annotations

from tidemark_runtime.contract import status
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface, parallel, rank_messages

SHAPE = page_layout.KVShape(num_layers=1, num_kv_heads=1, head_dim=64)
FAST = status.KernelPath("paged_attention", "cpu-c", "cpu-c", "int8", largest_error=0.1)
SLOW = status.KernelPath("paged_attention", "cpu-c", "torch", "bfloat16", reason="no compiler")


def facts(device: str, *paths: status.KernelPath) -> interface.WorkerFacts:
    return interface.WorkerFacts(
        kind="torch",
        device=device,
        dtype="float32",
        layout=page_layout.PageLayout(SHAPE, block_size=16, dtype="int8"),
        num_pages=4,
        max_context_tokens=64,
        memory_bytes={"kv": 1},
        kernel_paths=paths,
    )


def loaded(rank: int, pages: dict[str, int], *paths: status.KernelPath) -> rank_messages.Loaded:
    return rank_messages.Loaded(rank, {"kv": 1}, {}, pages, paths)


def test_on_a_processor_pages_are_of_all_ranks_together() -> None:
    own = facts("cpu")
    found = parallel.facts_of_all(own, [loaded(1, {"int8": 100, "bfloat16": 50})], "gloo").page
    mine = own.layout.page_bytes
    assert found == interface.PageBytes(mine + 150, {"int8": mine + 100, "bfloat16": 50})


def test_of_devices_the_largest_page_counts_and_every_dtype_is_there() -> None:
    own = facts("cuda")
    mine = own.layout.page_bytes
    small = parallel.facts_of_all(own, [loaded(1, {"int8": 8, "bfloat16": 16}), loaded(2, {"bfloat16": 24})], "nccl")
    assert small.page == interface.PageBytes(mine, {"int8": mine, "bfloat16": 24})
    large = parallel.facts_of_all(own, [loaded(1, {"bfloat16": mine + 8})], "nccl")
    assert large.page == interface.PageBytes(mine + 8, {"bfloat16": mine + 8, "int8": mine})


def test_a_path_that_only_another_rank_runs_is_seen_and_says_whose_it_is() -> None:
    worse = status.KernelPath("paged_attention", "cpu-c", "cpu-c", "int8", largest_error=0.4)
    found = parallel.facts_of_all(facts("cpu", FAST), [loaded(1, {}, worse, SLOW), loaded(2, {}, SLOW)], "gloo")
    assert [(path.path, path.dtype, path.largest_error, path.reason) for path in found.kernel_paths] == [
        ("torch", "bfloat16", 0.0, "rank 1: no compiler"),
        ("cpu-c", "int8", 0.4, ""),
    ]
