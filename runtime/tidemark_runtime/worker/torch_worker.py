"""The worker for processors: torch and our own kernels, one process, one slab."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np
import torch

from tidemark_kernels import dispatch
from tidemark_runtime import config
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import parallel, sources
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.planning import capacity
from tidemark_runtime.worker import (
    batch,
    draft_model,
    heap,
    interface,
    loading,
    measuring,
    op_times,
    out_of_memory,
    planned,
    ranks,
    sampler,
    selftest,
    slots,
    swap,
    verifying,
)

Execute = Callable[[step_plan.StepPlan], step_plan.StepResult]

WARM_UP_TOKENS = 48
"""Prompt tokens of the warm-up: enough for the paths of many rows, few enough to touch only some pages."""


def create(settings: config.EngineConfig, source: sources.ModelSource, progress: model_weights.Progress) -> TorchWorker:
    """Load the model, size the slab, test the kernels, run a first step of each kind.

    Raises ModelError, CapacityError or ConfigError: whatever is wrong with model, memory or settings; KernelError where
    a kernel gives wrong numbers, or `hardware.strictKernels` forbids what runs; OutOfMemory where memory runs out.
    """
    worker = load(settings, source, progress)
    worker.prepare(settings, progress, worker.execute)
    return worker


def load(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    progress: model_weights.Progress,
    place: ranks.Place = ranks.ALONE,
) -> TorchWorker:
    """A worker that has not run a step yet (`TorchWorker.prepare`); of one rank where `place` says so. Raises as
    `create`."""
    with out_of_memory.told("while the model was loaded"):
        return _load(settings, source, progress, place)


def _load(
    settings: config.EngineConfig, source: sources.ModelSource, progress: model_weights.Progress, place: ranks.Place
) -> TorchWorker:
    strict = selftest.is_strict(settings.hardware)
    if strict:
        selftest.refuse_missing()
    heap.keep_under(measuring.MAPPED_FROM_BYTES)
    loaded = loading.load(settings, source, progress, place=place)
    progress("testing the kernels", 1.0)
    tested = selftest.run(loaded)
    if not place.shard.is_first:  # the first rank measures for all, and until then wants blocks that are not kept
        heap.keep_under(heap.KEEP_UNDER_BYTES)
    num_seqs = settings.scheduler.max_num_seqs
    return TorchWorker(loaded.model, loaded.memory, loaded.facts, num_seqs, tested, place.group, loaded.draft)


class TorchWorker:
    """Keeps slot tables and swap space, and runs plans on the model. Implements `interface.Worker`."""

    def __init__(
        self,
        model: batches.Model,
        memory: batches.KVMemory,
        facts: interface.WorkerFacts,
        max_num_seqs: int,
        tested: selftest.Tested | None = None,
        group: parallel.Group = parallel.ALONE,
        draft: draft_model.Parts | None = None,
    ) -> None:
        """`group`: of the ranks that share `model`. Raises CapacityError where the system refuses the swap space of
        `facts`."""
        self._group = group
        self._tested = selftest.Tested((), ()) if tested is None else tested
        self._calls_before = dispatch.current().calls
        self._model: batches.Model | None = model
        self._memory: batches.KVMemory | None = memory
        self._swap_space: swap.SwapSpace | None = swap.SwapSpace(memory.slab, facts.num_host_pages)
        self._facts = facts
        self._token_seconds = math.inf
        self._tables = slots.SlotTables(max_num_seqs, facts.max_context_tokens, facts.layout.block_size)
        self._draft: draft_model.DraftModel | None = None
        if draft is not None:
            self._draft = draft_model.DraftModel(draft, self._tables, model.spec.vocab_size)

    @property
    def facts(self) -> interface.WorkerFacts:
        """`kernel_paths` are those of all steps so far."""
        paths = self._tested.paths(self._calls_before)
        if paths != self._facts.kernel_paths:
            self._facts = dataclasses.replace(self._facts, kernel_paths=paths)
        return self._facts

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Copies, tables, tensors, forward pass, sampling; the sampled tokens are in the tables before this returns.

        Raises OutOfMemory, and is fit for further plans afterwards, of which none may continue what this one began.
        """
        with out_of_memory.told("in a step"):
            if not op_times.is_timed(plan.step):
                return self._execute(plan)
            with dispatch.current().watch.running() as ops:
                result = self._execute(plan)
        return dataclasses.replace(
            result, op_seconds=op_times.of_step(ops, result.execute_seconds, result.swap_seconds)
        )

    def _execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        if self._model is None or self._memory is None or self._swap_space is None:
            raise RuntimeError("the worker is closed")
        started = time.perf_counter()
        swap_seconds = 0.0
        if plan.swaps_out or plan.swaps_in:
            self._swap_space.copy_out(plan.swaps_out)
            self._swap_space.copy_in(plan.swaps_in)
            if self._draft is not None:
                self._draft.copy(plan)
            swap_seconds = time.perf_counter() - started
        with torch.inference_mode():
            self._tables.take_in(plan)
            verifications = self._with_guesses(plan.verifications)
            rows = self._tables.rows(plan, verifications)
            if rows.slots.size == 0:
                return step_plan.StepResult(plan.step, (), (), time.perf_counter() - started, swap_seconds)
            logits = self._model.forward(batch.build(self._tables, rows), self._memory)
            if self._draft is not None:
                self._draft.follow(plan)
            sampled = rows.slots[rows.plain]
            watch = dispatch.current().watch
            began = watch.now()
            token_ids, logprobs = self._sample(logits[: sampled.size], sampled)
            found = self._verify(logits[sampled.size :], verifications)
            if began:
                watch.stopped(op_times.SAMPLER, began)
            self._tables.append(sampled, token_ids)
        tokens = (*token_ids.tolist(), *found.token_ids)
        seconds = time.perf_counter() - started
        return step_plan.StepResult(
            *(plan.step, tokens, (*logprobs, *found.logprobs), seconds, swap_seconds), verified=tuple(found.verified)
        )

    def _with_guesses(self, verifications: tuple[step_plan.Verification, ...]) -> tuple[step_plan.Verification, ...]:
        return verifications if self._draft is None else self._draft.guess(verifications)

    def _verify(self, logits: torch.Tensor, verifications: tuple[step_plan.Verification, ...]) -> verifying.Found:
        before = [int(self._tables.lengths[each.slot]) for each in verifications]
        found = verifying.check(logits, self._tables, verifications, self._group)
        if self._draft is not None:
            self._draft.settle(verifications, before)
        return found

    def _sample(
        self, logits: torch.Tensor, slot_of_row: slots.Int64
    ) -> tuple[slots.Int64, tuple[step_plan.TokenLogprobs | None, ...]]:
        """Of several ranks the first one samples, and the tables of all get its tokens."""
        if not self._group.shard.is_first:
            token_ids = np.empty(slot_of_row.shape, dtype=np.int64)
            self._group.broadcast(torch.from_numpy(token_ids))
            return token_ids, (None,) * len(token_ids)
        token_ids, logprobs = sampler.sample(logits, self._tables, slot_of_row)
        self._group.broadcast(torch.from_numpy(token_ids))
        return token_ids, logprobs

    def prepare(self, settings: config.EngineConfig, progress: model_weights.Progress, execute: Execute) -> None:
        """The first steps, and what a largest one takes. `execute`: runs a plan on this worker; where it is a rank of
        several, on all of them. Raises KernelPathError where strict kernels forbid what ran."""
        progress("warming up", 1.0)
        scheduler = settings.scheduler
        with out_of_memory.told("while the model was loaded"):
            self.warm_up(execute)
            largest = measuring.Step(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
            self.measure_memory(largest, execute)
        heap.keep_under(heap.KEEP_UNDER_BYTES)
        if selftest.is_strict(settings.hardware):
            selftest.refuse(self.facts.kernel_paths)

    def warm_up(self, execute: Execute | None = None) -> None:
        """One prompt and one decode step in slot 0, so that no first request waits for libraries to set up; and some
        copies, to know how long one takes.

        What it leaves in slot and pages is overwritten: a joining sequence brings its own tokens, pages are written
        before they are read.
        """
        if self._swap_space is not None:
            self._facts = dataclasses.replace(self._facts, page_copy_seconds=self._swap_space.measure())
        layout = self._facts.layout
        room = min(self._facts.num_pages * layout.block_size, self._facts.max_context_tokens)
        count = min(WARM_UP_TOKENS, room - 1)
        if count < 1:
            return
        params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
        pages = tuple(range(layout.pages_for(count + 1)))
        join = step_plan.Join(slot=0, token_ids=(0,) * count, num_prompt_tokens=count, params=params, pages=pages)
        prompt = step_plan.Chunk(slot=0, start=0, count=count, samples=True)
        execute = execute or self.execute
        first = execute(step_plan.StepPlan(step=0, joins=(join,), chunks=(prompt,)))
        self._token_seconds = first.execute_seconds / count
        execute(step_plan.StepPlan(step=0, decodes=(0,)))

    def measure_memory(self, largest: measuring.Step, execute: Execute | None = None) -> None:
        """Run a step like the largest one; the facts then say what it took, beside the plan. After `warm_up`, and like
        it nothing is left behind that anybody reads.
        """
        if self._memory is None:
            raise RuntimeError("the worker is closed")
        facts, slab = self._facts, self._memory.slab
        run = measuring.Run(execute or self.execute, slab, self._token_seconds)
        draft, self._draft = self._draft, None  # the plan has its steps in another part
        try:
            found = measuring.activations(run, facts, largest)
            drafted = None if draft is None else self._measure_draft(draft, run, largest)
        finally:
            self._draft = draft
        memory_bytes = {**facts.memory_bytes, "workspace": self._tables.num_bytes}
        notes = {**facts.notes, "activations": found.note}
        if found.num_bytes is not None:
            memory_bytes["activations"] = found.num_bytes
        if drafted is not None:
            notes["draftActivations"] = drafted.note
            memory_bytes["speculation"] += drafted.more_bytes
        differs = planned.compare(facts.planned_bytes, memory_bytes, facts.notes.get("linearMeasured", ""))
        notes |= {"memoryDiffers": differs} if differs else {}
        self._facts = dataclasses.replace(facts, memory_bytes=memory_bytes, notes=notes)

    def _measure_draft(
        self, draft: draft_model.DraftModel, run: measuring.Run, largest: measuring.Step
    ) -> measuring.Drafted:
        with torch.inference_mode():
            return measuring.draft_activations(
                run, draft.follow, self._facts, largest, capacity.step_token_bytes(loading.shape_of(draft.spec, 0))
            )

    def close(self) -> None:
        """Let go of weights, slab and swap space."""
        self._model = None
        self._memory = None
        self._draft = None
        self._swap_space = None
