"""The worker for devices: launches a step and goes on; another thread waits for what it brought.

The thread that launches never waits for the device. What a step needs of the step before it, the newest tokens, is on
the device already (`device_slots`). Its results travel to pinned memory behind it, with an event; `Launched.result`
waits for that one. So while step N computes, N + 1 is queued behind it, and the results of N - 1 are being read.

Copies of the swap space run in a stream of their own (`device_swap`). Decodes run as recorded (`graphs`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tidemark_kernels import device_dispatch, reference_sampling
from tidemark_runtime import errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import (
    accelerators,
    device_buffers,
    device_slots,
    device_steps,
    device_swap,
    graphs,
    interface,
    measuring,
    out_of_memory,
    planned,
    slots,
)

WARM_UP_TOKENS = 48
"""Prompt tokens of the first step, as on a processor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What loading has made: all that a worker is made of."""

    accelerator: accelerators.Accelerator
    model: batches.Model
    memory: batches.KVMemory
    facts: interface.WorkerFacts
    choices: device_dispatch.Choices
    paths: tuple[status.KernelPath, ...] = ()
    """Of all ops, with what the self-test found; of a device they are known before the first step."""


class Launched:
    """A step that is on its way. Made by the thread that launches, read by another one."""

    def __init__(
        self, step: int, marks: _Marks, returned: device_buffers.Returned | None, rows: Sequence[_Row]
    ) -> None:
        self._step = step
        self._marks = marks
        self._returned = returned
        self._rows = rows

    def result(self) -> step_plan.StepResult:
        """Waits for the step. Raises OutOfMemory, or EngineError where a row's logits are no numbers."""
        with out_of_memory.told("in a step"):
            self._marks.end.synchronize()
        total, swap_seconds = self._marks.seconds()
        if self._returned is None:
            return step_plan.StepResult(self._step, (), (), total, swap_seconds)
        token_ids, broken, *logprobs = self._returned.arrays()
        for row, code in zip(self._rows, broken.tolist(), strict=False):
            if code:
                raise errors.EngineError(_BROKEN[code].format(slot=row.slot))
        ids = tuple(token_ids.tolist()[: len(self._rows)])
        return step_plan.StepResult(self._step, ids, _logprobs(self._rows, logprobs), total, swap_seconds)


