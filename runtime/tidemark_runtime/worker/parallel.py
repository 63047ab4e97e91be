"""The first rank of a model that several share: `interface.Worker` around its own worker and the others'.

Every rank executes every plan on its own heads: the plan is sent, all compute, and wherever their numbers meet
(`model.parallel`) they wait for each other. The first one samples and passes the tokens on inside the step, so that
nobody answers: a step costs one message.

A step that fails ends on all ranks (`process_group` says how). Where memory ran out, on whichever rank, all meet again
and the step has come to nothing, as `interface.Worker` says. Any other error is the end of the engine.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidemark_runtime import config, errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import parallel, sources, weights
from tidemark_runtime.planning import footprint
from tidemark_runtime.worker import interface, process_group, rank_messages, ranks

_logger = logging.getLogger(__name__)

REASON_SECONDS = 5.0
"""A rank that fails says why before it leaves; so long the others' reason is waited for."""

_Said = TypeVar("_Said", bound=rank_messages.FromRank)


class RankWorker(interface.Worker, Protocol):
    """A worker that can be one rank of several. What it is loaded by must hand on `ranks.Place.group` to its model, and
    pass on the tokens that the first rank samples by `Group.broadcast`."""

    def prepare(self, settings: config.EngineConfig, progress: weights.Progress, execute: Execute) -> None:
        """Run whatever must have run before the first step, by `execute`, which all ranks follow."""
        ...


Execute = Callable[[step_plan.StepPlan], step_plan.StepResult]
Load = Callable[[config.EngineConfig, sources.ModelSource, weights.Progress, ranks.Place], RankWorker]
"""For example `torch_worker.load`."""


class Meeting(parallel.Group, Protocol):
    """A rank's own group, which it can leave and meet again (`process_group`)."""

    @property
    def backend(self) -> str: ...

    def meet(self, generation: int) -> None: ...

    def leave(self) -> None: ...


class Link(Protocol):
    """The way to the other ranks; `rank_links.FirstLink` is the real one."""

    @property
    def num_others(self) -> int: ...

    def send(self, message: rank_messages.ToRank) -> None: ...

    def receive(self, seconds: float = ...) -> rank_messages.FromRank | None: ...


@dataclass(frozen=True, slots=True)
class Start:
    """What one rank's worker is made of."""

    settings: config.EngineConfig
    """One rank's (`ranks.settings_of`)."""
    source: sources.ModelSource
    load: Load


def create(start: Start, progress: weights.Progress, group: Meeting, link: Link) -> ParallelWorker:
    """The worker of all ranks, ready; on the first one. Raises what loading raises on any rank."""
    place = ranks.Place(group, lambda own: agree(link, own))
    inner = start.load(start.settings, start.source, progress, place)
    progress("waiting for the other ranks", 1.0)
    made = ParallelWorker(inner, group, link)
    inner.prepare(start.settings, progress, made.execute)
    return made


def agree(link: Link, own: ranks.NumPages) -> ranks.NumPages:
    """The least of all ranks' pages, once all have said theirs; they are told. On the first rank."""
    least = own
    for _ in range(link.num_others):
        said = _next(link, rank_messages.Sized)
        least = ranks.NumPages(min(least.slab, said.slab_pages), min(least.host, said.host_pages))
    link.send(rank_messages.Agreed(least.slab, least.host))
    return least


