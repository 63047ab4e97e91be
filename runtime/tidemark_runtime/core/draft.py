"""A plan while it is being made, and what is remembered of it until its result is back."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_runtime.core import sequence, step_plan, step_time


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a step that was planned will bring."""

    work: step_time.Work
    sampling: tuple[sequence.Sequence, ...]
    """Whose tokens it samples, in the order in which they come back."""
    filled: list[tuple[sequence.Sequence, int]]
    """Sequences whose first so many tokens have their KV in pages after it."""
    swaps_out: tuple[step_plan.Copy, ...]
    num_swaps_in: int
    verifying: tuple[sequence.Sequence, ...] = ()
    """Whose guesses it checks: their tokens come last."""


@dataclass(slots=True)
class Draft:
    """Filled in the order in which `Scheduler.schedule` decides."""

    step: int
    swaps_out: list[step_plan.Copy] = field(default_factory=list)
    swaps_in: list[step_plan.Copy] = field(default_factory=list)
    joins: list[step_plan.Join] = field(default_factory=list)
    new_pages: list[step_plan.NewPages] = field(default_factory=list)
    chunks: list[step_plan.Chunk] = field(default_factory=list)
    chunk_samples: list[sequence.Sequence] = field(default_factory=list)
    """Who samples from a chunk, in the order of the chunks."""
    filled: list[tuple[sequence.Sequence, int]] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_pairs: int = 0
    verifications: list[step_plan.Verification] = field(default_factory=list)
    verifying: list[sequence.Sequence] = field(default_factory=list)
    """Whose guesses are checked, in the order of the verifications."""
    had_to_preempt: bool = False
    """A running sequence found no free page."""

    @property
    def is_empty(self) -> bool:
        """But for decodes."""
        return not (self.chunks or self.joins or self.swaps_out or self.swaps_in or self.verifications)

    def forget_slot(self, slot: int) -> None:
        """Who held `slot` takes no part in this step after all."""
        self.new_pages = [grown for grown in self.new_pages if grown.slot != slot]

    def join(self, entry: sequence.Sequence) -> None:
        """`entry` takes part from this step on."""
        tokens, pages = tuple(entry.token_ids), tuple(entry.pages)
        self.joins.append(step_plan.Join(entry.slot, tokens, entry.num_prompt_tokens, entry.params, pages))

    def add_chunk(self, entry: sequence.Sequence, count: int) -> None:
        """The next `count` tokens of `entry`, and the token after them where they are the last known ones."""
        start = entry.num_computed
        entry.num_computed += count
        samples = entry.num_uncomputed == 0
        self.chunks.append(step_plan.Chunk(entry.slot, start, count, samples))
        self.filled.append((entry, entry.num_computed))
        self.num_prompt_tokens += count
        self.num_pairs += count * start + count * (count + 1) // 2
        if samples:
            entry.num_sampled += 1
            self.chunk_samples.append(entry)

    def verify(self, entry: sequence.Sequence, count: int, guesses: tuple[int, ...]) -> None:
        """The last known token of `entry`, which does not decode in this step, and `count` guesses; until the result is
        back it counts as a decode."""
        entry.num_computed += 1
        entry.num_sampled += 1
        self.verifications.append(step_plan.Verification(entry.slot, count, guesses))
        self.verifying.append(entry)

    def plan(self, decodes: tuple[int, ...]) -> step_plan.StepPlan:
        return step_plan.StepPlan(
            step=self.step,
            swaps_out=tuple(self.swaps_out),
            swaps_in=tuple(self.swaps_in),
            joins=tuple(self.joins),
            new_pages=tuple(self.new_pages),
            decodes=decodes,
            chunks=tuple(self.chunks),
            verifications=tuple(self.verifications),
        )

    def in_flight(self, decoding: tuple[sequence.Sequence, ...], tokens_read: int) -> InFlight:
        """`decoding`: whose tokens the decodes of the plan sample. The work is what it is without guesses."""
        num_decodes = len(decoding)
        if self.verifying:
            num_decodes += len(self.verifying)
            tokens_read += sum(entry.num_computed for entry in self.verifying)
        work = step_time.Work(num_decodes, self.num_prompt_tokens, tokens_read, self.num_pairs)
        sampling = (*decoding, *self.chunk_samples) if self.chunk_samples else decoding
        swaps_out, verifying = tuple(self.swaps_out), tuple(self.verifying)
        return InFlight(work, sampling, self.filled, swaps_out, len(self.swaps_in), verifying)
