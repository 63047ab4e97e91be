"""Decides what each step computes: running sequences first, then chunks of prompts, within a budget of tokens.

Rules, in the order in which they are asked:

1. Sequences that need one token go first, so that a long prompt never delays a running answer; then running ones
   that need more (a prompt in progress), then waiting ones in turn.
2. A waiting sequence starts when *all* its known tokens fit in free pages, with `_RESERVE_RATIO` of the pages left
   over unless nothing runs. It gets those pages at once, so that prompts in progress cannot lock each other out.
3. When a running sequence needs a page and none is free, a victim loses its pages and is computed again later, in
   its old turn. Nothing that was generated is lost. In a step with a victim nobody starts.
4. A sequence that was a victim `max_preemptions_per_request` times starts again only when pages for all it may ever
   need are free, and gets them. So it is never a victim again, never waits for a page, and always ends: with at
   least one such sequence the engine makes progress, and without one the oldest can take pages from all others.
5. Who could never have enough pages is refused at arrival (`refusal`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import block_pool, sequence, step_plan, waiting_queue

_RESERVE_RATIO = 0.05
"""Pages kept free when a sequence starts beside running ones, so that these can grow. With 5 % vLLM's preemptions
fell from 1,065 to 187 under pressure, at 5 % more throughput (vllm-project/vllm#44594)."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token that came back for a sequence that still wanted it."""

    sequence: sequence.Sequence
    token_id: int
    logprobs: step_plan.TokenLogprobs | None


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    preemptions: int = 0
    resumes: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class Scheduler:
    """Owns all sequences and the block pool. Pure: no clock, no I/O, no tensors."""

    def __init__(
        self, settings: config.SchedulerConfig, *, num_pages: int, block_size: int, max_context_tokens: int
    ) -> None:
        self._settings = settings
        self._block_size = block_size
        self._max_context_tokens = max_context_tokens
        self._pool = block_pool.BlockPool(num_pages)
        self._waiting = waiting_queue.WaitingQueue()
        self._running: list[sequence.Sequence] = []
        self._free_slots = list(range(settings.max_num_seqs - 1, -1, -1))
        self._step = 0
        self._planned: dict[int, tuple[sequence.Sequence, ...]] = {}
        """Steps in flight -> whose tokens they sample, in the plan's order."""
        self._first_turns: list[float] = []
        self.counters = Counters()

    def configure(self, settings: config.SchedulerConfig) -> None:
        """Decide by `settings` from the next `schedule` on; who runs or waits already stays where it is.

        Raises `ValueError` for another `max_num_seqs`: the slots are made once.
        """
        if settings.max_num_seqs != self._settings.max_num_seqs:
            raise ValueError(f"max_num_seqs is {self._settings.max_num_seqs} for good, got {settings.max_num_seqs}")
        self._settings = settings

    # ---- what callers may know -------------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_pages(self) -> int:
        return self._pool.num_pages

    @property
    def num_pages_used(self) -> int:
        return self._pool.num_used

    @property
    def num_tokens_in_pages(self) -> int:
        """Tokens whose KV is in used pages; what is missing to `num_pages_used * block_size` is fragmentation."""
        return sum(entry.num_computed for entry in self._running)

    @property
    def max_request_tokens(self) -> int:
        """Prompt and output together of the longest request that can be served."""
        return min(self._max_context_tokens, self._pool.num_pages * self._block_size)

    @property
    def has_work(self) -> bool:
        return bool(self._running or len(self._waiting))

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of those that have not had a first turn, the one that waits longest."""
        return self._waiting.oldest_fresh()

    def refusal(self, num_tokens: int) -> str | None:
        """Why a request of so many tokens (prompt and output) can never be served, with the sum; None if it can."""
        capacity = self._pool.num_pages * self._block_size
        if num_tokens <= self.max_request_tokens:
            return None
        if num_tokens <= capacity:
            return (
                f"the request may become {num_tokens} tokens long, but the context is limited to "
                f"{self._max_context_tokens} tokens. Shorten the prompt or lower max_tokens."
            )
        return (
            f"the request may need {num_tokens} tokens of KV memory ({self._pages_for(num_tokens)} pages of "
            f"{self._block_size}), but the whole slab has {self._pool.num_pages} pages ({capacity} tokens): it can "
            "never fit. Shorten the prompt, lower max_tokens, or give the service more KV memory."
        )

    def room(self) -> int:
        """How many more requests may arrive: free places in the batch plus free places in the queue."""
        free = self._settings.max_num_seqs - len(self._running)
        return self._settings.max_queued_requests + free - len(self._waiting)

    def take_first_turns(self) -> list[float]:
        """Times of arrival of those that had their first turn since the last call."""
        taken, self._first_turns = self._first_turns, []
        return taken

    # ---- the three things that happen ------------------------------------------------------------------------

    def add(self, entry: sequence.Sequence) -> None:
        """Accept a sequence; the caller has asked `refusal` and `room`."""
        self._waiting.add(entry)

    def finish(self, entry: sequence.Sequence) -> None:
        """Take everything from a sequence, wherever it is. Idempotent.

        Pages may be reused at once, although a step in flight may still write to them: steps execute in order, so
        that write comes before any of the next holder's.
        """
        if entry.state is sequence.State.RUNNING:
            self._running.remove(entry)
            self._release(entry)
        elif entry.state is sequence.State.WAITING:
            self._waiting.left()
        entry.state = sequence.State.FINISHED

    def schedule(self) -> step_plan.StepPlan | None:
        """The next step, or None when there is nothing to compute. May be called with a step in flight."""
        budget = self._settings.max_num_batched_tokens
        chunks: list[tuple[sequence.Sequence, step_plan.Chunk]] = []
        joins: list[step_plan.Join] = []
        num_preempted = self.counters.preemptions
        for entry in self._running_in_turn():
            # One before it in this loop may have taken its pages. Never the other way round: only sequences that
            # need one token can be short of a page (rule 2), they come in order of arrival, and victims are later.
            if budget > 0 and entry.state is sequence.State.RUNNING:
                count = min(entry.num_uncomputed, budget)
                pages = self._grow(entry, count)
                if pages is not None:
                    chunks.append((entry, self._advance(entry, count, pages)))
                    budget -= count
        if self.counters.preemptions == num_preempted:
            while budget > 0 and (starter := self._start_next()) is not None:
                join, entry, pages = starter
                count = min(entry.num_uncomputed, budget)
                joins.append(join)
                chunks.append((entry, self._advance(entry, count, pages)))
                budget -= count
        if not chunks:
            return None
        self._step += 1
        self._planned[self._step] = tuple(entry for entry, chunk in chunks if chunk.samples)
        return step_plan.StepPlan(self._step, tuple(joins), tuple(chunk for _, chunk in chunks))

    def update(self, result: step_plan.StepResult) -> list[Sampled]:
        """Book the tokens of a step. Those of sequences that have ended meanwhile are dropped."""
        sampled: list[Sampled] = []
        sampling_sequences = self._planned.pop(result.step)
        for entry, token_id, logprobs in zip(sampling_sequences, result.token_ids, result.logprobs, strict=True):
            if entry.state is not sequence.State.FINISHED:
                entry.num_pending -= 1
                entry.token_ids.append(token_id)
                self.counters.generated_tokens += 1
                sampled.append(Sampled(entry, token_id, logprobs))
        return sampled

    def check_integrity(self) -> None:
        """Raise `PoolCorrupted` unless pages, slots and counts add up."""
        self._pool.check_integrity(page for entry in self._running for page in entry.pages)
        slots = sorted([*self._free_slots, *(entry.slot for entry in self._running)])
        if slots != list(range(self._settings.max_num_seqs)):
            raise block_pool.PoolCorrupted(f"free and used slots are {slots}")
        if len(self._waiting) != sum(1 for _ in self._waiting):
            raise block_pool.PoolCorrupted("the count of waiting sequences is wrong")
        for entry in self._running:
            if len(entry.pages) < self._pages_for(entry.num_computed):
                raise block_pool.PoolCorrupted(
                    f"sequence {entry.id} has {entry.num_computed} tokens computed in {len(entry.pages)} pages"
                )

    # ---- how it decides --------------------------------------------------------------------------------------

    def _running_in_turn(self) -> Iterable[sequence.Sequence]:
        """Those that need one token, then those that need more, each in order of arrival."""
        wanting = [(entry.num_uncomputed, entry) for entry in self._running]
        return [entry for need, entry in wanting if need == 1] + [entry for need, entry in wanting if need > 1]

    def _start_next(self) -> tuple[step_plan.Join, sequence.Sequence, tuple[int, ...]] | None:
        """Let the head of the queue start, if a slot and its pages are free."""
        entry = self._waiting.head()
        if entry is None or not self._free_slots:
            return None
        guaranteed = entry.num_preemptions >= self._settings.max_preemptions_per_request
        num_tokens = entry.num_max_tokens if guaranteed else entry.num_known
        count = self._pages_for(num_tokens)
        reserve = math.ceil(self._pool.num_pages * _RESERVE_RATIO) if self._running else 0
        if count + reserve > self._pool.num_free:
            return None
        pages = self._pool.allocate(count)
        assert pages is not None  # noqa: S101  num_free was asked in the line above
        self._waiting.pop()
        if entry.started:
            self.counters.resumes += 1
        else:
            self._first_turns.append(entry.arrival_seconds)
        entry.slot = self._free_slots.pop()
        entry.pages = list(pages)
        entry.state = sequence.State.RUNNING
        entry.started = True
        self._running.append(entry)
        self._running.sort(key=lambda item: item.order)
        join = step_plan.Join(entry.slot, tuple(entry.token_ids), entry.num_prompt_tokens, entry.params)
        return join, entry, pages

    def _needs_no_more(self, entry: sequence.Sequence) -> bool:
        """Has all the pages it may ever need, and so is no victim: it will give them back by itself."""
        return len(entry.pages) >= self._pages_for(entry.num_max_tokens)

    def _grow(self, entry: sequence.Sequence, count: int) -> tuple[int, ...] | None:
        """Pages for `count` more tokens, taken from victims if need be; None if it became the victim itself."""
        missing = self._pages_for(entry.num_computed + count) - len(entry.pages)
        if missing <= 0:
            return ()
        while (pages := self._pool.allocate(missing)) is None:
            victim = self._victim(entry)
            self._preempt(victim)
            if victim is entry:
                return None
        entry.pages.extend(pages)
        return pages

    def _victim(self, needy: sequence.Sequence) -> sequence.Sequence:
        """Of `needy` and those that arrived later: the least often preempted, and of these the latest.

        Not simply the latest: that would be the one that just came back, again and again.
        """
        candidates = [entry for entry in self._running if entry.order >= needy.order and not self._needs_no_more(entry)]
        return min(candidates, key=lambda entry: (entry.num_preemptions, -entry.order))

    def _preempt(self, entry: sequence.Sequence) -> None:
        self._running.remove(entry)
        self._release(entry)
        entry.state = sequence.State.WAITING
        entry.num_computed = 0
        entry.num_preemptions += 1
        self.counters.preemptions += 1
        self._waiting.add_preempted(entry)

    def _release(self, entry: sequence.Sequence) -> None:
        self._pool.free(entry.pages)
        entry.pages = []
        self._free_slots.append(entry.slot)
        entry.slot = -1

    def _advance(self, entry: sequence.Sequence, count: int, pages: tuple[int, ...]) -> step_plan.Chunk:
        """Book `count` tokens as computed, and a token as pending where the chunk reaches the last known one."""
        start = entry.num_computed
        entry.num_computed += count
        self.counters.prompt_tokens += max(0, min(entry.num_computed, entry.num_prompt_tokens) - start)
        samples = entry.num_computed == entry.num_known + entry.num_pending
        entry.num_pending += samples
        return step_plan.Chunk(entry.slot, start, count, pages, samples)

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)
