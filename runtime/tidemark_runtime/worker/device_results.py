"""What a step on a device has brought: read by the thread that waits, from memory of the host that the device wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tidemark_kernels import reference_sampling
from tidemark_kernels.device import sampling as device_sampling
from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import accelerators, device_buffers, device_verifying, draft_model, out_of_memory


@dataclass(frozen=True, slots=True)
class Row:
    """One that samples."""

    slot: int
    num_logprobs: int | None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a step will bring."""

    step: int
    rows: tuple[Row, ...] = ()
    """All that sample, those of `verifications` last."""
    verifications: tuple[step_plan.Verification, ...] = ()
    """With the guesses that the host knows."""
    drafted: tuple[Row | None, ...] = ()
    """What the draft model sampled, which then made the guesses of `verifications`; None for rows that nobody reads."""

    @property
    def num_plain(self) -> int:
        """Rows of no verification."""
        return len(self.rows) - sum(each.count + 1 for each in self.verifications)


@dataclass(frozen=True, slots=True)
class Brought:
    """On the device."""

    sampled: device_sampling.Sampled
    guesses: torch.Tensor | None = None
    """Of a draft model, int32 [all of them]."""
    drafted_broken: torch.Tensor | None = None
    """int32 [rows that it sampled], as the sampler's."""

    def returned(self, accelerator: accelerators.Accelerator) -> device_buffers.Returned:
        """On its way to the host."""
        of_draft = [part for part in (self.guesses, self.drafted_broken) if part is not None]
        return device_buffers.Returned(accelerator, [*of_draft, *_parts(self.sampled)])


class Launched:
    """A step that is on its way. Made by the thread that launches; read by another one, or by both."""

    def __init__(self, expected: Expected, marks: Marks, returned: device_buffers.Returned | None) -> None:
        self.expected = expected
        self._marks = marks
        self._returned = returned

    @property
    def is_over(self) -> bool:
        """Whether the device has computed it. Does not wait."""
        return self._marks.end.query()

    def result(self) -> step_plan.StepResult:
        """Waits for the step. Raises OutOfMemory, or EngineError where logits of a row that counts are no numbers."""
        expected = self.expected
        with out_of_memory.told("in a step"):
            self._marks.end.synchronize()
        total, swap_seconds = self._marks.seconds()
        if self._returned is None:
            return step_plan.StepResult(expected.step, (), (), total, swap_seconds)
        ids, logprobs, verified = self._read(self._returned)
        return step_plan.StepResult(expected.step, ids, logprobs, total, swap_seconds, verified=verified)

    def verified(self) -> tuple[step_plan.Verified, ...]:
        """As `result` says it. Waits and raises as that does."""
        return self.result().verified

    def _read(
        self, returned: device_buffers.Returned
    ) -> tuple[tuple[int, ...], tuple[step_plan.TokenLogprobs | None, ...], tuple[step_plan.Verified, ...]]:
        expected, arrays = self.expected, [array.tolist() for array in returned.arrays()]
        guesses = [token for each in expected.verifications for token in each.guesses]
        if expected.drafted:
            guesses, drafted_broken = arrays[:2]
            del arrays[:2]
            _refuse_broken(zip(expected.drafted, drafted_broken, strict=True), draft_model.named)
        token_ids, broken, *logprobs = arrays
        plain = expected.num_plain
        outcome = device_verifying.outcome(expected.verifications, guesses, token_ids[plain : len(expected.rows)])
        kept = [*range(plain), *(plain + row for row in outcome.rows)]
        _refuse_broken((expected.rows[row], broken[row]) for row in kept)
        told = tuple(_logprobs(expected.rows[row], row, logprobs) for row in kept)
        return tuple(token_ids[row] for row in kept), told, tuple(outcome.verified)


@dataclass(slots=True)
class Marks:
    """Where a step begins in the stream, where it may compute, where it ends."""

    accelerator: accelerators.Accelerator
    since: accelerators.Event | None = None
    """The end of the step before, where this one waited for its result: what the host did meanwhile is a part of it."""
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
        total = (self.since or self.begin).elapsed_time(self.end) / 1e3
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


def _refuse_broken(rows: Iterable[tuple[Row | None, int]], named: Callable[[str], str] = str) -> None:
    for row, code in rows:
        if code and row is not None:
            raise errors.EngineError(named(_BROKEN[code].format(slot=row.slot)))


def _parts(sampled: device_sampling.Sampled) -> list[torch.Tensor]:
    every = (sampled.token_ids, sampled.broken, sampled.logprobs, sampled.top_ids, sampled.top_logprobs)
    return [part for part in every if part is not None]


def _logprobs(row: Row, at: int, found: Sequence[list[Any]]) -> step_plan.TokenLogprobs | None:
    """`found`: by row, of the chosen tokens, ids and log-probabilities of the most likely ones; empty where none were
    asked for."""
    if row.num_logprobs is None or not found:
        return None
    chosen, top_ids, top = found
    return step_plan.TokenLogprobs(
        chosen[at], tuple(top_ids[at][: row.num_logprobs]), tuple(top[at][: row.num_logprobs])
    )
