"""When somebody who comes now would have a first turn, judged by what runs, what waits, and what steps cost.

Counted in steps first. Each place (and each page) is held by a running sequence until that has generated what it is
expected to, is then taken by one that waits, for as long as those take on average, and so on; a newcomer starts when
all before it have been served. In between everything is taken to flow evenly. Then in seconds: what `step_time` says a
step of that kind costs, and the prompts that are computed on the way.

It is bounded: nothing takes longer than the longest of those that run, and all that wait after it one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_runtime.core import sequence, step_time

_MEMORY_ENDS = 200
"""An answer that ended so many answers ago counts about a third (1/e)."""


class Use:
    """What part of the tokens that answers may have they use, learned from those that ended."""

    def __init__(self) -> None:
        self._used = 0.0
        self._allowed = 0.0

    def note(self, num_used: int, num_allowed: int) -> None:
        """One ended, in whatever way."""
        kept = 1.0 - 1.0 / _MEMORY_ENDS
        self._used = self._used * kept + num_used
        self._allowed = self._allowed * kept + num_allowed

    @property
    def part(self) -> float | None:
        """0 to 1; None before anything has ended."""
        return self._used / self._allowed if self._allowed else None


@dataclass(frozen=True, slots=True)
class Load:
    """Some of those that wait: sums."""

    num: float = 0
    prompt_tokens: float = 0
    pairs: float = 0
    """(prompt token, token before it) pairs of the prompts' attention."""
    output_tokens: float = 0
    """The most they may generate."""

    @classmethod
    def of(cls, entry: sequence.Sequence) -> Load:
        count = entry.num_prompt_tokens
        return cls(1, count, count * (count + 1) // 2, entry.params.max_tokens)

    @property
    def num_tokens(self) -> float:
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: Load, times: float = 1) -> Load:
        return Load(
            self.num + times * other.num,
            self.prompt_tokens + times * other.prompt_tokens,
            self.pairs + times * other.pairs,
            self.output_tokens + times * other.output_tokens,
        )


class Waiting:
    """What waits, by priority and lane. Who was preempted counts with all of it: they are few."""

    def __init__(self) -> None:
        self._loads: dict[tuple[int, sequence.Lane], Load] = {}
        self.num_changes = 0

    def add(self, entry: sequence.Sequence) -> None:
        self._change(entry, 1)

    def remove(self, entry: sequence.Sequence) -> None:
        self._change(entry, -1)

    def _change(self, entry: sequence.Sequence, times: int) -> None:
        self.num_changes += 1
        key = (entry.priority, entry.lane)
        load = self._loads.get(key, _NOTHING).plus(Load.of(entry), times)
        if load.num:
            self._loads[key] = load
        else:
            del self._loads[key]

    def ahead_of(self, priority: int, lane: sequence.Lane, slow_share: float) -> Load:
        """Of those whose first turn comes before that of a newcomer: all of higher priorities, of its own those of its
        lane, and of the other lane what has its turns meanwhile, by the lanes' shares."""
        ahead, other = _NOTHING, _NOTHING
        own = self._loads.get((priority, lane), _NOTHING)
        for (level, kind), load in self._loads.items():
            if level > priority:
                ahead = ahead.plus(load)
            elif level == priority and kind is not lane:
                other = load
        of_own = slow_share if lane is sequence.Lane.SLOW else 1.0 - slow_share
        if other.num and of_own > 0.0:
            meanwhile = own.num_tokens * (1.0 - of_own) / of_own
            other = _NOTHING.plus(other, min(1.0, meanwhile / other.num_tokens))
        return ahead.plus(own).plus(other)


_NOTHING = Load()


@dataclass(frozen=True, slots=True)
class Holder:
    """One that runs."""

    priority: int
    steps: float
    """Until it is expected to end."""
    num_pages: float
    prompt_tokens: int
    """Not computed yet."""


