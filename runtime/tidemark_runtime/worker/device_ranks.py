"""The first rank of a model that several devices share: launches each step on its own device and has the others do so.

As `parallel` does it on processors, but nobody on the host waits for a step to be computed: one step is queued behind
another on every device. A sum over ranks is queued like a kernel (`process_group`), and so is what brings the first
rank's tokens to the others. Nobody answers to a plan; a step costs one message.

A step that fails on one rank comes to nothing on all, and with it whatever is queued behind it (`rank_listening`
notices and tells). After a lack of memory the ranks meet again, before the next plan that needs nothing of what was
lost; the engine ends all that ran then, so this is the next one it makes anew. Any other failure ends the engine.
"""

from __future__ import annotations

import logging
from typing import Protocol

import torch

from tidemark_runtime import config, errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import sources, weights
from tidemark_runtime.worker import (
    accelerators,
    interface,
    parallel,
    process_group,
    rank_listening,
    rank_messages,
    ranks,
)

_logger = logging.getLogger(__name__)

AFTER_LEAVING = (errors.EngineError, RuntimeError, ValueError, IndexError)
"""What a step may raise whose group was left under it: the numbers that it then computes with are anything. The reason
is then why the group was left."""
_LOOK_SECONDS = 0.0002
"""Between two looks at whether a step is over: little beside the milliseconds that a step takes."""


class Launched(Protocol):
    """A step that is on its way on one rank's device."""

    @property
    def is_over(self) -> bool:
        """Whether the device has computed it. Does not wait."""
        ...

    def result(self) -> step_plan.StepResult: ...


class RankWorker(Protocol):
    """One rank's worker on its device. Its model has the rank's group; it passes on the first rank's tokens by that."""

    @property
    def facts(self) -> interface.WorkerFacts: ...

    def launch(self, plan: step_plan.StepPlan) -> Launched: ...

    def prepare_rank(self, settings: config.EngineConfig, execute: parallel.Execute) -> None:
        """Run whatever must have run before the first step, by `execute`, which all ranks follow."""
        ...

    def close(self) -> None: ...


class Load(Protocol):
    """For example `device_loading.load_rank`."""

    def __call__(
        self, settings: config.EngineConfig, source: sources.ModelSource, progress: weights.Progress, place: ranks.Place
    ) -> RankWorker: ...


def connect(group: parallel.Meeting, generation: int, settings: config.EngineConfig) -> None:
    """Meet, and add something up: what a backend needs of the device's memory it takes now, before the slab is sized,
    and not in the first step. Raises RankLost."""
    device = accelerators.find(settings.hardware.device, group.shard.rank).device
    group.meet(generation)
    with torch.inference_mode():
        found = int(group.all_reduce(torch.ones(1, 1, dtype=torch.float32, device=device)))
    if found != group.shard.size:
        raise errors.RankLost(f"{group.shard.size} ranks added up 1 each by {group.backend}, and it came to {found}")


def create(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    progress: weights.Progress,
    load: Load,
    group: parallel.Meeting,
    link: parallel.Link,
) -> DeviceRanks:
    """The worker of all ranks, ready; on the first one, on the thread that will launch. `settings`: of one rank.

    Raises what loading raises on any rank.
    """
    listening = rank_listening.Listening(link, group)
    try:
        progress("waiting for the other ranks", 0.0)
        for _ in range(listening.num_others):
            parallel.expect(listening, rank_messages.Here)
        meetings = _Meetings(settings, group, listening)
        meetings.meet()
        inner = load(settings, source, progress, ranks.Place(group, lambda own: parallel.agree(listening, own)))
        progress("waiting for the other ranks", 1.0)
        made = DeviceRanks(inner, meetings, listening)
        progress("warming up", 1.0)
        inner.prepare_rank(settings, made.execute)
    except BaseException:
        listening.stop()
        raise
    return made


