"""What the first rank of several devices does with what it hears: no socket, no device, one thread that listens."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.worker import device_ranks, rank_listening, rank_messages


class Link:
    """What is put into `said` is heard next; an exception is raised."""

    num_others = 2

    def __init__(self) -> None:
        self.said: queue.SimpleQueue[rank_messages.FromRank | Exception] = queue.SimpleQueue()
        self.sent: list[rank_messages.ToRank] = []

    def send(self, message: rank_messages.ToRank) -> None:
        self.sent.append(message)

    def receive(self, seconds: float = 0.0) -> rank_messages.FromRank | None:
        try:
            said = self.said.get(timeout=0.01)
        except queue.Empty:
            return None
        if isinstance(said, Exception):
            raise said
        return said


class Group:
    """Counts how often it is left."""

    backend = "test"
    shard = model_parallel.Shard(0, 3)

    def __init__(self, *, can_leave: bool = True) -> None:
        self.can_leave = can_leave
        self.num_left = 0

    def leave(self) -> None:
        self.num_left += 1


@pytest.fixture
def link() -> Link:
    return Link()


def listening_to(link: Link, group: Group, **more: float) -> Iterator[rank_listening.Listening]:
    made = rank_listening.Listening(link, group, **more)  # type: ignore[arg-type]
    yield made
    made.stop()


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def listening(link: Link, group: Group) -> Iterator[rank_listening.Listening]:
    yield from listening_to(link, group)


OUT = rank_messages.OutOfMemory(2, 7, "memory ran out in a step")


def test_answers_come_in_order_and_meetings_apart(link: Link, listening: rank_listening.Listening) -> None:
    """A rank that has met goes on and says its size, before another one has met."""
    for said in (rank_messages.Met(1, 1), rank_messages.Sized(1, 5, 0), rank_messages.Met(2, 1)):
        link.said.put(said)
    assert [listening.met(20), listening.met(20)] == [rank_messages.Met(1, 1), rank_messages.Met(2, 1)]
    assert listening.receive(20) == rank_messages.Sized(1, 5, 0)
    assert listening.receive(0) is None


def test_a_lack_of_memory_is_told_until_all_have_met_again(
    link: Link, group: Group, listening: rank_listening.Listening
) -> None:
    link.said.put(OUT)
    with pytest.raises(errors.OutOfMemory, match="rank 2: memory ran out in a step"):
        listening.wait(20)
    assert isinstance(listening.failure, errors.OutOfMemory)
    assert (group.num_left, link.sent) == (1, [rank_messages.Leave()])
    listening.fail(errors.OutOfMemory("of another rank, a part of the same"))
    assert group.num_left == 1
    listening.forget()
    assert listening.failure is None
    listening.wait(0)


def test_a_graver_failure_counts_and_stays(link: Link, group: Group, listening: rank_listening.Listening) -> None:
    listening.fail(errors.OutOfMemory("first"))
    link.said.put(errors.RankLost("rank 2 ended"))
    with pytest.raises(errors.RankLost, match="rank 2 ended"):
        listening.receive(20)
    with pytest.raises(errors.RankLost, match="rank 2 ended"):
        listening.forget()
    assert group.num_left == 2
    assert listening.reason(errors.RankLost("mine")) is listening.failure


def test_where_nothing_ends_a_wait_on_the_device_a_lack_of_memory_is_the_end(link: Link) -> None:
    for listening in listening_to(link, Group(can_leave=False)):
        link.said.put(OUT)
        with pytest.raises(errors.RankLost, match=r"memory ran out in a step. The other devices wait in test"):
            listening.wait(20)


def test_a_step_that_takes_for_ever_has_lost_a_rank(link: Link) -> None:
    for listening in listening_to(link, Group(), hang_seconds=0.0):
        with listening.watched(), pytest.raises(errors.RankLost, match="a step has not ended after 0 s"):
            listening.wait(20)


class Garbage:
    """A step whose group was left under it: its numbers are none."""

    is_over = True

    def result(self) -> step_plan.StepResult:
        raise errors.EngineError("the model computed no finite number")


def test_what_is_computed_after_the_group_was_left_is_not_blamed(listening: rank_listening.Listening) -> None:
    step = device_ranks.AllLaunched(Garbage(), listening)
    with pytest.raises(errors.EngineError, match="no finite number"):
        step.result()
    listening.fail(errors.OutOfMemory("rank 2: memory ran out"))
    with pytest.raises(errors.OutOfMemory, match="rank 2"):
        step.result()
