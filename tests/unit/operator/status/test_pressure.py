"""When memory counts as short, what is said of it, and how the soft limit answers."""

from __future__ import annotations

import datetime
from typing import Any

import manifests
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator import api
from tidemark_operator.status import pressure, tightening
from tidemark_runtime.contract import status as contract

NOW = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
FELT = pressure.Pressure("AbovePreemptLine", "m.", running=3)
QUEUEING = pressure.Pressure("AboveQueueLine", "m.", running=3)
CALM = pressure.Pressure("BelowLines", "m.", running=3)
SILENT = pressure.Pressure("NoAnswer", "m.")


def engine(*, above: tuple[str, ...] = (), waiting: int = 0, running: int = 5, used: int = 80) -> contract.EngineStatus:
    return contract.EngineStatus(
        version="0",
        state=contract.EngineState.READY,
        message="",
        model=contract.ModelStatus("base", "/models"),
        config=contract.ConfigStatus("h"),
        memory=contract.MemoryStatus(pages_total=100, pages_used=used),
        queue=contract.QueueStatus(running=running, waiting=waiting),
        lines={name: contract.LineStatus(level, name in above) for name, level in (("queue", 0.7), ("preempt", 0.9))},
    )


@pytest.mark.parametrize(
    ("engines", "reason"),
    [
        ({}, "NoAnswer"),
        ({"a": None}, "NoAnswer"),
        ({"a": engine()}, "BelowLines"),
        ({"a": engine(above=("queue",))}, "BelowLines"),  # nobody waits: nobody feels it
        ({"a": engine(waiting=4)}, "BelowLines"),  # for a place, not for memory
        ({"a": engine(above=("queue",), waiting=1)}, "AboveQueueLine"),
        ({"a": engine(above=("queue", "preempt"))}, "AbovePreemptLine"),
        ({"a": engine(above=("queue",), waiting=1), "b": engine(above=("queue", "preempt"))}, "AbovePreemptLine"),
        ({"a": None, "b": engine(above=("queue",), waiting=1)}, "AboveQueueLine"),
    ],
)
def test_pressure_is_a_line_that_somebody_feels(engines: dict[str, Any], reason: str) -> None:
    assert pressure.of(engines).reason == reason


def test_the_sentence_has_the_pod_and_the_numbers() -> None:
    found = pressure.of({"b": engine(above=("queue",), waiting=3, running=9, used=72), "a": engine()})
    assert found.message == (
        "b: 72 of 100 pages in use (72%), queue line 70%: new requests wait until pages come free; 9 run, 3 wait."
    )


@pytest.mark.parametrize(("seconds", "status"), [(0.0, "True"), (59.0, "True"), (60.0, "False"), (None, "False")])
def test_the_condition_stands_a_while_after_the_last_pass_that_saw_pressure(seconds: float | None, status: str) -> None:
    previous = {"status": "True", "reason": "AboveQueueLine", "message": "as it was"}
    found = pressure.condition(CALM, previous, seconds)
    assert found.status == status
    assert (found.reason == "AboveQueueLine") == (status == "True")


def test_what_was_never_under_pressure_does_not_begin_with_it() -> None:
    assert pressure.condition(CALM, {}, 5.0).status == "False"
    assert pressure.condition(SILENT, {"status": "True"}, 5.0).status == "Unknown"


# ------------------------------------------------------------------------------------------------ the soft limit


