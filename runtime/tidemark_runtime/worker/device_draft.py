"""The draft model of speculative decoding on a device: it guesses in the step that checks its guesses.

As `draft_model` on a processor, and nothing waits for the device: a guess is written behind the text in the device's
own table of tokens, where the next one, and then the model that checks it, find it. The host knows how many there are
and how far this model has come (`draft_pages`), but no guess.

Rows of one or two tokens, which is what it computes from guess to guess, run as recorded.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tidemark_kernels import device_dispatch
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.worker import (
    accelerators,
    device_results,
    device_slots,
    device_steps,
    device_swap,
    device_verifying,
    draft_pages,
    graphs,
    slots,
)

RECORDED_ROWS = 32
"""The most of a recorded step: where more guess at once, each guess brings little."""
_FEW_TOKENS = 2
"""Of a row that runs as recorded: after guesses that were all right, the last one is computed with the next token."""
_IMPOSSIBLE = -1e30
"""As a logit: its token's chance is 0. Finite, because sums go by blocks, and one block may have no other token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What was loaded of it."""

    model: batches.Model
    memory: batches.KVMemory
    """As many pages as the first model has, of the same size in tokens."""
    num_host_pages: int
    """As many as the swap space has."""
    choices: device_dispatch.Choices
    token_bytes: int = 0
    """Of its activations, as planned for each token of a step."""


@dataclass(frozen=True, slots=True)
class Guessed:
    """What a step will check."""

    verifications: tuple[step_plan.Verification, ...]
    """With the guesses where they are known to the host, else with zeros in their place."""
    tokens: torch.Tensor | None = None
    """On the device, int32: those of all verifications, one after the other. None where the host knows them."""
    broken: torch.Tensor | None = None
    """On the device, int32: what the sampler says of each row that was drawn."""
    drafted: tuple[device_results.Row | None, ...] = ()
    """These rows."""


