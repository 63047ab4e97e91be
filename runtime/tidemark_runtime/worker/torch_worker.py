"""The worker for processors: torch and our own kernels, one process, one slab."""

from __future__ import annotations

import time

import torch

from tidemark_runtime import config
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import sources
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.worker import batch, interface, loading, sampler, slots

WARM_UP_TOKENS = 48
"""Prompt tokens of the warm-up: enough for the paths of many rows, few enough to touch only some pages."""


def create(settings: config.EngineConfig, source: sources.ModelSource, progress: model_weights.Progress) -> TorchWorker:
    """Load the model, size the slab, run a first step of each kind.

    Raises ModelError, CapacityError or ConfigError: whatever is wrong with model, memory or settings.
    """
    loaded = loading.load(settings, source, progress)
    worker = TorchWorker(loaded.model, loaded.memory, loaded.facts, settings.scheduler.max_num_seqs)
    progress("warming up", 1.0)
    worker.warm_up()
    return worker


class TorchWorker:
    """Keeps the slot tables, and runs plans on the model. Implements `interface.Worker`."""

    def __init__(
        self, model: batches.Model, memory: batches.KVMemory, facts: interface.WorkerFacts, max_num_seqs: int
    ) -> None:
        self._model: batches.Model | None = model
        self._memory: batches.KVMemory | None = memory
        self._facts = facts
        self._tables = slots.SlotTables(max_num_seqs, facts.max_context_tokens, facts.layout.block_size)

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._facts

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Tables, tensors, forward pass, sampling; the sampled tokens are in the tables before this returns."""
        if self._model is None or self._memory is None:
            raise RuntimeError("the worker is closed")
        started = time.perf_counter()
        with torch.inference_mode():
            rows = self._tables.apply(plan)
            logits = self._model.forward(batch.build(self._tables, rows), self._memory)
            sampled = rows.slots[rows.samples]
            token_ids, logprobs = sampler.sample(logits, self._tables, sampled)
            self._tables.append(sampled, token_ids)
        return step_plan.StepResult(plan.step, tuple(token_ids.tolist()), logprobs, time.perf_counter() - started)

    def warm_up(self) -> None:
        """One prompt and one decode step in slot 0, so that no first request waits for libraries to set up.

        What it leaves in slot and pages is overwritten: a joining sequence brings its own tokens, pages are written
        before they are read.
        """
        layout = self._facts.layout
        room = min(self._facts.num_pages * layout.block_size, self._facts.max_context_tokens)
        count = min(WARM_UP_TOKENS, room - 1)
        if count < 1:
            return
        params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
        join = step_plan.Join(slot=0, token_ids=(0,) * count, num_prompt_tokens=count, params=params)
        pages = tuple(range(layout.pages_for(count + 1)))
        prompt = step_plan.Chunk(slot=0, start=0, count=count, new_pages=pages, samples=True)
        decode = step_plan.Chunk(slot=0, start=count, count=1, new_pages=(), samples=False)
        self.execute(step_plan.StepPlan(step=0, joins=(join,), chunks=(prompt,)))
        self.execute(step_plan.StepPlan(step=0, joins=(), chunks=(decode,)))

    def close(self) -> None:
        """Let go of weights and slab."""
        self._model = None
        self._memory = None