class _Meetings:
    """Of all ranks, each in a new group."""

    def __init__(
        self, settings: config.EngineConfig, group: parallel.Meeting, listening: rank_listening.Listening
    ) -> None:
        self._settings = settings
        self.group = group
        self._listening = listening
        self.generation = 0

    def meet(self) -> None:
        """Raises RankLost, or what else ended a rank."""
        self.generation += 1
        listening = self._listening
        listening.send(rank_messages.Meet(self.generation))
        with listening.watched():
            try:
                connect(self.group, self.generation, self._settings)
            except errors.RankLost as error:
                listening.fail(error)
        missing = listening.num_others
        while missing:
            said = listening.met(process_group.WAIT_SECONDS)
            if said is None:
                listening.fail(errors.RankLost(f"{missing} ranks did not come within {process_group.WAIT_SECONDS:g} s"))
            missing -= said is not None and said.generation == self.generation
        listening.forget()


class DeviceRanks:
    """Implements `device_threads.LaunchingWorker`, for all ranks."""

    def __init__(self, inner: RankWorker, meetings: _Meetings, listening: rank_listening.Listening) -> None:
        """`inner`: the first rank's own worker, loaded. Waits until the others are loaded, too."""
        self._inner = inner
        self._meetings = meetings
        self._listening = listening
        self._loaded = sorted(
            (parallel.expect(listening, rank_messages.Loaded) for _ in range(listening.num_others)),
            key=lambda each: each.rank,
        )

    @property
    def facts(self) -> interface.WorkerFacts:
        """The first rank's, with the bytes of the rank that holds most. The note `ranks` has each."""
        return parallel.facts_of_all(self._inner.facts, self._loaded, self._meetings.group.backend)

    def execute(self, plan: step_plan.StepPlan) -> step_plan.StepResult:
        """Launch, and wait."""
        return self.launch(plan).result()

    def launch(self, plan: step_plan.StepPlan) -> AllLaunched:
        """Queue one step on every device. Raises OutOfMemory where memory ran out on any of them, in this step or in
        one before that it needs; RankLost and whatever else ended a rank."""
        listening = self._listening
        self._come_back(plan)
        listening.send(rank_messages.Execute(plan))
        try:
            with listening.watched():
                launched = self._inner.launch(plan)
        except errors.OutOfMemory as error:
            listening.fail(error)
            raise
        except errors.RankLost as error:
            raise listening.reason(error) from error
        except AFTER_LEAVING:
            listening.wait(0)
            raise
        return AllLaunched(launched, listening)

    def close(self) -> None:
        """After what is queued. The others are told, and end by themselves."""
        self._listening.send(rank_messages.Close())
        self._inner.close()
        self._meetings.group.leave()
        self._listening.stop()

    def _come_back(self, plan: step_plan.StepPlan) -> None:
        """After a failure: meet again, where `plan` can be computed without what was lost."""
        failure = self._listening.failure
        if failure is None:
            return
        if not isinstance(failure, errors.OutOfMemory) or not needs_nothing(plan):
            raise failure
        self._meetings.meet()
        _logger.warning("the ranks have met again after a lack of memory generation=%d", self._meetings.generation)


class AllLaunched:
    """A step that is on its way on all devices. Implements `device_threads.Launched`."""

    def __init__(self, own: Launched, listening: rank_listening.Listening) -> None:
        self._own = own
        self._listening = listening

    def result(self) -> step_plan.StepResult:
        """Waits for it. Raises as `DeviceRanks.launch`, and EngineError where logits are no numbers."""
        listening = self._listening
        with listening.watched():
            while not self._own.is_over:
                listening.wait(_LOOK_SECONDS)
        try:
            result = self._own.result()
        except errors.OutOfMemory as error:
            listening.fail(error)
            raise
        except AFTER_LEAVING:
            listening.wait(0)
            raise
        listening.wait(0)
        return result


def needs_nothing(plan: step_plan.StepPlan) -> bool:
    """Whether all that a plan computes begins in it."""
    begun = {join.slot for join in plan.joins}
    computed = {*plan.decodes, *(chunk.slot for chunk in plan.chunks), *(each.slot for each in plan.verifications)}
    return computed <= begun and all(added.slot in begun for added in plan.new_pages)
