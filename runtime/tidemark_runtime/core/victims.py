"""Whom to preempt, and what that costs: pages copied to the host and back, or computed again.

What a copy costs is measured at the start and learned from every step with copies. The first copy into a page of the
swap space is priced apart: the system has to provide that memory first, which takes several times as long, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark_runtime.core import sequence, step_plan, step_time


class _Average:
    """Seconds a page, the newer copies counting more; as long as little is known, near `prior`, which counts as one
    page. So what was dear once, and is avoided since, becomes worth another try."""

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._seconds = 0.0
        self._pages = 0.0

    @property
    def seconds(self) -> float:
        return (self._prior + self._seconds) / (1.0 + self._pages)

    def forget(self) -> None:
        """Called in every step: what was seen so many steps ago counts about a third (1/e)."""
        self._seconds -= self._seconds / step_time.MEMORY_STEPS
        self._pages -= self._pages / step_time.MEMORY_STEPS

    def observe(self, num_pages: int, seconds: float) -> None:
        self._seconds += seconds
        self._pages += num_pages


class Costs:
    """What it takes to get a sequence's pages back, learned while the engine runs."""

    def __init__(self, times: step_time.StepTime, page_copy_seconds: float) -> None:
        """`page_copy_seconds`: one page, one way, as measured at the start; 0 where there is no swap space."""
        self._times = times
        self._copy = _Average(page_copy_seconds)
        self._first_copy = _Average(page_copy_seconds)
        self._num_written = 0
        """Pages of the swap space from 0 on that were copied to."""

    @property
    def page_copy_seconds(self) -> float:
        """One page, one way, once the swap space has it."""
        return self._copy.seconds

    def observe(self, swaps_out: Sequence[step_plan.Copy], num_swaps_in: int, seconds: float) -> None:
        """A step's copies, maybe none, took so long."""
        self._copy.forget()
        self._first_copy.forget()
        num_copies = len(swaps_out) + num_swaps_in
        if not num_copies:
            return
        num_first = sum(copy.host_page >= self._num_written for copy in swaps_out)
        if not num_first:
            self._copy.observe(num_copies, seconds)
            return
        self._num_written = max(self._num_written, *(copy.host_page + 1 for copy in swaps_out))
        self._first_copy.observe(num_first, max(0.0, seconds - (num_copies - num_first) * self._copy.seconds))

    def swap_seconds(self, num_pages: int, num_first: int) -> float:
        """There and back; `num_first` of the copies there are the first ones into their page of the swap space."""
        return num_first * self._first_copy.seconds + (2 * num_pages - num_first) * self._copy.seconds

    def recompute_seconds(self, num_tokens: int) -> float:
        return self._times.prompt_seconds(num_tokens)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running sequence as seen by who looks for a victim."""

    entry: sequence.Sequence
    num_freed: int
    """Pages that only it holds."""
    rebuild_seconds: float
    num_to_go: int
    """Tokens it may still generate: for so many steps it would go on holding its pages."""

    @property
    def price(self) -> float:
        """Seconds lost for each page that is won for the length of a step.

        So a victim is cheap when it holds much, is quickly rebuilt, and is far from its end: one that is about to end
        gives its pages back by itself.
        """
        return self.rebuild_seconds / (max(1, self.num_freed) * max(1, self.num_to_go))


def order(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Cheapest first: lower priorities, then those that were preempted less often (not the one again that just came
    back), then by price, then the latest."""
    return sorted(
        candidates,
        key=lambda item: (item.entry.priority, item.entry.num_preemptions, item.price, -item.entry.order),
    )


def enough(candidates: Iterable[Candidate], num_pages: int, num_slots: int) -> list[Candidate] | None:
    """The first of `candidates` that together free so many pages and slots; None when all of them do not."""
    chosen: list[Candidate] = []
    for item in candidates:
        if num_pages <= 0 and num_slots <= 0:
            break
        chosen.append(item)
        num_pages -= item.num_freed
        num_slots -= 1
    return chosen if num_pages <= 0 and num_slots <= 0 else None
