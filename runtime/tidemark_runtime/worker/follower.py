"""A rank that is not the first: loads its part, then computes whatever plans it is sent."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import interface, parallel, rank_links, rank_messages, ranks


class Follower:
    """`run` returns when the first rank says that nothing follows."""

    def __init__(self, start: parallel.Start, group: parallel.Meeting, link: rank_links.OtherLink) -> None:
        self._start = start
        self._group = group
        self._link = link
        self._rank = group.shard.rank
        self._plans = SamePlans()

    def run(self) -> None:
        """Raises what loading raises, and whatever ends a step but a lack of memory and the loss of another rank; the
        first rank has been told then."""
        with last_words(self._rank, self._link, self._group):
            self._run()

    def _run(self) -> None:
        place = ranks.Place(self._group, self._agree)
        worker = self._start.load(self._start.settings, self._start.source, lambda _phase, _share: None, place)
        self._link.send(loaded(self._rank, worker.facts))
        while True:
            message = self._link.receive()
            match message:
                case rank_messages.Meet(generation):
                    self._group.meet(generation)
                    self._link.send(rank_messages.Met(self._rank, generation))
                case rank_messages.Execute(plan):
                    self._execute(worker, plan)
                case rank_messages.Tell():
                    self._link.send(rank_messages.Told(self._rank, worker.facts.kernel_paths))
                case rank_messages.Close():
                    self._group.leave()
                    worker.close()
                    return
                case _:
                    raise errors.EngineError(f"the first rank said {message}, expected a plan: a mistake of ours")

    def _execute(self, worker: interface.Worker, plan: step_plan.StepPlan) -> None:
        try:
            worker.execute(self._plans.same(plan))
        except errors.OutOfMemory as error:
            # Said before the group is left: the first rank looks for a reason as soon as it notices.
            self._link.send(rank_messages.OutOfMemory(self._rank, plan.step, str(error)))
            self._group.leave()
        except errors.RankLost:
            self._group.leave()  # another one knows why; this one hears of it, or ends with the first
        else:
            if plan.swaps_out or plan.swaps_in:
                self._link.send(rank_messages.Copied(self._rank, plan.step))

    def _agree(self, own: ranks.NumPages) -> ranks.NumPages:
        self._link.send(rank_messages.Sized(self._rank, own.slab, own.host))
        said = self._link.receive()
        if not isinstance(said, rank_messages.Agreed):
            raise errors.EngineError(f"the first rank said {said}, expected how many pages all have: a mistake of ours")
        return ranks.NumPages(said.slab_pages, said.host_pages)


def loaded(rank: int, facts: interface.WorkerFacts) -> rank_messages.Loaded:
    """What a rank that is not the first tells of itself."""
    return rank_messages.Loaded(
        rank, facts.memory_bytes, facts.planned_bytes, facts.layout.page_bytes_by_dtype, facts.kernel_paths
    )


class SamePlans:
    """A steady batch brings the same tuple of decodes again (`StepPlan.decodes`), and so it is on other ranks, too."""

    def __init__(self) -> None:
        self._decodes: tuple[int, ...] = ()

    def same(self, plan: step_plan.StepPlan) -> step_plan.StepPlan:
        """`plan`, with the object of the plan before."""
        if plan.decodes == self._decodes:
            return dataclasses.replace(plan, decodes=self._decodes)
        self._decodes = plan.decodes
        return plan


@contextlib.contextmanager
def last_words(rank: int, link: rank_links.OtherLink, group: parallel.Meeting) -> Iterator[None]:
    """The first rank is told what ends this one, before the group is left."""
    try:
        yield
    except BaseException as error:
        message = str(error) if isinstance(error, errors.TidemarkError) else f"{type(error).__name__}: {error}"
        link.send(rank_messages.Failed(rank, type(error).__name__, message))
        group.leave()
        raise
