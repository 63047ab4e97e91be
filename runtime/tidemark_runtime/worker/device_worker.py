"""The worker for devices: launches a step and goes on; another thread waits for what it brought.

The thread that launches never waits for the device. What a step needs of the step before it, the newest tokens, is on
the device already (`device_slots`). Its results travel to pinned memory behind it, with an event; `Launched.result`
(`device_results`) waits for that one. So while step N computes, N + 1 is queued behind it, and the results of N - 1 are
being read. Where N has guesses to check nobody knows how long its sequences become, and N + 1 waits for it.

Copies of the swap space run in a stream of their own (`device_swap`). Decodes run as recorded (`graphs`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tidemark_kernels import device_dispatch
from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import parallel
from tidemark_runtime.worker import (
    accelerators,
    device_draft,
    device_results,
    device_slots,
    device_steps,
    device_swap,
    device_verifying,
    graphs,
    interface,
    measuring,
    out_of_memory,
    planned,
    slots,
)

WARM_UP_TOKENS = 48
"""Prompt tokens of the first step, as on a processor."""
NO_GRAPHS_OF_RANKS = (
    "a recorded sum over ranks belongs to the group it was recorded in, which the ranks leave when memory runs out on "
    "one of them; every step is launched"
)
Execute = Callable[[step_plan.StepPlan], step_plan.StepResult]
RECORDED_GUESSES = 32
"""Rows up to which steps with guesses are recorded where fewer sequences than that may run at once."""


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
    num_guesses: int = 0
    """The most that are checked of a sequence in one step; 0: none ever."""
    draft: device_draft.Parts | None = None
    """Of speculative decoding."""
    group: parallel.Group = parallel.ALONE
    """Of the ranks that share the model."""


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
            accelerator, loaded.model, loaded.memory, self._tables, loaded.choices, group=loaded.group
        )
        self._graphs: graphs.Graphs[device_steps.Room] | None = None
        self._num_replayed = 0
        self._num_guesses = loaded.num_guesses
        self._draft: device_draft.DeviceDraft | None = None
        if loaded.draft is not None:
            self._draft = device_draft.DeviceDraft(
                accelerator, loaded.draft, self._tables, loaded.model.spec.vocab_size
            )
        self._unsettled: device_results.Launched | None = None
        """The step before, where it has guesses to check: how long its sequences are now follows from its result."""

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

    def launch(self, plan: step_plan.StepPlan) -> device_results.Launched:
        """Queue one step on the device behind those before it; returns before it has run. Where the step before checks
        guesses, waits for that one first: nobody who knows its result would plan a step otherwise.

        Raises OutOfMemory, and is fit for further plans afterwards, of which none may continue what this one began.
        """
        if self._steps is None or self._swap is None:
            raise RuntimeError("the worker is closed")
        with torch.inference_mode(), self._stream, out_of_memory.told("in a step"):
            self._settle()
            return self._launch(plan, self._steps, self._swap)

    def _launch(
        self, plan: step_plan.StepPlan, steps: device_steps.Steps, swap: device_swap.DeviceSwap
    ) -> device_results.Launched:
        # Guesses were made from the result of the step before, and the device had nothing to do until now. This belongs
        # to their price.
        marks = device_results.Marks(self._accelerator, self._newest if plan.verifications else None)
        swap.copy(plan, self._newest)
        copies = swap.waits(plan)
        if self._draft is not None:
            self._draft.copy(plan, self._newest)
            copies += self._draft.waits(plan)
        marks.wait_for(copies)
        try:
            self._tables.take_in(plan)
            guessed = self._guess(plan.verifications)
            rows = device_verifying.as_decodes(self._tables.rows(plan, guessed.verifications))
            if self._draft is None and guessed.verifications:
                self._tables.guess(guessed.verifications)
            launched = None if rows.slots.size == 0 else self._compute(plan, rows, steps)
            if self._draft is not None:
                self._draft.follow(plan)
            returned = None
            if launched is not None and launched.sampled is not None:
                brought = device_results.Brought(launched.sampled, guessed.tokens, guessed.broken)
                returned = brought.returned(self._accelerator)
        finally:
            marks.end.record()
            self._newest = marks.end
        expected = device_results.Expected(plan.step)
        if launched is not None:
            expected = self._expected(plan.step, launched.slots, guessed)
            self._tables.append(launched.slots[: expected.num_plain])
        found = device_results.Launched(expected, marks, returned)
        self._unsettled = found if plan.verifications else None
        return found

    def _guess(self, verifications: tuple[step_plan.Verification, ...]) -> device_draft.Guessed:
        if self._draft is None or not verifications:
            return device_draft.Guessed(verifications)
        return self._draft.guess(verifications)

    def _compute(self, plan: step_plan.StepPlan, rows: slots.Rows, steps: device_steps.Steps) -> device_steps.Launched:
        if self._graphs is not None and not plan.chunks:
            recorded = self._graphs.find(rows.slots.size)
            replayed = None if recorded is None else steps.replay(recorded, rows)
            if replayed is not None:
                self._num_replayed += 1
                return replayed
        return steps.launch(rows)

    def _expected(self, step: int, sampled: slots.Int64, guessed: device_draft.Guessed) -> device_results.Expected:
        host = self._tables.host
        rows = tuple(device_results.Row(slot, host.params_of(slot).num_logprobs) for slot in sampled.tolist())
        return device_results.Expected(step, rows, guessed.verifications, guessed.drafted)

    def _settle(self) -> None:
        """Take in what the guesses of the step before came to."""
        step, self._unsettled = self._unsettled, None
        if step is None:
            return
        try:
            verified = step.verified()
        except (errors.OutOfMemory, errors.EngineError):
            return  # its result says so; nobody continues what it began
        checked = step.expected.verifications
        before = [int(self._tables.host.lengths[each.slot]) for each in checked]
        for each, outcome in zip(checked, verified, strict=True):
            self._tables.accept(each.slot, outcome.num_tokens)
        if self._draft is not None:
            self._draft.settle(checked, before)

    # ---- before the first request --------------------------------------------------------------------------

    def prepare_rank(self, settings: config.EngineConfig, execute: Execute) -> None:
        """`prepare` on the first of several ranks. `execute`: runs a plan on all of them."""
        scheduler = settings.scheduler
        largest = measuring.Step(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
        self.prepare(largest, NO_GRAPHS_OF_RANKS, execute)

    def prepare(self, largest: measuring.Step, why_no_graphs: str = "", execute: Execute | None = None) -> None:
        """First steps, graphs, and what both take; the facts say so afterwards.

        `largest`: of the steps there will be. `why_no_graphs`: more than the device's own reason. `execute`: None: on
        this worker alone.
        """
        execute = execute or self.execute
        with out_of_memory.told("while the first steps were made"):
            page_copy_seconds = self._swap.measure() if self._swap is not None else 0.0
            self._facts = dataclasses.replace(self._facts, page_copy_seconds=page_copy_seconds)
            self._warm_up(execute)
            draft, self._draft = self._draft, None  # the plan has its steps in another part
            try:
                activations = self._measure(largest, execute)
            finally:
                self._draft = draft
            if draft is not None and activations.num_bytes is not None:
                self._note_draft(largest, draft)
            self._record(why_no_graphs or self._accelerator.no_graphs)
        self._note_memory(activations)

    def _warm_up(self, execute: Execute) -> None:
        """A prompt, then decodes, so that no first request waits for a kernel to be compiled. Nothing is left behind
        that anybody reads: a joining sequence brings its own tokens, pages are written before they are read."""
        layout = self._facts.layout
        more = 4 if self._num_guesses else 2
        count = min(WARM_UP_TOKENS, self._room_tokens() - more)
        if count < 1:
            return
        params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
        pages = tuple(range(layout.pages_for(count + more)))
        join = step_plan.Join(slot=0, token_ids=(0,) * count, num_prompt_tokens=count, params=params, pages=pages)
        execute(step_plan.StepPlan(step=0, joins=(join,), chunks=(step_plan.Chunk(0, 0, count, True),)))
        execute(step_plan.StepPlan(step=0, decodes=(0,)))
        execute(step_plan.StepPlan(step=0, decodes=(0,)))
        if self._num_guesses:
            guess = step_plan.Verification(0, 1, (0,) if self._draft is None else ())
            execute(step_plan.StepPlan(step=0, verifications=(guess,)))

    def _measure(self, wanted: measuring.Step, execute: Execute) -> measuring.Activations:
        """By how much the largest step makes the tensors on the device grow."""
        num_tokens = min(wanted.num_tokens, wanted.num_seqs * (self._room_tokens() - 1))
        if num_tokens < 1 or not self._accelerator.allocated_bytes():
            return measuring.Activations(None, "not measured: this device does not count what its tensors take")
        step = measuring.Step(min(wanted.num_seqs, num_tokens), num_tokens)
        plan = measuring.plan_of(step, self._facts.layout.block_size)
        grown = self._grown(lambda: execute(plan))
        return measuring.Activations(grown, f"measured with {num_tokens} tokens of {wanted.num_seqs} sequences")

    def _note_draft(self, wanted: measuring.Step, draft: device_draft.DeviceDraft) -> None:
        """What a draft model takes beside a step that has just run without it: its part of the plan, corrected."""
        num_tokens = min(wanted.num_tokens, wanted.num_seqs * (self._room_tokens() - 1))
        plan = measuring.plan_of(
            measuring.Step(min(wanted.num_seqs, num_tokens), num_tokens), self._facts.layout.block_size
        )
        with torch.inference_mode(), self._stream:
            grown = self._grown(lambda: draft.follow(plan))
        facts, more = self._facts, grown * wanted.num_tokens // num_tokens - wanted.num_tokens * draft.token_bytes
        speculation = max(0, facts.memory_bytes.get("speculation", 0) + more)
        self._facts = dataclasses.replace(
            facts,
            memory_bytes={**facts.memory_bytes, "speculation": speculation},
            notes={**facts.notes, "draftActivations": f"measured with {num_tokens} tokens"},
        )

    def _grown(self, run: Callable[[], object]) -> int:
        """By so many bytes tensors grow in it. Run twice: the first time kernels are compiled, and libraries make room
        of their own."""
        run()
        before = self._accelerator.allocated_bytes()
        self._accelerator.reset_peak()
        run()
        return max(0, self._accelerator.peak_bytes() - before)

    def _record(self, why_not: str) -> None:
        if not why_not and self._choices.unplanned:
            why_not = "plain torch waits for the host in the middle of a step"
        if why_not or self._steps is None:
            self._facts = dataclasses.replace(self._facts, notes={**self._facts.notes, "graphs": f"none: {why_not}"})
            return
        steps, most = self._steps, self._most_recorded_rows
        with torch.inference_mode(), self._stream:
            self._graphs = graphs.record(
                self._accelerator, graphs.sizes(most), lambda size: steps.prepare(size, most), time.perf_counter
            )
            if self._draft is not None:
                self._draft.record(self._graphs)
        sizes = ", ".join(map(str, self._graphs.sizes))
        note = f"decode steps of {sizes} sequences, recorded in {self._graphs.seconds:.1f} s"
        if self._num_guesses:
            note += "; a guess takes the place of a sequence"
        if self._draft is not None:
            note += f"; {self._draft.recorded}"
        self._facts = dataclasses.replace(self._facts, notes={**self._facts.notes, "graphs": note})

    @property
    def _most_recorded_rows(self) -> int:
        """One a sequence; for the few sequences whose guesses pay, theirs, too."""
        return max(self._max_num_seqs, min(RECORDED_GUESSES, self._max_num_seqs * (1 + self._num_guesses)))

    def _note_memory(self, activations: measuring.Activations) -> None:
        facts = self._facts
        kept = 0 if self._steps is None else self._steps.num_bytes
        recorded = 0 if self._graphs is None else self._graphs.num_bytes
        if self._draft is not None:
            kept, recorded = kept + self._draft.num_bytes, recorded + self._draft.num_recorded_bytes
        memory_bytes = {**facts.memory_bytes, "workspace": self._tables.num_bytes + kept}
        if self._graphs is not None:
            memory_bytes["graphs"] = max(0, recorded - kept)
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
        self._draft = None
        self._unsettled = None
        self._swap = None