@dataclass(frozen=True, slots=True)
class Here:
    """The engine at this moment."""

    holders: Sequence[Holder]
    """Soonest to end first."""
    times: step_time.StepTime
    waiting: Waiting
    part_used: float
    """Of the tokens that answers may have."""
    num_places: int
    """Running and free together."""
    free_pages: float
    """Until nobody may start any more; negative where some have to come free before."""
    pages_to_spare: float
    """The same for one that is let in by its lane, or its priority."""
    block_size: int
    prompt_budget: int
    """Prompt tokens a step."""
    tokens_read: int
    slow_share: float

    def seconds_to_first_turn(
        self, priority: int, num_tokens: int, lane: sequence.Lane, *, is_let_in: bool = False
    ) -> float:
        """Of a newcomer with a prompt of `num_tokens`. `is_let_in`: the queue line does not hold it up."""
        ahead = self.waiting.ahead_of(priority, lane, self.slow_share)
        # Lower priorities have to give way.
        runs = [(each.steps, each.num_pages) for each in self.holders if each.priority >= priority]
        longest = runs[-1][0] if runs else 0.0
        places = [0.0] * (self.num_places - len(runs)) + [steps for steps, _ in runs]
        yielded = sum(each.num_pages for each in self.holders) - sum(pages for _, pages in runs)
        stay = self._steps_of(ahead) / ahead.num if ahead.num else math.inf
        pages_ahead = (ahead.prompt_tokens + self.part_used * ahead.output_tokens / 2) / self.block_size
        own_pages = -(-num_tokens // self.block_size)
        in_the_way = sum(each.prompt_tokens for each in self.holders if each.priority >= priority)
        free_pages = yielded + (self.pages_to_spare if is_let_in or yielded else self.free_pages)
        to_spare = yielded + self.pages_to_spare
        steps = max(
            _steps_to_turn(places, math.floor(ahead.num) + 1, stay),
            # Below the queue line whoever comes may start, up to the preempt line.
            _steps_until(free_pages, runs, pages_ahead, stay),
            _steps_until(to_spare, runs, pages_ahead + own_pages, stay),
            _steps_until(to_spare, runs, own_pages, math.inf),
            (ahead.prompt_tokens + in_the_way) // self.prompt_budget,
        )
        steps = min(steps, max(longest, in_the_way / self.prompt_budget) + self._steps_of(ahead))
        if steps < 1.0:
            return 0.0
        return steps * self._step_seconds(ahead, pages_ahead) + self._prompt_seconds(ahead) + self._price(in_the_way)

    def prompt_seconds(self, priority: int, num_tokens: int) -> float:
        """From the first turn to the first token, with `num_tokens` of its prompt to compute; 0 where that is further
        from all that was ever tried than a prediction is trusted."""
        if min(num_tokens, self.prompt_budget) > 2 * self.times.most_prompt_tokens:
            return 0.0
        between = sum(each.prompt_tokens for each in self.holders if each.priority >= priority)
        steps = math.ceil((num_tokens + between) / self.prompt_budget)
        return steps * self._step_seconds(_NOTHING, 0.0) + self.times.prompt_seconds(num_tokens) + self._price(between)

    def _steps_of(self, load: Load) -> float:
        """Of all of a load, one by one."""
        return load.prompt_tokens / self.prompt_budget + self.part_used * load.output_tokens

    def _prompt_seconds(self, load: Load) -> float:
        prices = self.times.prices
        return prices["promptToken"] * load.prompt_tokens + prices["pair"] * load.pairs

    def _price(self, num_tokens: int) -> float:
        return self.times.prices["promptToken"] * num_tokens

    def _step_seconds(self, ahead: Load, pages_ahead: float) -> float:
        """Of a step as they will be while those `ahead` are served."""
        running = len(self.holders)
        joining = min(ahead.num, self.num_places - running)
        if joining > 0 and pages_ahead > 0:
            joining = min(joining, self.pages_to_spare / (pages_ahead / ahead.num))
        decodes = max(1, running + math.ceil(max(0.0, joining)))
        mean = self.tokens_read / running if running else 0.0
        return self.times.seconds(step_time.Work(decodes=decodes, tokens_read=int(mean * decodes)))


def _steps_to_turn(places: Sequence[float], turn: int, stay: float) -> float:
    """Until so many have got a place: each place comes free after its steps (ascending), then every `stay` steps."""
    if turn <= len(places) and places[turn - 1] <= 0.0:
        return 0.0
    if stay == math.inf:
        return places[min(turn, len(places)) - 1] if places else 0.0
    # Flowing evenly it would be then; but a place is taken as a whole, so somewhat later.
    even = _steps_until(0.0, [(steps, 1.0) for steps in places], turn, stay)
    num_given = sum(1 + (even - steps) // stay for steps in places if steps <= even)
    if num_given >= turn:
        return even
    later = sorted(steps - even if steps > even else stay - (even - steps) % stay for steps in places)
    return even + later[min(math.ceil(turn - num_given), len(later)) - 1]


def _steps_until(free: float, holders: Sequence[tuple[float, float]], needed: float, stay: float) -> float:
    """Until `needed` places (or pages) have been given away: those that are `free`, then what each of the holders
    gives back after its steps (soonest first), all of it again and again after `stay` steps."""
    if needed <= free:
        return 0.0
    given, weighted = free, 0.0
    for steps, amount in holders:
        # Given away at a time t: given + (given x t - weighted) / stay
        if given > 0.0:
            at = max(0.0, (weighted + (needed - given) * stay) / given)
            if at <= steps:
                return at
        given += amount
        weighted += amount * steps
        if needed <= given + max(0.0, given * steps - weighted) / stay:
            return steps
    if given > 0.0 and stay < math.inf:
        return (weighted + (needed - given) * stay) / given
    return holders[-1][0] if holders else 0.0
