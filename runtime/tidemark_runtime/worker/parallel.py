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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import parallel, sources, weights
from tidemark_runtime.planning import footprint
from tidemark_runtime.worker import interface, process_group, rank_messages, ranks, selftest

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

    @property
    def can_leave(self) -> bool:
        """Whether `leave` ends what other ranks wait for."""
        ...

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
    made.ask_for_paths()
    if selftest.is_strict(start.settings.hardware):
        selftest.refuse(made.facts.kernel_paths)
    return made


def agree(link: Link, own: ranks.NumPages) -> ranks.NumPages:
    """The least of all ranks' pages, once all have said theirs; they are told. On the first rank."""
    least = own
    for _ in range(link.num_others):
        said = expect(link, rank_messages.Sized)
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
            (expect(link, rank_messages.Loaded) for _ in range(link.num_others)), key=lambda each: each.rank
        )
        self._meet()

    @property
    def facts(self) -> interface.WorkerFacts:
        """The first rank's; on a processor, whose memory they share, bytes of all ranks together, else of the one that
        holds most. The note `ranks` has each."""
        return facts_of_all(self._inner.facts, self._loaded, self._group.backend)

    def ask_for_paths(self) -> None:
        """What the others' steps have run on so far. Waits for those that are still computed."""
        self._link.send(rank_messages.Tell())
        told = {said.rank: said for said in (expect(self._link, rank_messages.Told) for _ in self._loaded)}
        self._loaded = [
            msgspec.structs.replace(each, kernel_paths=told[each.rank].kernel_paths) for each in self._loaded
        ]

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
            return nobody_says(error)
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


def facts_of_all(
    facts: interface.WorkerFacts, loaded: Sequence[rank_messages.Loaded], backend: str
) -> interface.WorkerFacts:
    """`facts`: of the first rank, `loaded`: of the others, in their order. On a processor, whose memory they share,
    bytes of all ranks together, else of the one that holds most, also of a page; kernel paths are those of all. The
    note `ranks` has each."""
    measured = [facts.memory_bytes, *(each.memory_bytes for each in loaded)]
    planned = [facts.planned_bytes, *(each.planned_bytes for each in loaded)]
    is_shared = facts.device == "cpu"
    # What steps and tables take was measured on the first rank; the others run the same steps.
    measured = [{**facts.memory_bytes, **each} for each in measured]
    size = len(measured)
    return dataclasses.replace(
        facts,
        memory_bytes=_together(measured, is_shared=is_shared),
        planned_bytes=_together(planned, is_shared=is_shared),
        memory_limit_bytes=facts.memory_limit_bytes * (size if is_shared else 1),
        kernel_paths=_paths([facts.kernel_paths, *(each.kernel_paths for each in loaded)]),
        page_of_ranks=_page(
            [facts.layout.page_bytes_by_dtype, *(each.page_bytes_by_dtype for each in loaded)], is_shared=is_shared
        ),
        notes={**_of_each_rank(facts.notes), "ranks": _described(measured, backend)},
    )


def nobody_says(error: Exception) -> errors.RankLost:
    """Of a loss whose reason no rank tells."""
    return errors.RankLost(
        f"the ranks that share the model lost each other, and none says why: {error}. A rank that hangs or was stopped "
        "looks like this"
    )


def expect(link: Link, kind: type[_Said]) -> _Said:
    """The next message of another rank. Raises EngineError for one of another kind."""
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


def _page(each: Sequence[Mapping[str, int]], *, is_shared: bool) -> interface.PageBytes:
    """What a page takes on all ranks; `each`: by dtype, of one rank."""
    dtypes = dict.fromkeys(dtype for page in each for dtype in page)
    if is_shared:
        by_dtype = {dtype: sum(page.get(dtype, 0) for page in each) for dtype in dtypes}
        return interface.PageBytes(sum(by_dtype.values()), by_dtype)
    largest = max(each, key=lambda page: sum(page.values()))
    others = {dtype: max(page.get(dtype, 0) for page in each) for dtype in dtypes if dtype not in largest}
    return interface.PageBytes(sum(largest.values()), {**largest, **others})


def _paths(each: Sequence[Sequence[status.KernelPath]]) -> tuple[status.KernelPath, ...]:
    """Every path of every rank, in their order: one that several ranks run with the error of the rank where it is
    largest, one that is not planned with the first rank that runs it, where that is not rank 0."""
    found: dict[tuple[str, str, str, str], status.KernelPath] = {}
    for rank, paths in enumerate(each):
        for path in paths:
            key = (path.op, path.dtype, path.path, path.planned)
            known = found.get(key)
            if known is None:
                is_told = rank and not path.is_planned
                found[key] = (
                    msgspec.structs.replace(path, reason=f"rank {rank}: {path.reason or 'no reason given'}")
                    if is_told
                    else path
                )
            elif path.largest_error > known.largest_error:
                found[key] = msgspec.structs.replace(known, largest_error=path.largest_error)
    return tuple(found[key] for key in sorted(found))


def _of_each_rank(notes: Mapping[str, str]) -> dict[str, str]:
    """The first rank's notes; the one about its share of the memory says that it is a share."""
    share = {"memoryLimit": f"{notes['memoryLimit']}, of each rank"} if "memoryLimit" in notes else {}
    return {**notes, **share}


def _described(each: list[dict[str, int]], backend: str) -> str:
    listed = "; ".join(
        f"rank {rank}: " + ", ".join(f"{part} {parts[part]:,}" for part in footprint.PARTS if part in parts)
        for rank, parts in enumerate(each)
    )
    return f"{len(each)} by {backend}, bytes measured: {listed}"