class DeviceDraft:
    """Of one worker; called in this order in each step: `copy`, `guess`, `follow`; `settle` before the next one."""

    def __init__(
        self, accelerator: accelerators.Accelerator, parts: Parts, tables: device_slots.DeviceTables, vocab: int
    ) -> None:
        """`vocab`: width of the first model's logits. Raises CapacityError where the host refuses the swap space."""
        model, slab = _SameTokens(parts.model, vocab), parts.memory.slab
        self._accelerator = accelerator
        self._tables = tables
        self._swap = device_swap.DeviceSwap(accelerator, slab, parts.num_host_pages)
        self._steps = device_steps.Steps(accelerator, model, parts.memory, tables, parts.choices, tells_logprobs=False)
        self._pages = draft_pages.DraftPages(tables.host, len(slab), parts.num_host_pages)
        self._graphs: graphs.Graphs[device_steps.Room] | None = None
        self.token_bytes = parts.token_bytes

    def copy(self, plan: step_plan.StepPlan, after: accelerators.Event) -> None:
        """Pages go where those of the first model go, behind `after`."""
        self._swap.copy(plan, after)
        self._pages.copied(plan)

    def waits(self, plan: step_plan.StepPlan) -> list[accelerators.Event]:
        """As `DeviceSwap.waits`."""
        return self._swap.waits(plan)

    def guess(self, verifications: Sequence[step_plan.Verification]) -> Guessed:
        """None where the model lags too far behind. After `DeviceTables.take_in`."""
        work = self._pages.work(verifications)
        if work.late:
            self._compute(work.late, samples=False)
        drafted: list[device_results.Row | None] = []
        broken: list[torch.Tensor] = []
        asked, spans, num_guesses = work.ready, self._pages.first(work.ready), 0
        while asked:
            rows, codes = self._sampled(self._compute(spans, samples=True))
            drafted += rows
            broken.append(codes)
            num_guesses += 1
            asked = tuple(each for each in asked if num_guesses < each.count)
            spans = self._pages.next(asked, num_guesses)
        ready = {each.slot for each in work.ready}
        found = tuple(
            step_plan.Verification(each.slot, each.count, (0,) * each.count)
            if each.slot in ready
            else step_plan.Verification(each.slot, 0)
            for each in verifications
        )
        if not ready:
            return Guessed(found)
        return Guessed(found, self._tables.guesses_of(found), torch.cat(broken), tuple(drafted))

    def follow(self, plan: step_plan.StepPlan) -> None:
        """Compute what the plan's chunks compute, where nothing is missing before it; note what decodes leave out.
        Before the tables count what the plan samples."""
        followed = self._pages.follow(plan)
        if followed:
            self._compute(followed, samples=False)

    def settle(self, verifications: Sequence[step_plan.Verification], before: Sequence[int]) -> None:
        """As `DraftPages.settle`."""
        self._pages.settle(verifications, before)

    # ---- recorded steps ----------------------------------------------------------------------------------------

    def record(self, beside: graphs.Graphs[device_steps.Room]) -> None:
        """Record its rows in the memory of the first model's records: they never run at the same time."""
        sizes = tuple(size for size in beside.sizes if size <= RECORDED_ROWS)
        self._graphs = graphs.record(
            self._accelerator,
            sizes,
            lambda size: self._steps.prepare(size, sizes[-1]),
            time.perf_counter,
            beside.find(1),
        )

    @property
    def recorded(self) -> str:
        """For people; empty before `record`."""
        if self._graphs is None:
            return ""
        sizes = ", ".join(map(str, self._graphs.sizes))
        return f"of the draft model steps of {sizes} rows, in {self._graphs.seconds:.1f} s"

    @property
    def num_recorded_bytes(self) -> int:
        """Of the device, by which recording made this process grow."""
        return 0 if self._graphs is None else self._graphs.num_bytes

    @property
    def num_bytes(self) -> int:
        """Of the device, kept between steps beside weights and slab."""
        return self._steps.num_bytes

    # ---- details -----------------------------------------------------------------------------------------------

    def _compute(self, spans: Sequence[draft_pages.Span], *, samples: bool) -> device_steps.Launched:
        """Only what is queued on the device counts as there: memory may run out in the middle."""
        rows = draft_pages.rows(spans, samples=samples)
        launched = self._replayed(rows) if samples else None
        if launched is None:
            launched = self._steps.launch(rows)
        self._pages.fill(spans)
        return launched

    def _replayed(self, rows: slots.Rows) -> device_steps.Launched | None:
        if self._graphs is None or rows.counts.max() > _FEW_TOKENS:
            return None
        single = device_verifying.in_single_tokens(rows, np.ones(len(rows.counts), dtype=np.bool_), all_sample=False)
        recorded = self._graphs.find(single.slots.size)
        return None if recorded is None else self._steps.replay(recorded, single)

    def _sampled(self, launched: device_steps.Launched) -> tuple[list[device_results.Row | None], torch.Tensor]:
        """What was drawn, and what the sampler says of it, before the next step uses the same memory."""
        if launched.sampled is None:
            raise RuntimeError("a draft step drew nothing")
        codes = launched.sampled.broken.to(self._accelerator.device, torch.int32, copy=True)
        rows: list[device_results.Row | None] = [None] * len(codes)
        for row, slot in zip(launched.at.tolist(), launched.slots.tolist(), strict=True):
            rows[row] = device_results.Row(slot, None)
        return rows, codes


class _SameTokens:
    """A model with logits as wide as the first model's: `batches.Model`."""

    def __init__(self, model: batches.Model, vocab: int) -> None:
        self._model = model
        self._own_vocab = model.spec.vocab_size
        self._vocab = vocab

    @property
    def spec(self) -> model_spec.ModelSpec:
        return dataclasses.replace(self._model.spec, vocab_size=self._vocab)

    def forward(self, batch: batches.ForwardBatch, memory: batches.KVMemory) -> torch.Tensor:
        """float32 [S, vocab]; tokens that the model does not know are impossible."""
        if self._own_vocab == self._vocab:
            return self._model.forward(batch, memory)
        # Only the first model's padding lies beyond this one's tokens: whatever stands there instead, guesses differ.
        known = dataclasses.replace(batch, token_ids=batch.token_ids.clamp(max=self._own_vocab - 1))
        own = self._model.forward(known, memory)
        if self._own_vocab > self._vocab:
            return own[:, : self._vocab]
        missing = own.new_full((own.shape[0], self._vocab - self._own_vocab), _IMPOSSIBLE)
        return torch.cat((own, missing), dim=1)
