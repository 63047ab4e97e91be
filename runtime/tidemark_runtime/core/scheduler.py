"""Decides what each step computes: running sequences first, then chunks of prompts, within a budget of tokens.

Rules, in the order in which they are asked (`admission` has those about who may start):

1. Who decodes gets its token in every step, so that a long prompt never delays a running answer.
2. A sequence gets pages for *all* its known tokens when it starts, so that prompts in progress cannot lock each other
   out. Only who decodes asks for more, a page at a time.
3. When a running sequence needs a page and none is free, a victim loses its pages (`victims`); they are copied to the
   swap space, or computed again, whichever is predicted to be cheaper. It comes back in its old turn, before any of
   its priority that never ran. Nothing that was generated is lost. In a step with such a victim nobody starts.
4. A sequence that was a victim `max_preemptions_per_request` times starts again only when pages for all it may ever
   need are free, and gets them. So it is never a victim again, never waits for a page, and always ends: with at
   least one such sequence the engine makes progress, and without one the oldest can take pages from all others.
5. Who could never have enough pages is refused at arrival (`refusal`).
6. What the budget leaves after the decodes goes to prompts: higher priorities first, and within one the slow lane gets
   the share it is guaranteed. With `target_step_seconds` the budget is what is predicted to fit into that time.
7. What prompts leave may go to guesses at the next tokens of those that decode, where that pays (`speculation`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from dataclasses import dataclass, field

from tidemark_runtime import config
from tidemark_runtime.core import (
    admission,
    block_pool,
    lines,
    memory,
    outlook,
    overload,
    preemption,
    running,
    sequence,
    speculation,
    step_plan,
    step_time,
    waiting_queue,
)
from tidemark_runtime.core import draft as draft_
from tidemark_runtime.core import victims as victims_

_LEAST_TURNS = 0.01

Sampled = tuple[sequence.Sequence, int, "step_plan.TokenLogprobs | None"]
"""A token that came back for a sequence that still wanted it."""


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    preemptions: dict[str, int] = field(default_factory=lambda: {"recompute": 0, "swap": 0})
    resumes: dict[str, int] = field(default_factory=lambda: {"recompute": 0, "swap": 0})
    prompt_tokens: int = 0
    generated_tokens: int = 0
    swapped_out_pages: int = 0
    swapped_in_pages: int = 0


class Scheduler:
    """Owns all sequences and their memory. Pure: time is an argument, no I/O, no tensors."""

    def __init__(
        self,
        settings: config.SchedulerConfig,
        *,
        num_pages: int,
        block_size: int,
        max_context_tokens: int,
        num_host_pages: int = 0,
        page_copy_seconds: float = 0.0,
        prefix_caching: bool = True,
        speculative: config.SpeculativeConfig | None = None,
    ) -> None:
        self._settings = settings
        self._max_context_tokens = max_context_tokens
        self._memory = memory.Memory(
            num_slots=settings.max_num_seqs,
            num_pages=num_pages,
            block_size=block_size,
            num_host_pages=num_host_pages,
            prefix_caching=prefix_caching,
        )
        self.times = step_time.StepTime()
        self._costs = victims_.Costs(self.times, page_copy_seconds)
        self._waiting = waiting_queue.WaitingQueue()
        self._running = running.Running(block_size)
        self._decoding = self._running.decoding
        self._preemption = preemption.Preemption(self._memory, self._costs, self._decoding)
        self._parked: dict[str, sequence.Sequence] = {}
        """Waiting ones with pages in the swap space."""
        self._lines = {
            lines.Level.QUEUE: lines.Line(lines.Level.QUEUE, settings.queue_watermark, settings.watermark_hysteresis),
            lines.Level.PREEMPT: lines.Line(
                lines.Level.PREEMPT, settings.preempt_watermark, settings.watermark_hysteresis
            ),
        }
        self._crossings: list[lines.Crossing] = []
        self._admission = admission.Admission(self._memory, self._waiting)
        self._step = 0
        self._planned: dict[int, draft_.InFlight] = {}
        self._first_turns: list[sequence.Sequence] = []
        self._losable = overload.Losable()
        self._outlook = outlook.Outlook(self._running, self._memory, self._lines, self.times)
        self.counters = Counters()
        self.speculation: speculation.Speculation | None = None
        """None where nobody guesses (`speculative.method` none)."""
        if speculative is not None and speculative.method != "none":
            self.speculation = speculation.Speculation(speculative, self._decoding, self._memory, self.times)
        self._verified: list[speculation.Verified] = []

    def configure(self, settings: config.SchedulerConfig) -> None:
        """Decide by `settings` from the next `schedule` on; who runs or waits already stays where it is.

        Raises `ValueError` for another `max_num_seqs`: the slots are made once.
        """
        if settings.max_num_seqs != self._settings.max_num_seqs:
            raise ValueError(f"max_num_seqs is {self._settings.max_num_seqs} for good, got {settings.max_num_seqs}")
        self._settings = settings
        self._outlook.forget()
        self._lines[lines.Level.QUEUE].move(settings.queue_watermark, settings.watermark_hysteresis)
        self._lines[lines.Level.PREEMPT].move(settings.preempt_watermark, settings.watermark_hysteresis)

    def limit_context(self, max_context_tokens: int) -> None:
        """Refuse what could become longer, from now on; who is here keeps what it was admitted with. The caller knows
        that the worker's tables are wide enough."""
        self._max_context_tokens = max_context_tokens

    # ---- what callers may know -------------------------------------------------------------------------------

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def num_waiting_in(self, lane: sequence.Lane) -> int:
        return self._waiting.num_in(lane)

    @property
    def num_pages(self) -> int:
        return self._memory.pool.num_pages

    @property
    def num_pages_used(self) -> int:
        return self._memory.pool.num_used

    @property
    def num_pages_held(self) -> int:
        """By all sequences together; a shared page counts for each."""
        return self._memory.num_pages_held

    @property
    def num_pages_cached(self) -> int:
        return self._memory.pool.num_cached

    @property
    def num_pages_swapped(self) -> int:
        """In the swap space."""
        return self._memory.num_host_used

    @property
    def num_page_evictions(self) -> int:
        return self._memory.pool.num_evictions

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """Tokens found in the prefix cache, and tokens that were not, of all that had a turn."""
        cache = self._memory.cache
        return (cache.num_hit_tokens, cache.num_missed_tokens) if cache is not None else (0, 0)

    @property
    def num_tokens_in_pages(self) -> int:
        """Tokens whose KV is in used pages; what is missing to `num_pages_used * block_size` is fragmentation.

        With shared pages it is counted as what is missing from the pages of each sequence.
        """
        num_computed = self._running.num_tokens_computed(self._step)
        unfilled = self._memory.num_pages_held * self._memory.block_size - num_computed
        return max(0, self.num_pages_used * self._memory.block_size - unfilled)

    @property
    def max_request_tokens(self) -> int:
        """Prompt and output together of the longest request that can be served."""
        return min(self._max_context_tokens, self.num_pages * self._memory.block_size)

    @property
    def has_work(self) -> bool:
        return bool(len(self._running) or len(self._waiting))

    def is_above(self, level: lines.Level) -> bool:
        """Whether a line is crossed."""
        return self._lines[level].above

    def take_crossings(self) -> list[lines.Crossing]:
        """Lines that were crossed or left since the last call."""
        taken, self._crossings = self._crossings, []
        return taken

    def oldest_fresh(self) -> sequence.Sequence | None:
        """Of those that have not had a first turn, the one that waits longest."""
        return self._waiting.oldest_fresh()

    def oldest_losable(self) -> sequence.Sequence | None:
        """Of these, without those that were told to be kept."""
        return self._losable.oldest()

    def refusal(self, num_tokens: int) -> overload.Refusal | None:
        """Why a request of so many tokens (prompt and output) can never be served, with the sum; None if it can."""
        block_size = self._memory.block_size
        capacity = self.num_pages * block_size
        if num_tokens <= self.max_request_tokens:
            return None
        if num_tokens > self._max_context_tokens:
            message = (
                f"the request may become {num_tokens} tokens long, but the context is limited to "
                f"{self._max_context_tokens} tokens. Shorten the prompt or lower max_tokens."
            )
            return overload.Refusal(overload.Reason.CONTEXT_LENGTH, message, 0.0)
        message = (
            f"the request may need {num_tokens} tokens of KV memory ({self._memory.pages_for(num_tokens)} pages of "
            f"{block_size}), but the whole slab has {self.num_pages} pages ({capacity} tokens): it can "
            "never fit. Shorten the prompt, lower max_tokens, or give the service more KV memory."
        )
        return overload.Refusal(overload.Reason.NEVER_FITS, message, 0.0)

    def situation(self, newcomer: sequence.Sequence) -> overload.Situation:
        """What `newcomer` finds."""
        newcomer.lane = self._lane_of(newcomer)
        return overload.Situation(
            max(0, self._moment.num_places - len(self._running)),
            len(self._running),
            self._waiting,
            self._losable,
            self.wait_seconds(newcomer),
            functools.partial(self._outlook.prompt_seconds, newcomer, self._moment),
        )

    def wait_seconds(self, entry: sequence.Sequence) -> float | None:
        """What somebody who is like `entry`, and comes now, is predicted to wait for a first turn; None as long as
        there is nothing to judge by."""
        return self._outlook.wait_seconds(entry, self._moment)

    @property
    def _moment(self) -> outlook.Moment:
        return outlook.Moment(self._settings, self._step, self._prompt_budget)

    def next_to_shed(self, priority: int, *, is_retry: bool) -> sequence.Sequence | None:
        """Of those that wait, who goes first for a newcomer of this kind."""
        return self._losable.next_for(priority, is_retry=is_retry)

    def keep(self, entry: sequence.Sequence) -> None:
        """A waiting `entry` is not shed any more, and not the oldest that may be lost: its request has begun."""
        self._losable.discard(entry)

    def take_first_turns(self) -> list[sequence.Sequence]:
        """Those that had their first turn since the last call."""
        taken, self._first_turns = self._first_turns, []
        return taken

    # ---- the three things that happen ------------------------------------------------------------------------

    def add(self, entry: sequence.Sequence) -> None:
        """Accept a sequence; the caller has asked `refusal` and `overload.decide`."""
        entry.lane = self._lane_of(entry)
        self._outlook.waiting.add(entry)
        self._losable.add(entry)
        self._waiting.add(entry, by_tenant=self._settings.fairness == "apiKey")

    def _lane_of(self, entry: sequence.Sequence) -> sequence.Lane:
        is_long = entry.num_max_tokens >= self._settings.long_request_tokens
        return sequence.Lane.SLOW if is_long else sequence.Lane.EXPRESS

    def finish(self, entry: sequence.Sequence) -> None:
        """Take everything from a sequence, wherever it is. Idempotent."""
        if entry.started and entry.state is not sequence.State.FINISHED:
            self._outlook.use.note(entry.num_known - entry.num_prompt_tokens, entry.params.max_tokens)
        if entry.state is sequence.State.WAITING:
            self._waiting.left(entry)
            self._outlook.waiting.remove(entry)
            self._losable.discard(entry)
            self._parked.pop(entry.id, None)
        elif entry.state is not sequence.State.FINISHED:
            self._running.leave(entry, self._step)
            self._memory.release(entry)
        self._memory.forget_host(entry)
        entry.state = sequence.State.FINISHED
        if self.speculation is not None:
            self.speculation.forget(entry)
        self._look_at_lines()  # no step may follow

    def give_up_steps(self) -> list[sequence.Sequence]:
        """The steps in flight have come to nothing, and nobody knows how far they got. Returns all that hold a slot,
        for the caller to end. Who waits goes on waiting, and computes anew what it has in the swap space: copies may be
        among what was lost. What the prefix cache holds was written by steps before these.
        """
        over = (sequence.State.RUNNING, sequence.State.FINISHED)
        sampled = (entry for planned in self._planned.values() for entry in planned.sampling)
        parked = list(self._parked.values())
        # Who was preempted in one of these steps waits for a token of it, which will never come.
        for entry in dict.fromkeys([*parked, *(entry for entry in sampled if entry.state not in over)]):
            self._outlook.waiting.remove(entry)
            if entry in parked:
                self._memory.forget_host(entry)
                entry.num_computed = 0
            entry.num_sampled = len(entry.token_ids) - entry.num_prompt_tokens
            self._outlook.waiting.add(entry)
        self._planned.clear()
        self._parked.clear()
        if self.speculation is not None:
            self.speculation.give_up()
        return list(self._running)

    def schedule(self, now: float = 0.0) -> step_plan.StepPlan | None:
        """The next step, or None when there is nothing to compute, or what is in flight must come back first. May be
        called with a step in flight.

        `now`: seconds on the clock of the sequences' `arrival_seconds`.
        """
        if self.speculation is not None and self._planned and self.speculation.wants_result(self._step + 1):
            return None
        draft = draft_.Draft(self._step + 1)
        self._grow_decoders(draft)
        budget = self._prompt_budget()
        self._admit(draft, budget, now)
        # After everything that swaps out: places in the swap space that this gives back are read in this very step,
        # after the copies out.
        self._restore(draft)
        self._compute_prompts(draft, min(budget, self._settings.max_num_batched_tokens - len(self._decoding)))
        if self.speculation is not None and not self._planned:
            self.speculation.plan(draft, self._room_for_guesses(draft))
        return self._close(draft)

    def update(self, result: step_plan.StepResult) -> list[Sampled]:
        """Book the tokens of a step. Those of sequences that have ended meanwhile are dropped."""
        done = self._planned.pop(result.step)
        if done.verifying and self.speculation is not None:
            result = self._book_guesses(done, result, self.speculation)
        elif done.sampling or done.work.prompt_tokens:
            seconds = max(0.0, result.execute_seconds - result.swap_seconds)
            self.times.observe(done.work, seconds)
            if self.speculation is not None:
                self.speculation.note_plain(done.work, seconds)
        self._costs.observe(done.swaps_out, done.num_swaps_in, result.swap_seconds)
        for entry, num_tokens in done.filled:
            if entry.state is sequence.State.RUNNING and entry.first_step <= result.step:
                self._memory.publish(entry, num_tokens)
        finished = sequence.State.FINISHED
        pairs = zip(done.sampling, result.token_ids, result.logprobs, strict=True)
        sampled: list[Sampled] = [item for item in pairs if item[0].state is not finished]
        for entry, token_id, _ in sampled:
            entry.token_ids.append(token_id)
        self.counters.generated_tokens += len(sampled)
        return sampled

    def take_verified(self) -> list[speculation.Verified]:
        """What guesses brought in the last `update`, beside what that returned."""
        taken, self._verified = self._verified, []
        return taken

    def check_integrity(self) -> None:
        """Raise `PoolCorrupted` unless pages, slots and counts add up."""
        holders = list(self._running)
        if wrong := self._running.miscounted():
            raise block_pool.PoolCorrupted(wrong)
        self._memory.check_integrity(holders, self._parked.values())
        self._waiting.check_integrity()
        for entry in holders:
            num_computed = self._decoding.num_computed(entry, self._step)
            if len(entry.pages) < self._memory.pages_for(num_computed):
                raise block_pool.PoolCorrupted(
                    f"sequence {entry.id} has {num_computed} tokens computed in {len(entry.pages)} pages"
                )

    # ---- decodes ---------------------------------------------------------------------------------------------

    def _grow_decoders(self, draft: draft_.Draft) -> None:
        for entry in self._decoding.needing_a_page(draft.step):
            if not entry.decoding_since:
                continue  # one before it in this loop has taken its pages
            filled = len(entry.pages) * self._memory.block_size
            while (pages := self._memory.grow(entry)) is None:
                victim = self._victim(entry)
                self._preempt(victim, draft)
                draft.had_to_preempt = True
                if victim is entry:
                    break
            if pages is not None:
                draft.new_pages.append(step_plan.NewPages(entry.slot, pages))
                self._decoding.grown(entry)
                self._note_filled(entry, filled, draft.step - 1)

    def _note_filled(self, entry: sequence.Sequence, num_tokens: int, step: int) -> None:
        """The first `num_tokens` of `entry` are in pages once `step` is done."""
        if step in self._planned:
            self._planned[step].filled.append((entry, num_tokens))
        else:
            self._memory.publish(entry, num_tokens)

    def _victim(self, needy: sequence.Sequence) -> sequence.Sequence:
        """Of `needy`, those of lower priority, and those of its own that arrived later."""
        found = victims_.order(
            self._preemption.candidate(entry, self._step, self._settings)
            for entry in self._running
            if entry.priority < needy.priority or (entry.priority == needy.priority and entry.order >= needy.order)
            if self._preemption.may_be_victim(entry, self._settings)
        )
        return found[0].entry if found else needy

    # ---- preemption and return -------------------------------------------------------------------------------

    def _preempt(self, entry: sequence.Sequence, draft: draft_.Draft) -> None:
        """Take pages and slot from `entry`, which takes no part in the step being planned."""
        self._running.leave(entry, draft.step - 1)
        swaps = self._preemption.is_by_swap(entry, self._settings)
        if swaps:
            copies = self._memory.swap_out(entry)
            draft.swaps_out.extend(copies)
            self.counters.swapped_out_pages += len(copies)
            self._parked[entry.id] = entry
        else:
            self._memory.release(entry)
            entry.num_computed = 0
        entry.state = sequence.State.WAITING
        entry.num_preemptions += 1
        self.counters.preemptions["swap" if swaps else "recompute"] += 1
        self._waiting.add_preempted(entry)
        self._outlook.waiting.add(entry)

    def _restore(self, draft: draft_.Draft) -> None:
        """Copy pages back, beside the batch: in a step no more than takes as long as the step does without."""
        if not self._running.restoring:
            return
        left = self._copies_a_step()
        for entry in list(self._running.restoring):
            if left <= 0:
                return
            copies = self._memory.swap_in(entry, left)
            draft.swaps_in.extend(copies)
            self.counters.swapped_in_pages += len(copies)
            left -= len(copies)
            if not entry.host_pages:
                self._join(entry, draft)
                draft.filled.append((entry, entry.num_computed))  # in other pages than those that were published

    def _copies_a_step(self) -> int:
        seconds = self.times.seconds(step_time.Work(decodes=len(self._decoding), tokens_read=self._tokens_read()))
        if not self._costs.page_copy_seconds or not seconds:
            return self.num_pages
        return max(1, math.floor(seconds / self._costs.page_copy_seconds))

    # ---- who gets in -----------------------------------------------------------------------------------------

    def _admit(self, draft: draft_.Draft, budget: int, now: float) -> None:
        self._look_at_lines()
        highest = self._waiting.highest()
        if draft.had_to_preempt or highest is None:
            return
        least_priority = self._running.least_priority
        if not self._memory.num_free_slots and least_priority is not None and highest.priority <= least_priority:
            return  # the steady state of a full batch: nobody can start, and it must cost nothing to find out
        state = admission.State(
            settings=self._settings,
            now=now,
            step=draft.step,
            num_running=len(self._running),
            least_priority=least_priority,
            queue_line_crossed=self._lines[lines.Level.QUEUE].above,
            tokens=self._token_shares(budget),
        )
        while (turn := self._admission.next(state)) is not None:
            if not turn.displaces:
                self._start(turn, draft)
                self._look_at_lines()  # a burst in one step stops at the line, too
                state.queue_line_crossed = self._lines[lines.Level.QUEUE].above
                state.num_running = len(self._running)
                state.least_priority = self._running.least_priority
                state.tokens = self._token_shares(budget)
            elif self._displace(turn, draft):
                # Asked again: pages that it shared with a victim are not where they were.
                state.num_running = len(self._running)
                state.least_priority = self._running.least_priority
            else:
                return

    def _look_at_lines(self) -> None:
        for line in self._lines.values():
            crossing = line.look(self.num_pages_used, self.num_pages)
            if crossing is not None:
                self._crossings.append(crossing)

    def _token_shares(self, budget: int) -> admission.TokenShares:
        """For those who wait with the highest priority: prompts in progress count from that priority on."""
        highest = self._waiting.highest()
        demand = dict.fromkeys(sequence.Lane, 0)
        for entry in self._running.prompting:
            if highest is not None and entry.priority >= highest.priority:
                demand[entry.lane] += entry.num_uncomputed
        return admission.TokenShares(budget, self._settings.long_request_share, demand)

    def _displace(self, turn: admission.Turn, draft: draft_.Draft) -> bool:
        """Preempt running ones of lower priority until there is room for `turn`; nobody when that is not enough."""
        joined = {join.slot for join in draft.joins}
        found = victims_.order(
            self._preemption.candidate(entry, self._step, self._settings)
            for entry in self._running
            if entry.priority < turn.entry.priority
            and entry.num_preemptions < self._settings.max_preemptions_per_request
            and self._preemption.may_be_victim(entry, self._settings)
            and entry.slot not in joined
        )
        chosen = victims_.enough(found, turn.num_pages_missing, turn.num_slots_missing)
        if chosen is None:
            return False
        for item in chosen:
            draft.forget_slot(item.entry.slot)
            self._preempt(item.entry, draft)
        return True

    def _start(self, turn: admission.Turn, draft: draft_.Draft) -> None:
        entry = turn.entry
        self._waiting.taken(entry, self._turns_of(entry.lane))
        self._outlook.waiting.remove(entry)
        self._losable.discard(entry)
        self._memory.take(entry, turn.need)
        if entry.started:
            self.counters.resumes["swap" if entry.host_pages else "recompute"] += 1
        else:
            self._first_turns.append(entry)
            entry.num_cached_tokens = entry.num_computed
        entry.started = True
        entry.first_step = draft.step
        self._running.add(entry)
        if entry.host_pages:
            self._parked.pop(entry.id)
            self._running.restore(entry)  # copies begin in this very step, once everybody has started: `_restore`
        else:
            self._join(entry, draft)

    def _turns_of(self, lane: sequence.Lane) -> float:
        """The share of turns that `lane` is to have; one without a guarantee still comes to its turn when it ages."""
        share = self._settings.long_request_share
        return max(_LEAST_TURNS, share if lane is sequence.Lane.SLOW else 1.0 - share)

    def _join(self, entry: sequence.Sequence, draft: draft_.Draft) -> None:
        """All that `entry` had computed is in its pages: it takes part from this step on."""
        draft.join(entry)
        self._running.join(entry, draft.step)

    # ---- prompts ---------------------------------------------------------------------------------------------

    def _prompt_budget(self) -> int:
        """Tokens for prompts in this step: what decodes leave, and what is predicted to fit into the target time; at
        least a page's, or prompts would never come to an end."""
        left = self._settings.max_num_batched_tokens - len(self._decoding)
        if self._settings.target_step_seconds is None or left <= self._memory.block_size:
            return left
        context = self._running.prompting[0].num_computed if self._running.prompting else 0
        return min(left, max(self._memory.block_size, self._prompt_tokens_within_target(draft_.Draft(0), context)))

    def _prompt_tokens_within_target(self, draft: draft_.Draft, context: int) -> int:
        """How many more, after `context` tokens of the same prompt, the step may hold."""
        target = self._settings.target_step_seconds
        if target is None:
            return self._settings.max_num_batched_tokens
        work = step_time.Work(len(self._decoding), draft.num_prompt_tokens, self._tokens_read(), draft.num_pairs)
        return self.times.prompt_tokens_within(target, work, context)

    def _tokens_read(self) -> int:
        return self._decoding.num_tokens_read(self._step + 1)

    def _compute_prompts(self, draft: draft_.Draft, budget: int) -> None:
        share = self._settings.long_request_share
        for _, group in itertools.groupby(self._running.prompting, key=lambda entry: entry.priority):
            entries = list(group)
            express = [entry for entry in entries if entry.lane is sequence.Lane.EXPRESS]
            slow = [entry for entry in entries if entry.lane is sequence.Lane.SLOW]
            kept = min(math.ceil(share * budget), sum(entry.num_uncomputed for entry in slow))
            # What is computed whatever the target time says: a page's, shared in the same way.
            least = max(0, min(budget, self._memory.block_size) - draft.num_prompt_tokens)
            least_of_slow = min(math.ceil(share * least), kept)
            budget -= self._compute(express, budget - kept, least - least_of_slow, draft)
            budget -= self._compute(slow, budget, least_of_slow if draft.num_prompt_tokens else least, draft)
        for entry in draft.chunk_samples:
            self._running.prompting.remove(entry)

    def _compute(self, entries: list[sequence.Sequence], budget: int, least: int, draft: draft_.Draft) -> int:
        """Chunks for `entries` in turn, of so many tokens together, `least` even where the step takes longer than its
        target; how many it became."""
        left = budget
        for entry in entries:
            if left <= 0:
                break
            in_time = self._prompt_tokens_within_target(draft, entry.num_computed)
            count = min(entry.num_uncomputed, left, max(in_time, least - (budget - left)))
            if count > 0:
                computed = min(entry.num_computed, entry.num_prompt_tokens)
                draft.add_chunk(entry, count)
                self.counters.prompt_tokens += min(entry.num_computed, entry.num_prompt_tokens) - computed
                left -= count
        return budget - left

    # ---- guesses ---------------------------------------------------------------------------------------------

    def _room_for_guesses(self, draft: draft_.Draft) -> speculation.Room:
        left = self._settings.max_num_batched_tokens - len(self._decoding) - draft.num_prompt_tokens
        seconds = None
        if self._settings.target_step_seconds is not None:
            work = step_time.Work(len(self._decoding), draft.num_prompt_tokens, self._tokens_read(), draft.num_pairs)
            seconds = max(0.0, self._settings.target_step_seconds - self.times.seconds(work))
        may_take_pages = not (draft.had_to_preempt or self._lines[lines.Level.QUEUE].above)
        return speculation.Room(left, seconds, may_take_pages)

    def _book_guesses(
        self, done: draft_.InFlight, result: step_plan.StepResult, speculation_: speculation.Speculation
    ) -> step_plan.StepResult:
        """What `result` is without the verifications; what they brought is kept for `take_verified`."""
        booked = speculation_.book(done, result, self._step + 1)
        self._verified += booked
        self.counters.generated_tokens += sum(len(each.token_ids) for each in booked)
        count = len(done.sampling)
        return dataclasses.replace(result, token_ids=result.token_ids[:count], logprobs=result.logprobs[:count])

    # ---- the plan --------------------------------------------------------------------------------------------

    def _close(self, draft: draft_.Draft) -> step_plan.StepPlan | None:
        decodes = self._decoding.slots
        if not decodes and draft.is_empty:
            return None
        self._planned[draft.step] = draft.in_flight(self._decoding.sequences, self._tokens_read())
        self._step = draft.step
        self._look_at_lines()
        for entry in self._decoding.ending(draft.step):
            self._decoding.leave(entry, draft.step)
        for entry in draft.chunk_samples:
            if entry.num_uncomputed:
                self._decoding.enter(entry, draft.step + 1)
        return draft.plan(decodes)