class DeviceWorker:
    """Implements `interface.Worker`; what an engine uses is `launch`, which `execute` waits for."""

    def __init__(self, loaded: Loaded, max_num_seqs: int) -> None:
        """Raises CapacityError where the host refuses the swap space of the facts."""
        facts, accelerator = loaded.facts, loaded.accelerator
        self._accelerator = accelerator
        self._choices = loaded.choices
        self._max_num_seqs = max_num_seqs
        self._facts = dataclasses.replace(facts, kernel_paths=loaded.paths)
        # Weights and slab were made in another stream: they must be there before anything of this one.
        accelerator.give_back()
        self._stream = accelerator.stream()
        with torch.inference_mode(), self._stream:
            self._tables = device_slots.DeviceTables(
                accelerator, max_num_seqs, facts.max_context_tokens, facts.layout.block_size
            )
            self._newest = accelerator.event(timed=True)
            self._newest.record()
        self._swap: device_swap.DeviceSwap | None = device_swap.DeviceSwap(
            accelerator, loaded.memory.slab, facts.num_host_pages
        )
        self._steps: device_steps.Steps | None = device_steps.Steps(
            accelerator, loaded.model, loaded.memory, self._tables, loaded.choices
        )
        self._graphs: graphs.Graphs[device_steps.Room] | None = None
        self._num_replayed = 0

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._facts

    @property
    def num_replayed(self) -> int:
        """Steps that ran as recorded."""
        return self._num_replayed

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Launch, and wait."""
        return self.launch(plan).result()

    def launch(self, plan: step_plan.StepPlan) -> Launched:
        """Queue one step on the device behind those before it; returns before it has run.

        Raises OutOfMemory, and is fit for further plans afterwards, of which none may continue what this one began.
        """
        if self._steps is None or self._swap is None:
            raise RuntimeError("the worker is closed")
        if plan.verifications:
            raise ValueError("the plan has guesses to verify, which this worker does not do")
        with torch.inference_mode(), self._stream, out_of_memory.told("in a step"):
            return self._launch(plan, self._steps, self._swap)

    def _launch(self, plan: step_plan.StepPlan, steps: device_steps.Steps, swap: device_swap.DeviceSwap) -> Launched:
        marks = _Marks(self._accelerator)
        swap.copy(plan, self._newest)
        marks.wait_for(swap.waits(plan))
        try:
            rows = self._tables.apply(plan)
            launched = None if rows.slots.size == 0 else self._compute(plan, rows, steps)
            returned = None
            if launched is not None and launched.sampled is not None:
                self._tables.append(launched.slots)
                returned = device_buffers.Returned(self._accelerator, _parts(launched.sampled))
        finally:
            marks.end.record()
            self._newest = marks.end
        kept = [] if launched is None else self._rows(launched.slots)
        return Launched(plan.step, marks, returned, kept)

    def _compute(self, plan: step_plan.StepPlan, rows: slots.Rows, steps: device_steps.Steps) -> device_steps.Launched:
        if self._graphs is not None and not plan.chunks:
            recorded = self._graphs.find(rows.slots.size)
            replayed = None if recorded is None else steps.replay(recorded, rows)
            if replayed is not None:
                self._num_replayed += 1
                return replayed
        return steps.launch(rows)

    def _rows(self, sampled: slots.Int64) -> list[_Row]:
        return [_Row(slot, self._tables.host.params_of(slot).num_logprobs) for slot in sampled.tolist()]

    # ---- before the first request --------------------------------------------------------------------------

    def prepare(self, largest: measuring.Step, why_no_graphs: str = "") -> None:
        """First steps, graphs, and what both take; the facts say so afterwards.

        `largest`: of the steps there will be. `why_no_graphs`: more than the device's own reason.
        """
        with out_of_memory.told("while the first steps were made"):
            page_copy_seconds = self._swap.measure() if self._swap is not None else 0.0
            self._facts = dataclasses.replace(self._facts, page_copy_seconds=page_copy_seconds)
            self._warm_up()
            activations = self._measure(largest)
            self._record(why_no_graphs or self._accelerator.no_graphs)
        self._note_memory(activations)

    def _warm_up(self) -> None:
        """A prompt, then decodes, so that no first request waits for a kernel to be compiled. Nothing is left behind
        that anybody reads: a joining sequence brings its own tokens, pages are written before they are read."""
        layout = self._facts.layout
        count = min(WARM_UP_TOKENS, self._room_tokens() - 2)
        if count < 1:
            return
        params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
        pages = tuple(range(layout.pages_for(count + 2)))
        join = step_plan.Join(slot=0, token_ids=(0,) * count, num_prompt_tokens=count, params=params, pages=pages)
        self.execute(step_plan.StepPlan(step=0, joins=(join,), chunks=(step_plan.Chunk(0, 0, count, True),)))
        self.execute(step_plan.StepPlan(step=0, decodes=(0,)))
        self.execute(step_plan.StepPlan(step=0, decodes=(0,)))

    def _measure(self, wanted: measuring.Step) -> measuring.Activations:
        """By how much the largest step makes the tensors on the device grow."""
        num_tokens = min(wanted.num_tokens, wanted.num_seqs * (self._room_tokens() - 1))
        if num_tokens < 1 or not self._accelerator.allocated_bytes():
            return measuring.Activations(None, "not measured: this device does not count what its tensors take")
        step = measuring.Step(min(wanted.num_seqs, num_tokens), num_tokens)
        plan = measuring.plan_of(step, self._facts.layout.block_size)
        self.execute(plan)  # kernels are compiled, libraries make room of their own
        before = self._accelerator.allocated_bytes()
        self._accelerator.reset_peak()
        self.execute(plan)
        grown = max(0, self._accelerator.peak_bytes() - before)
        return measuring.Activations(grown, f"measured with {num_tokens} tokens of {wanted.num_seqs} sequences")

    def _record(self, why_not: str) -> None:
        if not why_not and self._choices.unplanned:
            why_not = "plain torch waits for the host in the middle of a step"
        if why_not or self._steps is None:
            self._facts = dataclasses.replace(self._facts, notes={**self._facts.notes, "graphs": f"none: {why_not}"})
            return
        steps, count = self._steps, self._max_num_seqs
        with torch.inference_mode(), self._stream:
            self._graphs = graphs.record(
                self._accelerator, graphs.sizes(count), lambda size: steps.prepare(size, count), time.perf_counter
            )
        sizes = ", ".join(map(str, self._graphs.sizes))
        note = f"decode steps of {sizes} sequences, recorded in {self._graphs.seconds:.1f} s"
        self._facts = dataclasses.replace(self._facts, notes={**self._facts.notes, "graphs": note})

    def _note_memory(self, activations: measuring.Activations) -> None:
        facts = self._facts
        kept = 0 if self._steps is None else self._steps.num_bytes
        memory_bytes = {**facts.memory_bytes, "workspace": self._tables.num_bytes + kept}
        if self._graphs is not None:
            memory_bytes["graphs"] = max(0, self._graphs.num_bytes - kept)
        if activations.num_bytes is not None:
            memory_bytes["activations"] = activations.num_bytes
        differs = planned.compare(facts.planned_bytes, memory_bytes, facts.notes.get("linearMeasured", ""))
        notes = {**facts.notes, "activations": activations.note, **({"memoryDiffers": differs} if differs else {})}
        self._facts = dataclasses.replace(facts, memory_bytes=memory_bytes, notes=notes)

    def _room_tokens(self) -> int:
        """Of one sequence."""
        return min(self._facts.num_pages * self._facts.layout.block_size, self._facts.max_context_tokens)

    def close(self) -> None:
        """Let go of graphs, weights, slab and swap space, after what is queued."""
        self._newest.synchronize()
        self._graphs = None
        self._steps = None
        self._swap = None


# ------------------------------------------------------------------------------------------------ results


@dataclass(frozen=True, slots=True)
class _Row:
    slot: int
    num_logprobs: int | None


@dataclass(slots=True)
class _Marks:
    """Where a step begins in the stream, where it may compute, where it ends."""

    accelerator: accelerators.Accelerator
    begin: accelerators.Event = field(init=False)
    ready: accelerators.Event | None = None
    end: accelerators.Event = field(init=False)

    def __post_init__(self) -> None:
        self.begin, self.end = self.accelerator.event(timed=True), self.accelerator.event(timed=True)
        self.begin.record()

    def wait_for(self, copies: Sequence[accelerators.Event]) -> None:
        for copy in copies:
            copy.wait()
        if copies:
            self.ready = self.accelerator.event(timed=True)
            self.ready.record()

    def seconds(self) -> tuple[float, float]:
        """Of the step, and of these how long it waited for copies. After `end` was waited for."""
        total = self.begin.elapsed_time(self.end) / 1e3
        return total, 0.0 if self.ready is None else self.begin.elapsed_time(self.ready) / 1e3


_BROKEN = {
    reference_sampling.MODEL: (
        "the model computed no finite number as largest logit of the sequence in slot {slot}: its weights are damaged "
        "or overflow in this dtype; try dtype float32"
    ),
    reference_sampling.ADJUSTED: "penalties and bias of the sequence in slot {slot} leave no finite logit",
    reference_sampling.MISLAUNCHED: (
        "the sampler was not told what the sequence in slot {slot} asks for; report this: it is a mistake of ours"
    ),
}


def _parts(sampled: reference_sampling.Sampled) -> list[torch.Tensor]:
    every = (sampled.token_ids, sampled.broken, sampled.logprobs, sampled.top_ids, sampled.top_logprobs)
    return [part for part in every if part is not None]


def _logprobs(
    rows: Sequence[_Row], found: Sequence[device_buffers.Array]
) -> tuple[step_plan.TokenLogprobs | None, ...]:
    """`found`: of the chosen tokens, ids and log-probabilities of the most likely ones; empty where none were asked."""
    if not found:
        return (None,) * len(rows)
    chosen, top_ids, top = (part.tolist() for part in found)
    return tuple(
        None
        if row.num_logprobs is None
        else step_plan.TokenLogprobs(
            chosen[at], tuple(top_ids[at][: row.num_logprobs]), tuple(top[at][: row.num_logprobs])
        )
        for at, row in enumerate(rows)
    )
