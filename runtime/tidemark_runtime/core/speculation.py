"""Who guesses how many tokens in a step, what came of it, and whether it goes on: speculative decoding, decided.

A sequence that decodes may, instead, have guesses checked: the step computes its last token and the guesses behind it,
and samples after each. Sampling depends on the text and the position alone, so as long as the sampled token equals the
guess, the next row has computed what a step of its own would have: the text is the very same, only in fewer steps
(docs/decisions/0012-speculative-decoding.md).

    schedule    `wants_result`: wait for the step in flight, guesses are made from tokens that are known
                `plan`: who decodes, and has guesses that pay, leaves the decodes of this step for its verifications
    update      `book`: tokens of the verifications; their sequences decode again

A verification counts as one token computed and one sampled until its result is back, and then as what it brought. While
one is in flight no further step is planned; so nobody loses pages meanwhile, and nobody is planned twice. Guesses take
what prompts leave of the budget, and pages of their own only below the queue line. What they took stays with the
sequence, for the tokens that come: it is never more than the sequence may need until its end.

All of this is off by itself: a guess must be expected to pay (`guess_value`). Who has none that are tries one after a
pause, which is longer each time; where even certain guesses would not pay, one sequence tries one once in a while, in
case steps have become cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.core import decoding, guess_value, memory, ngram, sequence, step_plan, step_time
from tidemark_runtime.core import draft as draft_

LONG_MATCH = 4
"""Matches of so many tokens have chances of their own."""
FIRST_PLAIN_STEPS = 8
"""With decodes, before the first guess: otherwise it is not known what steps without guesses take."""
FIRST_PAUSE_TOKENS = 16
LONGEST_PAUSE_TOKENS = 512
PRICE_PROBE_STEPS = 256
"""Where guesses do not pay whatever their chance, one sequence checks some after so many steps without any."""
PLAIN_EVERY = 64
"""After so many steps with guesses one goes without, so that it stays known what steps without take."""
LONGEST_WAIT_STEPS = 64
"""Where steps have no room for guesses, so many at most are planned ahead before one is waited for again."""
INDEXED_A_STEP = 1024
"""Tokens taken into indexes in one step, of all sequences together: about a millisecond."""
_ACTIVE_MEMORY = 0.98
_WITH_A_SLOT = (sequence.State.RESTORING, sequence.State.RUNNING)


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification brought a sequence that still wanted it; the last token may be a stop token."""

    entry: sequence.Sequence
    token_ids: tuple[int, ...]
    logprobs: tuple[step_plan.TokenLogprobs | None, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """What prompts and decodes leave."""

    num_tokens: int
    """Of the step's budget."""
    seconds: float | None
    """Of its target time; None without a target."""
    may_take_pages: bool


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    proposed: int = 0
    accepted: int = 0
    steps: int = 0
    """With guesses."""


class _Guesser:
    """What is remembered of one sequence."""

    __slots__ = ("acceptance", "entry", "index", "is_probe", "kind", "pause", "probe_at")

    def __init__(self, entry: sequence.Sequence) -> None:
        self.entry = entry
        self.index: ngram.Index | None = None
        """Of its text; None with a draft model, and while it has no slot and others need the memory."""
        self.acceptance = (guess_value.Acceptance(), guess_value.Acceptance())
        self.kind = 0
        """Of the guesses in flight: 1 after a long match."""
        self.is_probe = False
        """The guess in flight is not expected to pay."""
        self.pause = FIRST_PAUSE_TOKENS
        self.probe_at = 0
        """With so many tokens it may try one that is not expected to pay."""


@dataclass(frozen=True, slots=True)
class _Proposal:
    count: int
    guesses: tuple[int, ...]
    kind: int
    is_probe: bool


class Speculation:
    """Of one engine. Asks `decoding_` and `memory_`, which the scheduler owns, too."""

    def __init__(
        self,
        settings: config.SpeculativeConfig,
        decoding_: decoding.DecodeSet,
        memory_: memory.Memory,
        times: step_time.StepTime,
    ) -> None:
        self._settings = settings
        self._decoding = decoding_
        self._memory = memory_
        self._times = times
        self._guessers: dict[str, _Guesser] = {}
        self._all = (guess_value.Acceptance(), guess_value.Acceptance())
        self._correction = guess_value.Correction()
        self._price = guess_value.Price()
        self._gain = guess_value.Gain()
        self._in_flight = False
        self._wait = 1
        self._wait_until = 0
        """Before this step guesses are not worth a wait: the last step had no room for any."""
        self._num_plain = 0
        self._steps_without = 0
        self._steps_with = 0
        """Since the last one of the other kind."""
        self.active = 0.0
        """Share of the sequences that decode whose guesses were checked, lately."""
        self.counters = Counters()

    @property
    def gain(self) -> float:
        """How many times as fast as without guesses (`guess_value.Gain`): at most `tokens` + 1; 1 before the first
        step with guesses."""
        return self._gain.ratio

    def forget(self, entry: sequence.Sequence) -> None:
        """`entry` has ended."""
        self._guessers.pop(entry.id, None)

    def give_up(self) -> None:
        """The steps in flight have come to nothing."""
        self._in_flight = False

    # ---- schedule --------------------------------------------------------------------------------------------

    def wants_result(self, step: int) -> bool:
        """Whether the step in flight should come back before `step` is planned."""
        if self._in_flight:
            return True
        if not len(self._decoding) or self._is_plain_turn or step < self._wait_until:
            return False
        stakes = self._stakes(step)
        if not self._may_try(stakes):
            return False
        left = INDEXED_A_STEP
        for entry in self._decoding.sequences:
            guesser = self._guesser(entry)
            left -= self._index(guesser, entry, left)
            # The token in flight comes first; one more is left to guess only after it.
            if self._propose(entry, guesser, stakes, entry.last_step - step) is not None:
                return True
        return False

    def plan(self, draft: draft_.Draft, room: Room) -> None:
        """Let those who decode have guesses checked in the step of `draft` where that is expected to pay. The tokens of
        all of them are known: no step is in flight."""
        if not len(self._decoding):
            return
        stakes = self._stakes(draft.step)
        if not self._is_plain_turn and self._may_try(stakes):
            lacked_room = self._plan(draft, room, stakes)
            self._note_room(draft, lacked_room)
        self._in_flight = bool(draft.verifying)

    def _note_room(self, draft: draft_.Draft, lacked: bool) -> None:
        """Where nothing was checked for want of room, results are not waited for, each time for longer."""
        if draft.verifying:
            self._wait = 1
        elif lacked and draft.step >= self._wait_until:
            self._wait_until = draft.step + 1 + self._wait
            self._wait = min(LONGEST_WAIT_STEPS, 2 * self._wait)

    def _plan(self, draft: draft_.Draft, room: Room, stakes: guess_value.Stakes) -> bool:
        """Whether somebody had no room for a single guess."""
        left, seconds, index_left = room.num_tokens, room.seconds, INDEXED_A_STEP
        is_price_probe, lacked_room = not stakes.may_pay, False
        for entry in self._decoding.sequences:
            if left <= 0:
                return True
            guesser = self._guesser(entry)
            index_left -= self._index(guesser, entry, index_left)
            most = min(left, self._num_in_pages(entry, draft.step, room))
            if seconds is not None and stakes.guess > 0:
                most = min(most, int(seconds / stakes.guess))
            own = entry.last_step - draft.step
            lacked_room |= most < 1 <= own
            most = min(most, own)
            found = self._propose(entry, guesser, stakes, most)
            if found is None:
                continue
            guesser.kind, guesser.is_probe = found.kind, found.is_probe
            self._verify(entry, found, draft)
            left -= found.count
            if seconds is not None:
                seconds -= found.count * stakes.guess
            if is_price_probe:
                break
        return lacked_room

    def _verify(self, entry: sequence.Sequence, found: _Proposal, draft: draft_.Draft) -> None:
        self._decoding.leave(entry, draft.step - 1)
        num_pages = self._memory.pages_for(entry.num_computed + 1 + found.count)
        while len(entry.pages) < num_pages:
            pages = self._memory.grow(entry)
            if pages is None:
                raise RuntimeError(f"sequence {entry.id} was promised pages for its guesses")
            draft.new_pages.append(step_plan.NewPages(entry.slot, pages))
        draft.verify(entry, found.count, found.guesses)

    def _num_in_pages(self, entry: sequence.Sequence, step: int, room: Room) -> int:
        """Guesses whose KV has a place: in pages that it holds, or may take."""
        held = len(entry.pages) * self._memory.block_size - self._decoding.num_computed(entry, step)
        if not room.may_take_pages:
            return held
        return held + self._memory.pool.num_free * self._memory.block_size

    def _propose(
        self, entry: sequence.Sequence, guesser: _Guesser, stakes: guess_value.Stakes, most: int
    ) -> _Proposal | None:
        """What `entry` should have checked; None where guesses are not expected to pay, or there are none."""
        most = min(most, self._settings.tokens)
        if most < 1:
            return None
        guess: ngram.Guess | None = None
        if guesser.index is not None:
            guess = guesser.index.guess(entry.token_ids, most)
            if guess is None:
                return None
        kind = int(guess is not None and guess.match >= LONG_MATCH)
        rate = guesser.acceptance[kind].rate(self._all[kind].rate())
        count = stakes.best_count(rate, most)
        is_probe = not count and entry.num_known >= guesser.probe_at
        if is_probe:
            count = 1
        if not count:
            return None
        return _Proposal(count, guess.tokens[:count] if guess is not None else (), kind, is_probe)

    def _may_try(self, stakes: guess_value.Stakes) -> bool:
        if self._num_plain < FIRST_PLAIN_STEPS:
            return False
        return stakes.may_pay or self._steps_without >= PRICE_PROBE_STEPS

    @property
    def _is_plain_turn(self) -> bool:
        return self._steps_with >= PLAIN_EVERY

    def _stakes(self, step: int) -> guess_value.Stakes:
        num = len(self._decoding)
        seconds = self._plain_seconds(step_time.Work(num, 0, self._decoding.num_tokens_read(step), 0))
        if seconds <= 0.0:
            return guess_value.Stakes(1.0, self._price.seconds(1.0))
        token = seconds / num
        return guess_value.Stakes(token, self._price.seconds(token))

    def _plain_seconds(self, work: step_time.Work) -> float:
        return self._times.seconds(work) * self._correction.factor

    def _guesser(self, entry: sequence.Sequence) -> _Guesser:
        found = self._guessers.get(entry.id)
        if found is None:
            found = self._guessers[entry.id] = _Guesser(entry)
        if found.index is None and self._settings.method == "ngram":
            self._drop_indexes()
            found.index = ngram.Index(entry.num_max_tokens)
        return found

    def _drop_indexes(self) -> None:
        """Of those without a slot, so that there are never more indexes than slots, which is what a plan counts. Who
        comes back has its text taken in again, INDEXED_A_STEP tokens a step, and guesses from what is taken in."""
        for guesser in self._guessers.values():
            if guesser.entry.state not in _WITH_A_SLOT:
                guesser.index = None

    def _index(self, guesser: _Guesser, entry: sequence.Sequence, limit: int) -> int:
        return guesser.index.extend(entry.token_ids, limit) if guesser.index is not None and limit > 0 else 0

    # ---- update ----------------------------------------------------------------------------------------------

    def note_plain(self, work: step_time.Work, seconds: float) -> None:
        """A step without guesses is done."""
        if work.decodes:
            if not work.prompt_tokens:
                self._correction.observe(seconds, self._times.seconds(work))
            self._num_plain += 1
            self._steps_without += 1
            self._steps_with = 0
            self.active *= _ACTIVE_MEMORY

    def book(self, done: draft_.InFlight, result: step_plan.StepResult, next_step: int) -> list[Verified]:
        """What the verifications of a step brought; their sequences decode again from `next_step` on. Those that have
        ended meanwhile are left out."""
        self._in_flight = False
        at = len(done.sampling)
        booked = []
        num_guesses = num_accepted = 0
        for entry, outcome in zip(done.verifying, result.verified, strict=True):
            end = at + outcome.num_tokens
            token_ids, logprobs = result.token_ids[at:end], result.logprobs[at:end]
            at = end
            num_guesses += outcome.num_guesses
            num_accepted += outcome.num_tokens - 1
            if entry.state is not sequence.State.FINISHED:
                self._learn(entry, outcome)
                kept = _until_stop(token_ids, entry.stop_ids)
                self._take(entry, token_ids[:kept], next_step)
                booked.append(Verified(entry, token_ids[:kept], logprobs[:kept]))
        self.counters.proposed += num_guesses
        self.counters.accepted += num_accepted
        self.counters.steps += 1
        self._learn_price(done, result, num_guesses, num_accepted)
        share = len(done.verifying) / done.work.decodes
        self.active += (1.0 - _ACTIVE_MEMORY) * (share - self.active)
        self._steps_with += 1
        self._steps_without = 0
        return booked

    def _take(self, entry: sequence.Sequence, token_ids: tuple[int, ...], next_step: int) -> None:
        entry.token_ids.extend(token_ids)
        entry.num_computed += len(token_ids) - 1
        entry.num_sampled += len(token_ids) - 1
        self._memory.publish(entry, entry.num_computed)
        if entry.num_uncomputed:
            self._decoding.enter(entry, next_step)

    def _learn(self, entry: sequence.Sequence, outcome: step_plan.Verified) -> None:
        guesser, num_right = self._guesser(entry), outcome.num_tokens - 1
        if not outcome.num_guesses:
            return  # the draft model is not that far yet
        guesser.acceptance[guesser.kind].observe(outcome.num_guesses, num_right)
        self._all[guesser.kind].observe(outcome.num_guesses, num_right)
        guesser.probe_at = entry.num_known + guesser.pause
        if guesser.is_probe:
            guesser.pause = min(LONGEST_PAUSE_TOKENS, 2 * guesser.pause)
        elif num_right:
            guesser.pause = FIRST_PAUSE_TOKENS

    def _learn_price(
        self, done: draft_.InFlight, result: step_plan.StepResult, num_guesses: int, num_accepted: int
    ) -> None:
        seconds = max(0.0, result.execute_seconds - result.swap_seconds)
        plain = self._plain_seconds(done.work)
        if plain <= 0.0:
            return
        num_plain = done.work.decodes
        if num_guesses:  # else the draft model only caught up: that costs, too, but is no guess's price
            if self._steps_without >= PRICE_PROBE_STEPS:
                self._price.fade()
            self._price.observe(num_guesses, seconds - plain, plain / num_plain)
        self._gain.observe(num_plain + num_accepted, seconds, num_plain, plain)


def _until_stop(token_ids: Iterable[int], stop_ids: frozenset[int]) -> int:
    """How many of `token_ids` belong to the text: up to and with the first stop token."""
    count = 0
    for token_id in token_ids:
        count += 1
        if token_id in stop_ids:
            break
    return count