class ParallelWorker:
    """Implements `interface.Worker`, for all ranks. Raises `RankLost` from `execute` where one is lost."""

    def __init__(self, inner: interface.Worker, group: Meeting, link: Link) -> None:
        """`inner`: the first rank's own worker, loaded. Waits until the others are loaded, too, and meets them."""
        self._inner = inner
        self._group = group
        self._link = link
        self._generation = 0
        """Of the group; each meeting has a new number."""
        self._loaded = sorted(
            (_next(link, rank_messages.Loaded) for _ in range(link.num_others)), key=lambda each: each.rank
        )
        self._meet()

    @property
    def facts(self) -> interface.WorkerFacts:
        """The first rank's; on a processor, whose memory they share, bytes of all ranks together, else of the one that
        holds most. The note `ranks` has each."""
        facts = self._inner.facts
        measured = [facts.memory_bytes, *(each.memory_bytes for each in self._loaded)]
        planned = [facts.planned_bytes, *(each.planned_bytes for each in self._loaded)]
        is_shared = facts.device == "cpu"
        # What steps and tables take was measured on the first rank; the others run the same steps.
        measured = [{**facts.memory_bytes, **each} for each in measured]
        size = len(measured)
        return dataclasses.replace(
            facts,
            memory_bytes=_together(measured, is_shared=is_shared),
            planned_bytes=_together(planned, is_shared=is_shared),
            memory_limit_bytes=facts.memory_limit_bytes * (size if is_shared else 1),
            notes={**facts.notes, "ranks": _described(measured, self._group.backend)},
        )

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """As `interface.Worker` says, on all ranks. Raises OutOfMemory where memory ran out on any of them."""
        self._link.send(rank_messages.Execute(plan))
        try:
            result = self._inner.execute(plan)
            if plan.swaps_out or plan.swaps_in:  # the others may be behind, and pages must not be lost unseen
                self._await_copies()
        except (errors.OutOfMemory, errors.RankLost) as error:
            raise self._reason(error) from error
        return result

    def close(self) -> None:
        """The others are told, and end by themselves."""
        self._link.send(rank_messages.Close())
        self._group.leave()
        self._inner.close()

    def _await_copies(self) -> None:
        for _ in range(self._link.num_others):
            said = self._link.receive()
            if isinstance(said, rank_messages.OutOfMemory):
                raise errors.OutOfMemory(f"rank {said.rank}: {said.message}")

    def _reason(self, error: errors.EngineError) -> errors.EngineError:
        """Why a step failed, as far as any rank knows. After a lack of memory all have met again."""
        self._group.leave()
        told: str | None = None
        if isinstance(error, errors.OutOfMemory):
            told = str(error)
        else:
            said = self._link.receive(REASON_SECONDS)
            while said is not None and not isinstance(said, rank_messages.OutOfMemory):
                said = self._link.receive(REASON_SECONDS)
            told = None if said is None else f"rank {said.rank}: {said.message}"
        if told is None:
            return errors.RankLost(
                f"the ranks that share the model lost each other, and none says why: {error}. A rank that hangs or was "
                "stopped looks like this"
            )
        self._meet()
        _logger.warning("the ranks have met again after a lack of memory generation=%d", self._generation)
        return errors.OutOfMemory(told)

    def _meet(self) -> None:
        """All ranks in a new group. What they said of a failed step comes before that and is dropped here."""
        self._generation += 1
        self._link.send(rank_messages.Meet(self._generation))
        self._group.meet(self._generation)
        missing = self._link.num_others
        while missing:
            said = self._link.receive(process_group.WAIT_SECONDS)
            if said is None:
                raise errors.RankLost(f"{missing} ranks did not come within {process_group.WAIT_SECONDS:g} s")
            missing -= isinstance(said, rank_messages.Met) and said.generation == self._generation


def _next(link: Link, kind: type[_Said]) -> _Said:
    said = link.receive()
    if not isinstance(said, kind):
        raise errors.EngineError(f"a rank said {said}, expected {kind.__name__}: this is a mistake of ours")
    return said


def _together(each: list[dict[str, int]], *, is_shared: bool) -> dict[str, int]:
    if not is_shared:
        totals = [sum(parts.values()) for parts in each]
        return each[totals.index(max(totals))]
    names = dict.fromkeys(part for parts in each for part in parts)
    return {part: sum(parts.get(part, 0) for parts in each) for part in names}


def _described(each: list[dict[str, int]], backend: str) -> str:
    listed = "; ".join(
        f"rank {rank}: " + ", ".join(f"{part} {parts[part]:,}" for part in footprint.PARTS if part in parts)
        for rank, parts in enumerate(each)
    )
    return f"{len(each)} by {backend}, bytes measured: {listed}"