def after(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def test_it_goes_down_by_fifths_to_half_and_comes_back() -> None:
    state: tightening.Tightened | None = None
    seen: list[int] = []
    for step in range(12):
        looked = FELT if step < 7 else CALM
        state = tightening.next_state(state, 20, looked, looked is FELT, after(31 * step))
        seen.append(state.limit if state else 20)
    assert seen == [16, 12, 10, 10, 10, 10, 10, 14, 18, 20, 20, 20]
    assert state is None


def test_each_change_has_time_to_show() -> None:
    first = tightening.next_state(None, 20, FELT, True, NOW)
    assert first is not None
    assert tightening.next_state(first, 20, FELT, True, after(29)) == first
    assert tightening.next_state(first, 20, CALM, False, after(29)) == first


def test_the_queue_line_alone_and_silence_change_nothing() -> None:
    assert tightening.next_state(None, 20, QUEUEING, True, NOW) is None
    first = tightening.next_state(None, 20, FELT, True, NOW)
    for looked in (QUEUEING, SILENT, CALM):
        assert tightening.next_state(first, 20, looked, looked is not SILENT, after(100)) == first


def test_never_below_what_runs_because_an_engine_would_refuse_it() -> None:
    busy = pressure.Pressure("AbovePreemptLine", "m.", running=19)
    lowered = tightening.next_state(None, 20, busy, True, NOW)
    assert lowered is not None
    assert lowered.limit == 19
    full = pressure.Pressure("AbovePreemptLine", "m.", running=20)
    assert tightening.next_state(None, 20, full, True, NOW) is None


LOOKS = st.builds(
    pressure.Pressure,
    st.sampled_from(["AbovePreemptLine", "AboveQueueLine", "BelowLines", "NoAnswer"]),
    st.just("m."),
    st.integers(0, 40),
)


@given(spec=st.integers(1, 40), looks=st.lists(st.tuples(LOOKS, st.integers(0, 90)), max_size=40))
def test_whatever_happens_it_is_bounded_and_ends_at_the_spec(
    spec: int, looks: list[tuple[pressure.Pressure, int]]
) -> None:
    state: tightening.Tightened | None = None
    now = NOW
    for looked, seconds in looks:
        now += datetime.timedelta(seconds=seconds)
        before = state.limit if state else spec
        state = tightening.next_state(state, spec, looked, looked.is_felt, now)
        limit = state.limit if state else spec
        assert tightening.least(spec) <= limit <= spec
        assert limit >= min(before, looked.running)
        assert state is None or state.limit < spec
    for _ in range(10):
        now += datetime.timedelta(seconds=31)
        state = tightening.next_state(state, spec, CALM, False, now)
    assert state is None


def service(status: dict[str, Any], response: str = "tighten") -> api.InferenceService:
    document = manifests.small(watermarks={"response": response})
    return api.parse({**document, "status": status})


def test_the_state_is_read_back_from_the_status() -> None:
    state = tightening.Tightened(12, 20, "2026-05-04T03:02:01Z", "2026-05-04T03:02:31Z")
    assert tightening.read(service({"tightened": state.dump()}), 20) == state


@pytest.mark.parametrize(
    "kept",
    [
        None,
        {},
        "x",
        {"maxConcurrencySoft": "12", "instead": 20, "since": "a", "changed": "b"},
        {"maxConcurrencySoft": 12, "instead": 30, "since": "a", "changed": "b"},  # the spec has changed since
        {"maxConcurrencySoft": 12, "instead": 20},
        {"maxConcurrencySoft": 12, "instead": 20, "since": "a", "changed": "not a time"},
    ],
)
def test_a_status_that_says_something_else_counts_as_none(kept: Any) -> None:
    assert tightening.read(service({"tightened": kept}), 20) is None


def test_a_hand_written_limit_is_brought_within_the_bounds() -> None:
    times = {"since": "2026-05-04T03:02:01Z", "changed": "2026-05-04T03:02:31Z"}
    found = tightening.read(service({"tightened": {"maxConcurrencySoft": 1, "instead": 20, **times}}), 20)
    assert found is not None
    assert found.limit == 10


def test_observe_ignores_what_stands_there() -> None:
    state = tightening.Tightened(12, 20, "2026-05-04T03:02:01Z", "2026-05-04T03:02:31Z")
    assert tightening.read(service({"tightened": state.dump()}, "observe"), 20) is None
