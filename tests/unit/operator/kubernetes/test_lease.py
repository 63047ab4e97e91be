from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import lease as lease_

KEY = interface.Key("Lease", "system", "tidemark-operator")
SETTINGS = settings.LeaseSettings()


def lease(api: Any, clock: Any, identity: str) -> lease_.Lease:
    return lease_.Lease(api, KEY, identity, settings=SETTINGS, clock=clock)


def holder(api: Any) -> str:
    return str(api.objects[KEY]["spec"]["holderIdentity"])


async def test_a_lease_that_nobody_has_is_taken_at_once(api: Any, clock: Any) -> None:
    await lease(api, clock, "one").acquire()
    assert api.objects[KEY]["spec"] == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_second_operator_waits_says_so_and_takes_over_when_the_first_ended(
    api: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second = lease(api, clock, "one"), lease(api, clock, "two")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    waiting = asyncio.create_task(second.acquire())
    await clock.advance(60)
    assert not waiting.done()
    assert [record.message for record in caplog.records if "waiting" in record.message] == [
        "waiting: one leads, this operator takes over when it ends"
    ]
    holding.cancel()
    await first.release()
    await clock.advance(2)
    assert waiting.done()
    assert holder(api) == "two"
    assert api.objects[KEY]["spec"]["leaseTransitions"] == 1


async def test_the_lease_of_a_killed_operator_runs_out_on_our_own_clock(api: Any, clock: Any) -> None:
    await lease(api, clock, "one").acquire()
    await clock.advance(1000)  # however old it looks, we have watched it for no time yet
    waiting = asyncio.create_task(lease(api, clock, "two").acquire())
    await clock.advance(14)
    assert not waiting.done()
    await clock.advance(4)
    assert waiting.done()
    assert holder(api) == "two"


async def test_of_two_that_try_at_the_same_moment_one_gets_it(api: Any, clock: Any) -> None:
    tasks = [asyncio.create_task(lease(api, clock, name).acquire()) for name in ("one", "two")]
    await clock.advance(10)
    assert sum(task.done() for task in tasks) == 1
    for task in tasks:
        task.cancel()


async def test_renewing_keeps_it(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await clock.advance(300)
    assert not holding.done()
    assert api.objects[KEY]["spec"]["renewTime"] == "2026-01-01T00:05:00.000000Z"
    holding.cancel()


async def test_a_lease_that_somebody_else_has_ends_the_leader(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    api.put({**api.objects[KEY], "spec": {**api.objects[KEY]["spec"], "holderIdentity": "two"}})
    await clock.advance(SETTINGS.renew_seconds)  # the first renewal sees it
    with pytest.raises(errors.Conflict, match="two holds it now"):
        holding.result()


async def test_a_lease_that_was_deleted_ends_the_leader(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    api.objects.clear()
    await clock.advance(SETTINGS.renew_seconds)
    with pytest.raises(errors.Conflict, match="nobody holds it now"):
        holding.result()


async def test_a_leader_that_cannot_renew_ends_before_anybody_else_may_begin(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    api.fails = [errors.Unavailable("away")] * 100
    await clock.advance(4.9)
    assert not holding.done()
    await clock.advance(5.1)
    with pytest.raises(errors.Unavailable, match="could not be renewed for 10 seconds"):
        holding.result()
    assert clock.monotonic() < SETTINGS.duration_seconds


async def test_a_short_outage_is_survived(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    api.fails = [errors.Unavailable("away"), errors.Conflict("somebody set a label")]
    await clock.advance(60)
    assert not holding.done()
    holding.cancel()


async def test_a_label_that_somebody_sets_costs_no_renewal(
    api: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    metadata = {**api.objects[KEY]["metadata"], "labels": {"team": "a"}}
    api.put({**api.objects[KEY], "metadata": metadata})
    await clock.advance(2)
    assert api.objects[KEY]["spec"]["renewTime"] == "2026-01-01T00:00:02.000000Z"
    assert api.objects[KEY]["metadata"]["labels"] == {"team": "a"}
    assert not caplog.records
    holding.cancel()


async def test_one_answer_that_never_comes_ends_nobody(
    api: Any, clock: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    await clock.advance(2)
    replace = api.replace
    monkeypatch.setattr(api, "replace", _never)
    await clock.advance(4)
    monkeypatch.setattr(api, "replace", replace)
    await clock.advance(60)
    assert not holding.done()
    assert [record.message for record in caplog.records] == [
        "renewing the lease failed, trying again: no answer in 4 s"
    ]
    holding.cancel()


async def test_an_api_server_that_says_nothing_ends_the_leader_in_time(
    api: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    monkeypatch.setattr(api, "replace", _never)
    monkeypatch.setattr(api, "get", _never)
    await clock.advance(9.9)
    assert not holding.done()
    await clock.advance(0.1)
    with pytest.raises(errors.Unavailable, match="could not be renewed for 10 seconds"):
        holding.result()


async def test_a_renewal_that_works_is_one_request(api: Any, clock: Any) -> None:
    first = lease(api, clock, "one")
    await first.acquire()
    holding = asyncio.create_task(first.hold())
    api.calls.clear()
    await clock.advance(60)
    assert {verb for verb, _ in api.calls} == {"update"}
    assert len(api.calls) == 30
    holding.cancel()


async def _never(*_: Any) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def test_a_lease_of_somebody_else_is_not_released(api: Any, clock: Any) -> None:
    await lease(api, clock, "one").acquire()
    await lease(api, clock, "two").release()
    assert holder(api) == "one"


async def test_not_being_allowed_to_look_is_no_reason_to_wait(api: Any, clock: Any) -> None:
    api.fails = [errors.Refused("forbidden")]
    with pytest.raises(errors.Refused):
        await lease(api, clock, "one").acquire()
