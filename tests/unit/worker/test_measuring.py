"""Memory that is measured: what a step makes a process grow by, and what is not worth measuring."""

from __future__ import annotations

import dataclasses
import json
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import growth_probe
import pytest
import torch

from tidemark_runtime.core import step_plan
from tidemark_runtime.planning import capacity, page_layout
from tidemark_runtime.worker import heap, interface, measuring, planned

MIB = 1 << 20
SHAPE = capacity.ModelShape(
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    hidden_size=1024,
    intermediate_size=4096,
    vocab_size=1000,
    max_context_tokens=4096,
    weights_bytes=1000,
)
FACTS = interface.WorkerFacts(
    kind="torch",
    device="cpu",
    dtype="float32",
    layout=page_layout.PageLayout(page_layout.KVShape(2, 2, 64), 16, "float32"),
    num_pages=64,
    max_context_tokens=512,
    memory_bytes={},
    shape=SHAPE,
)


@pytest.fixture(scope="module")
def grown() -> dict[str, int]:
    """By name of a probe, bytes; measured in a process of their own (`growth_probe` says why)."""
    done = subprocess.run([sys.executable, growth_probe.__file__], capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_process_grows_by_what_it_writes(grown: dict[str, int]) -> None:
    assert grown["once"] == pytest.approx(40 * MIB, rel=0.03)


def test_what_was_freed_before_the_peak_does_not_count(grown: dict[str, int]) -> None:
    assert grown["one after the other"] < 25 * MIB


def test_afterwards_the_heap_keeps_again_what_is_freed() -> None:
    seen: list[int] = []
    original = heap.keep_under

    def spy(num_bytes: int) -> bool:
        seen.append(num_bytes)
        return original(num_bytes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heap, "keep_under", spy)
        with pytest.raises(RuntimeError):
            measuring.peak_growth_bytes(_fails)
    assert seen[-1] == heap.KEEP_UNDER_BYTES


def _fails() -> None:
    raise RuntimeError("a step that fails")


def test_where_the_peak_cannot_be_reset_nothing_is_claimed(tmp_path: Path) -> None:
    assert measuring.peak_growth_bytes(lambda: None, tmp_path) is None


def run_of(token_seconds: float, item_bytes: int = 0) -> tuple[measuring.Run, list[step_plan.StepPlan]]:
    """A step that writes as much as the planner thinks, or `item_bytes` a token."""
    plans: list[step_plan.StepPlan] = []

    def execute(plan: step_plan.StepPlan) -> None:
        plans.append(plan)
        tokens = sum(chunk.count for chunk in plan.chunks)
        size = item_bytes * tokens or capacity.activations_bytes(SHAPE, len(plan.chunks), tokens)
        torch.ones(size // 4)

    slab = torch.frombuffer(mmap.mmap(-1, 64 * FACTS.layout.page_bytes), dtype=torch.uint8).view(64, -1)
    return measuring.Run(execute, slab, token_seconds), plans


def test_the_largest_step_is_what_is_run() -> None:
    run, plans = run_of(0.0)
    found = measuring.activations(run, FACTS, measuring.Step(8, 400))
    plan, again = plans
    assert again is plan, "the first time libraries make room of their own"
    assert sum(chunk.count for chunk in plan.chunks) == 400
    assert [chunk.count for chunk in plan.chunks] == [50] * 8
    assert {join.pages for join in plan.joins} == {(0, 1, 2, 3)}
    assert found.num_bytes == pytest.approx(capacity.activations_bytes(SHAPE, 8, 400), rel=0.08)
    assert found.note == "measured with 400 tokens of 8 sequences"


def test_a_slow_machine_runs_a_part_and_scales() -> None:
    run, plans = run_of(0.0012)
    found = measuring.activations(run, FACTS, measuring.Step(8, 400))
    assert sum(chunk.count for chunk in plans[0].chunks) == 250
    assert found.num_bytes == pytest.approx(capacity.activations_bytes(SHAPE, 8, 400), rel=0.08)
    assert "250 tokens of 8 sequences, scaled to 400" in found.note


def test_what_would_drown_is_not_measured() -> None:
    run, plans = run_of(100.0)
    found = measuring.activations(run, FACTS, measuring.Step(8, 50))
    assert (found.num_bytes, plans) == (None, [])
    assert "too little to be seen" in found.note
    nameless = dataclasses.replace(FACTS, shape=None)
    assert measuring.activations(run, nameless, measuring.Step(8, 50)).num_bytes is None


@pytest.mark.parametrize(
    ("seqs", "tokens", "seconds", "expected"),
    [
        (8, 400, 1.0, (8, 48)),
        (200, 400, 1.0, (48, 48)),
        (1, 4096, 0.0, (1, 511)),
        (4, 2, 0.0, (2, 2)),
    ],
)
def test_a_step_fits_the_slab_and_the_time(seqs: int, tokens: int, seconds: float, expected: tuple[int, int]) -> None:
    found = measuring.largest(FACTS, measuring.Step(seqs, tokens), seconds)
    assert (found.num_seqs, found.num_tokens) == expected


def test_a_difference_is_said_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    plan: dict[str, Any] = {"weights": 100, "kv": 100, "overhead": 5}
    assert planned.compare(plan, {"weights": 101, "kv": 99, "overhead": 900}) == ""
    assert caplog.text == ""
    words = planned.compare(plan, {"weights": 200, "kv": 99})
    assert words == "weights 200 bytes measured, 100 planned (200%)"
    assert "memory differs from the plan: weights 200 bytes" in caplog.text
    forms = "4-bit weights: rows<=1: packed4, more: grouped"
    assert planned.compare(plan, {"weights": 200}, forms).endswith(f"measured to be faster: {forms}")


@pytest.mark.parametrize(("token_seconds", "measured"), [(0.0, 400), (0.0012, 250)])
def test_a_draft_models_step_is_compared_with_what_is_planned_for_it(token_seconds: float, measured: int) -> None:
    """It takes half of what is planned: 100 KB a token, of 400."""
    run, plans = run_of(token_seconds)
    followed: list[int] = []

    def follow(plan: step_plan.StepPlan) -> None:
        assert plan in plans, "the model goes first"
        followed.append(sum(chunk.count for chunk in plan.chunks))
        torch.ones(followed[-1] * 25_000)

    found = measuring.draft_activations(run, follow, FACTS, measuring.Step(8, 400), 200_000)
    assert followed == [measured] * 2
    assert found.more_bytes == pytest.approx(-400 * 100_000, rel=0.08)
    assert found.note.startswith(f"measured with {measured} tokens")
    assert ("scaled to 400" in found.note) == (measured < 400)


def test_a_small_draft_models_step_is_taken_as_planned() -> None:
    run, plans = run_of(0.0)
    found = measuring.draft_activations(run, lambda _: None, FACTS, measuring.Step(8, 400), 1000)
    assert (found.more_bytes, plans) == (0, [])
    assert found.note.startswith("not measured: a step of 400 tokens")
