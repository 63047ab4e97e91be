"""Random but valid plans: whatever a scheduler might do, with preemption, swapping and shared pages.

It makes plans and checks nothing itself; whoever runs them compares each sequence's text with what it gets alone.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.worker import interface


@dataclass(eq=False)
class Running:
    """A sequence as the driver sees it."""

    prompt: list[int]
    params: sampling.SamplingParams
    tokens: list[int] = field(default_factory=list)
    slot: int | None = None
    num_computed: int = 0
    pages: list[int] = field(default_factory=list)
    host_pages: list[int] = field(default_factory=list)
    """While it is swapped out or comes back; `pages` are then the ones it comes back to."""
    num_copied: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def done(self) -> bool:
        return len(self.tokens) == len(self.prompt) + self.params.max_tokens


@dataclass
class _Parts:
    """Of the plan that is being made."""

    swaps_out: list[step_plan.Copy] = field(default_factory=list)
    swaps_in: list[step_plan.Copy] = field(default_factory=list)
    joins: list[step_plan.Join] = field(default_factory=list)
    new_pages: list[step_plan.NewPages] = field(default_factory=list)
    decodes: list[Running] = field(default_factory=list)
    chunks: list[tuple[Running, step_plan.Chunk]] = field(default_factory=list)
    verifications: list[tuple[Running, step_plan.Verification]] = field(default_factory=list)
    freed_host_pages: list[int] = field(default_factory=list)
    """Read in this plan, which comes after its copies to the host: free from the next plan on."""
    shareable: list[tuple[Running, int]] = field(default_factory=list)
    """Who had how many full pages written before this plan."""

    def plan(self, step: int) -> step_plan.StepPlan:
        return step_plan.StepPlan(
            step=step,
            swaps_out=tuple(self.swaps_out),
            swaps_in=tuple(self.swaps_in),
            joins=tuple(self.joins),
            new_pages=tuple(self.new_pages),
            decodes=tuple(entry.slot for entry in self.decodes if entry.slot is not None),
            chunks=tuple(chunk for _, chunk in self.chunks),
            verifications=tuple(each for _, each in self.verifications),
        )


class Driver:
    def __init__(
        self,
        chance: random.Random,
        sequences: list[Running],
        facts: interface.WorkerFacts,
        num_slots: int,
        guess: Callable[[Running, int], list[int]] | None = None,
    ) -> None:
        """`guess`: so many tokens that may come next, right or wrong; None: nothing is guessed."""
        self._guess = guess
        self._verifying: list[tuple[Running, step_plan.Verification]] = []
        """In the plan made last."""
        self._chance = chance
        self._sequences = sequences
        self._block_size = facts.layout.block_size
        self._free_pages = list(range(facts.num_pages))
        self._num_holders: collections.Counter[int] = collections.Counter()
        self._free_host_pages = list(range(facts.num_host_pages))
        self._free_slots = list(range(num_slots))
        self._step = 0
        self.num_swapped_pages = 0
        self.num_shared_pages = 0
        self.num_copies_only = 0
        self.num_guesses = 0
        self.num_right = 0
        """Of the guesses."""
        self.wrong_after: list[int] = []
        """Positions of the tokens after which a guess was wrong."""

    def run(self, worker: interface.Worker) -> None:
        """Until every sequence has its tokens."""
        while not all(entry.done for entry in self._sequences):
            plan, sampled = self._plan()
            if plan is None:
                held = [entry for entry in self._sequences if entry.pages]
                if held and self._chance.random() < 0.5:
                    self._drop(self._chance.choice(held))
                continue
            result = worker.execute(plan)
            for (entry, each), outcome in zip(self._verifying, result.verified, strict=True):
                assert outcome.num_guesses == each.count or not each.guesses
                assert 1 <= outcome.num_tokens <= outcome.num_guesses + 1 <= each.count + 1
                self.num_guesses += outcome.num_guesses
                if outcome.num_tokens <= outcome.num_guesses:
                    self.wrong_after.append(len(entry.tokens) + outcome.num_tokens - 2)
                sampled += [entry] * outcome.num_tokens
                entry.num_computed += outcome.num_tokens
                self.num_right += outcome.num_tokens - 1
            assert (result.step, len(result.token_ids)) == (plan.step, len(sampled))
            assert result.execute_seconds >= result.swap_seconds >= 0
            for entry, token, logprobs in zip(sampled, result.token_ids, result.logprobs, strict=True):
                assert logprobs is None or entry.params.num_logprobs is not None
                entry.tokens.append(token)
                if entry.done:
                    self._drop(entry)

    def _plan(self) -> tuple[step_plan.StepPlan | None, list[Running]]:
        """The next plan, and who samples in the order of results; None where chance picked nothing."""
        parts = _Parts()
        for entry in self._sequences:
            if entry.pages and not entry.host_pages and self._chance.random() < 0.15:
                self._preempt(entry, parts)
        parts.shareable = [
            (entry, entry.num_computed // self._block_size)
            for entry in self._sequences
            if entry.pages and not entry.host_pages
        ]
        for entry in self._chance.sample(self._sequences, len(self._sequences)):
            if not entry.done and self._chance.random() < 0.7 and self._is_in(entry, parts):
                self._compute(entry, parts)
        self._free_host_pages += parts.freed_host_pages
        plan = parts.plan(self._step + 1)
        if not (plan.num_sequences or plan.swaps_out or plan.swaps_in or plan.joins):
            return None, []
        self._step += 1
        self._verifying = parts.verifications
        self.num_copies_only += not plan.num_sequences
        return plan, [*parts.decodes, *(entry for entry, chunk in parts.chunks if chunk.samples)]

    def _preempt(self, entry: Running, parts: _Parts) -> None:
        """Swapped out where there is room, else to be computed again."""
        num_full = -(-entry.num_computed // self._block_size)
        if not 0 < num_full <= len(self._free_host_pages):
            self._drop(entry)
            return
        host_pages = [self._free_host_pages.pop() for _ in range(num_full)]
        parts.swaps_out += map(step_plan.Copy, entry.pages, host_pages)
        num_computed = entry.num_computed
        self._drop(entry)
        entry.host_pages, entry.num_computed = host_pages, num_computed
        self.num_swapped_pages += num_full

    def _drop(self, entry: Running) -> None:
        """Slot and pages, those of the host too, are free for others at once."""
        if entry.slot is not None:
            self._free_slots.append(entry.slot)
        for page in entry.pages:
            self._num_holders[page] -= 1
            if not self._num_holders[page]:
                self._free_pages.append(page)
        self._free_host_pages += entry.host_pages
        self._chance.shuffle(self._free_pages)
        self._chance.shuffle(self._free_host_pages)
        entry.slot, entry.num_computed, entry.num_copied = None, 0, 0
        entry.pages, entry.host_pages = [], []

    def _is_in(self, entry: Running, parts: _Parts) -> bool:
        """Brings `entry` into the batch, or a part of the way; True where it may compute now."""
        if entry.host_pages:
            return self._copy_back(entry, parts)
        if entry.slot is None:
            if not self._free_slots or not self._free_pages:
                return False
            entry.slot = self._free_slots.pop()
            self._share(entry, parts)
            self._join(entry, parts)
        return True

    def _copy_back(self, entry: Running, parts: _Parts) -> bool:
        if entry.slot is None:
            if not self._free_slots or len(entry.host_pages) > len(self._free_pages):
                return False
            entry.slot = self._free_slots.pop()
            entry.pages = self._take(len(entry.host_pages))
        end = self._chance.randint(entry.num_copied, len(entry.host_pages))
        copied = zip(entry.pages[entry.num_copied : end], entry.host_pages[entry.num_copied : end], strict=True)
        parts.swaps_in += [step_plan.Copy(page, host_page) for page, host_page in copied]
        entry.num_copied = end
        if end < len(entry.host_pages):
            return False
        parts.freed_host_pages += entry.host_pages
        entry.host_pages, entry.num_copied = [], 0
        self._join(entry, parts)
        return True

    def _share(self, entry: Running, parts: _Parts) -> None:
        """Begin with the pages of another sequence that begins with the same tokens."""
        for other, num_full in parts.shareable:
            same = 0
            for mine, its in zip(entry.tokens[:-1], other.tokens, strict=False):
                if mine != its:
                    break
                same += 1
            # It may have been dropped, or have come back to other pages, since the list was made.
            shared = other.pages[: min(num_full, same // self._block_size)] if other is not entry else []
            if shared and other.num_computed >= num_full * self._block_size and not other.host_pages:
                self._num_holders.update(shared)
                entry.pages, entry.num_computed = list(shared), len(shared) * self._block_size
                self.num_shared_pages += len(shared)
                return

    def _join(self, entry: Running, parts: _Parts) -> None:
        assert entry.slot is not None
        spare = self._chance.randint(0, min(2, len(self._free_pages)))
        most = -(-len(entry.tokens) // self._block_size)
        entry.pages += self._take(max(0, min(spare, most - len(entry.pages))))
        tokens, num_prompt = tuple(entry.tokens), len(entry.prompt)
        parts.joins.append(step_plan.Join(entry.slot, tokens, num_prompt, entry.params, tuple(entry.pages)))

    def _compute(self, entry: Running, parts: _Parts) -> None:
        assert entry.slot is not None
        start = entry.num_computed
        if self._guess is not None and start == len(entry.tokens) - 1 and self._chance.random() < 0.6:
            self._verify(entry, self._guess, parts)
            return
        count = self._chance.randint(1, len(entry.tokens) - start)
        end = start + count
        num_new = max(0, -(-end // self._block_size) - len(entry.pages))
        if num_new > len(self._free_pages):
            return
        if num_new:
            pages = self._take(num_new)
            entry.pages += pages
            parts.new_pages.append(step_plan.NewPages(entry.slot, tuple(pages)))
        samples = end == len(entry.tokens)
        if samples and count == 1 and self._chance.random() < 0.8:
            parts.decodes.append(entry)
        else:
            parts.chunks.append((entry, step_plan.Chunk(entry.slot, start, count, samples)))
        entry.num_computed = end

    def _verify(self, entry: Running, guess: Callable[[Running, int], list[int]], parts: _Parts) -> None:
        """Its last token with as many guesses as it may still generate, or fewer."""
        assert entry.slot is not None
        left = len(entry.prompt) + entry.params.max_tokens - len(entry.tokens)
        count = self._chance.randint(0, left - 1)
        num_new = max(0, -(-(len(entry.tokens) + count) // self._block_size) - len(entry.pages))
        if not count or num_new > len(self._free_pages):
            return
        if num_new:
            pages = self._take(num_new)
            entry.pages += pages
            parts.new_pages.append(step_plan.NewPages(entry.slot, tuple(pages)))
        guesses = tuple(guess(entry, count))
        parts.verifications.append((entry, step_plan.Verification(entry.slot, count, guesses)))

    def _take(self, count: int) -> list[int]:
        pages = [self._free_pages.pop() for _ in range(count)]
        self._num_holders.update(pages)
        return pages
