"""The worker without a device: takes the plans of the real scheduler, says how long they would take, makes up tokens.

No tensors and no torch. The token at a position depends on the sequence's seed and on that position alone, as it does
with the real sampler; so text is the same whoever shares the batch and however often a sequence was preempted, and a
sequence's true length is known beforehand: it ends where its stop token stands (`token_at`).

Time is not kept here: `execute` answers at once and says in `execute_seconds` what a device would have needed. Whoever
calls it moves the clock (`simulation.virtual_time`).
"""

from __future__ import annotations

from tidemark_runtime.core import step_plan, step_time
from tidemark_runtime.worker import interface, step_cost

_FIRST_TOKEN = 1_000
_SPREAD = 1 << 20
_MULTIPLIER = 2_654_435_761
"""Knuth's, 2^32 over the golden ratio: neighbouring seeds get tokens far apart."""


def token_at(seed: int, position: int) -> int:
    """The token that a sequence of this seed has at `position`, counted from the first of its prompt."""
    return _base(seed) + position


def prompt(seed: int, num_tokens: int, num_shared: int = 0, shared_seed: int = 0) -> list[int]:
    """A prompt that no other seed has; its first `num_shared` tokens are those of `shared_seed`."""
    shared = min(num_shared, num_tokens)
    first, own = _base(shared_seed), _base(seed)
    return [*range(first, first + shared), *range(own + shared, own + num_tokens)]


class SimulatedWorker:
    """Implements `interface.Worker`. What it does in a step costs a little for each slot that samples, no more."""

    def __init__(self, facts: interface.WorkerFacts, cost: step_cost.StepCost) -> None:
        self._facts = facts
        self._cost = cost
        self._bases: dict[int, int] = {}
        """Slot -> token at position 0 of the sequence in it."""
        self._lengths: dict[int, int] = {}
        """Slot -> tokens known, of those that do not decode; decoding ones are `_steady`'s."""
        self._steady = _Steady()
        self.num_pages_copied_out = 0
        self.num_pages_copied_in = 0

    @property
    def facts(self) -> interface.WorkerFacts:
        return self._facts

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Raises ValueError for a plan that contradicts what was computed before."""
        if plan.decodes is not self._steady.slots:
            self._settle(plan.decodes)
        for join in plan.joins:
            self._join(join)
        if self._steady.is_new:
            self._steady.fill(self._bases, self._lengths)
        tokens = self._steady.next_tokens()
        tokens_read = self._steady.num_tokens_read
        if plan.chunks:
            prompt_tokens, prompt_read, pairs, sampled = self._compute(plan.chunks)
            work = step_time.Work(len(plan.decodes), prompt_tokens, tokens_read, pairs)
            tokens += sampled
        else:
            prompt_read = 0
            work = step_time.Work(len(plan.decodes), 0, tokens_read, 0)
        num_copies = len(plan.swaps_out) + len(plan.swaps_in)
        self.num_pages_copied_out += len(plan.swaps_out)
        self.num_pages_copied_in += len(plan.swaps_in)
        seconds = self._cost.seconds(work, prompt_read, num_copies)
        return step_plan.StepResult(plan.step, tokens, (None,) * len(tokens), seconds.total, seconds.copies)

    def close(self) -> None:
        """Nothing to give back."""

    def _settle(self, decodes: tuple[int, ...]) -> None:
        """Somebody has entered or left the set of those that decode."""
        self._lengths.update(self._steady.lengths())
        self._steady = _Steady(decodes)

    def _join(self, join: step_plan.Join) -> None:
        base, length = _base(join.params.seed), len(join.token_ids)
        if length > join.num_prompt_tokens and join.token_ids[-1] != base + length - 1:
            raise ValueError(
                f"slot {join.slot}: token {length - 1} is {join.token_ids[-1]}, but {base + length - 1} was sampled"
            )
        self._bases[join.slot] = base
        self._lengths[join.slot] = length

    def _compute(self, chunks: tuple[step_plan.Chunk, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        """Tokens computed, tokens read, pairs, and what is sampled."""
        num_tokens = num_read = num_pairs = 0
        sampled = []
        for chunk in chunks:
            start, count = chunk.start, chunk.count
            length = self._lengths[chunk.slot]
            if start + count > length or chunk.samples != (start + count == length):
                raise ValueError(f"{chunk} contradicts the {length} tokens of its slot")
            num_tokens += count
            num_read += start
            num_pairs += count * start + count * (count + 1) // 2
            if chunk.samples:
                sampled.append(self._bases[chunk.slot] + length)
                self._lengths[chunk.slot] = length + 1
        return num_tokens, num_read, num_pairs, tuple(sampled)


class _Steady:
    """The slots that decode, for as long as nobody enters or leaves: each gets one token in every step."""

    def __init__(self, slots: tuple[int, ...] = ()) -> None:
        self.slots = slots
        self.is_new = bool(slots)
        self.num_tokens_read = 0
        """By the step that `next_tokens` was called for: each its whole context, the token it computes included."""
        self._first_tokens: list[int] = []
        """What each sampled first, and so `_num_steps` less than what it samples next."""
        self._first_lengths: list[int] = []
        self._num_steps = 0

    def fill(self, bases: dict[int, int], lengths: dict[int, int]) -> None:
        """Look up those that decode now; called once, after the joins of the first step."""
        self.is_new = False
        self._first_lengths = [lengths[slot] for slot in self.slots]
        self._first_tokens = [bases[slot] + lengths[slot] for slot in self.slots]
        self.num_tokens_read = sum(self._first_lengths) - len(self.slots)

    def next_tokens(self) -> tuple[int, ...]:
        if not self.slots:
            return ()
        step = self._num_steps
        self._num_steps = step + 1
        self.num_tokens_read += len(self.slots)
        return tuple([token + step for token in self._first_tokens])

    def lengths(self) -> dict[int, int]:
        """Tokens known now, by slot."""
        return {slot: length + self._num_steps for slot, length in zip(self.slots, self._first_lengths, strict=True)}


def _base(seed: int) -> int:
    return _FIRST_TOKEN + (seed * _MULTIPLIER) % _SPREAD
