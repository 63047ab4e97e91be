"""How much a largest step really takes: one is run at the start, and the kernel says by how much the process grew.

What is measured is resident memory (`VmHWM`, reset by writing to `/proc/self/clear_refs`), with the heap told to map
every larger tensor afresh meanwhile: what grows is then what lives. A step that would take longer than PROBE_SECONDS is
run with fewer tokens and its growth scaled up; the note says so. What is too small to be seen is not measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.planning import capacity
from tidemark_runtime.worker import cpu, heap, interface

PROBE_SECONDS = 0.3
"""It is run twice: the first time, libraries make room of their own for the shape (MKL packs matrices), and keep it."""
LEAST_TOKENS = 48
"""Of that step, however slow: a warm-up has just run as many."""
LEAST_BYTES = 8 << 20
"""A smaller peak drowns among the pages that anything else touches."""
MAPPED_FROM_BYTES = 256 << 10
"""From loading until this is measured: a heap that had kept larger blocks would give them to the step, which then would
not grow by them."""
_PEAK = "5"
"""Written to clear_refs: the peak of resident memory begins anew (proc_pid_clear_refs(5))."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a largest step is made of."""

    num_seqs: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Activations:
    """`num_bytes` is None where they were not measured; `note` says why, or how."""

    num_bytes: int | None
    note: str


def largest(facts: interface.WorkerFacts, wanted: Step, token_seconds: float) -> Step:
    """As much of `wanted` as fits the slab, the context and PROBE_SECONDS; at least one token a sequence."""
    layout = facts.layout
    room = min(facts.num_pages * layout.block_size, facts.max_context_tokens) - 1
    in_time = int(PROBE_SECONDS / token_seconds) if token_seconds > 0 else wanted.num_tokens
    num_tokens = max(1, min(wanted.num_tokens, max(LEAST_TOKENS, in_time), wanted.num_seqs * room))
    return Step(min(wanted.num_seqs, num_tokens), num_tokens)


def plan_of(step: Step, block_size: int) -> step_plan.StepPlan:
    """A prompt step of all sequences, each sampled at its end. They share their first pages: what they compute is worth
    nothing, and no more of the slab is touched than one of them needs."""
    counts = [
        step.num_tokens // step.num_seqs + (slot < step.num_tokens % step.num_seqs) for slot in range(step.num_seqs)
    ]
    pages = tuple(range(-(-(max(counts) + 1) // block_size)))
    params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
    joins = tuple(
        step_plan.Join(slot=slot, token_ids=(0,) * count, num_prompt_tokens=count, params=params, pages=pages)
        for slot, count in enumerate(counts)
    )
    chunks = tuple(step_plan.Chunk(slot=slot, start=0, count=count, samples=True) for slot, count in enumerate(counts))
    return step_plan.StepPlan(step=0, joins=joins, chunks=chunks)


@dataclass(frozen=True, slots=True)
class Run:
    """How a step is run, and what is known of it."""

    execute: Callable[[step_plan.StepPlan], object]
    slab: torch.Tensor
    token_seconds: float
    """Of one prompt token, about."""


def activations(run: Run, facts: interface.WorkerFacts, wanted: Step) -> Activations:
    """Of a largest step, `wanted`."""
    if facts.shape is None:
        return Activations(None, "not measured: the worker does not say what its model is made of")
    step = largest(facts, wanted, run.token_seconds)
    full, some = (capacity.activations_bytes(facts.shape, each.num_seqs, each.num_tokens) for each in (wanted, step))
    if some < LEAST_BYTES:
        return Activations(None, f"not measured: a step of {step.num_tokens} tokens takes too little to be seen")
    plan = plan_of(step, facts.layout.block_size)
    run.slab[: len(plan.joins[0].pages)].zero_()  # memory of the slab is provided now, and not in the step
    heap.keep_under(MAPPED_FROM_BYTES)
    run.execute(plan)
    grown = peak_growth_bytes(lambda: run.execute(plan))
    if grown is None:
        return Activations(None, "not measured: this system does not let a process reset its peak")
    if step == wanted:
        return Activations(grown, f"measured with {step.num_tokens} tokens of {step.num_seqs} sequences")
    note = f"measured with {step.num_tokens} tokens of {step.num_seqs} sequences, scaled to {wanted.num_tokens}"
    return Activations(int(grown * full / some), note)


@dataclass(frozen=True, slots=True)
class Drafted:
    """Of a draft model's largest step: `more_bytes` than planned, negative for fewer; 0 where it was not measured."""

    more_bytes: int
    note: str


def draft_activations(
    run: Run,
    follow: Callable[[step_plan.StepPlan], None],
    facts: interface.WorkerFacts,
    wanted: Step,
    token_bytes: int,
) -> Drafted:
    """`follow`: what a draft model computes beside a plan that `run` has executed without it; `token_bytes`: planned of
    each token. It has no rows of logits there, and grows with the tokens alone."""
    step = largest(facts, wanted, run.token_seconds)
    if step.num_tokens * token_bytes < LEAST_BYTES:
        return Drafted(0, f"not measured: a step of {step.num_tokens} tokens takes too little to be seen")
    plan = plan_of(step, facts.layout.block_size)
    run.execute(plan)
    heap.keep_under(MAPPED_FROM_BYTES)
    follow(plan)
    grown = peak_growth_bytes(lambda: follow(plan))
    if grown is None:
        return Drafted(0, "not measured: this system does not let a process reset its peak")
    scaled = grown * wanted.num_tokens // step.num_tokens
    note = f"measured with {step.num_tokens} tokens" + (f", scaled to {wanted.num_tokens}" if scaled != grown else "")
    return Drafted(scaled - wanted.num_tokens * token_bytes, note)


def peak_growth_bytes(run: Callable[[], object], root: Path = Path("/")) -> int | None:
    """By how much resident memory grew while `run` ran, at its peak. None where the system cannot say."""
    if not heap.keep_under(MAPPED_FROM_BYTES):
        return None
    try:
        heap.give_back()
        (root / "proc/self/clear_refs").write_text(_PEAK, encoding="ascii")
        before = cpu.resident_bytes(root)
        run()
        return max(0, cpu.peak_resident_bytes(root) - before)
    except OSError:
        return None
    finally:
        heap.keep_under(heap.KEEP_UNDER_BYTES)
