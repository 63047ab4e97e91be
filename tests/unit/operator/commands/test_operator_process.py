from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster.kubernetes import connection, metrics
from tidemark_operator.commands import operator_process


class Connected:
    """What is known of a connection before anything is asked."""

    server = "https://example:6443"
    namespace = "system"


class Source(connection.Source):
    def __init__(self, in_pod: bool) -> None:
        super().__init__({}, home=Path("/nowhere"))
        self.in_pod = in_pod


class Api:
    """Answers whether a path exists."""

    def __init__(self, *answers: bool | errors.ClusterError) -> None:
        self.answers = list(answers)

    async def exists(self, path: str) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, errors.ClusterError):
            raise answer
        return answer


def operator(clock: Any, api: Any, *, in_pod: bool = False) -> operator_process._Operator:
    options = operator_process.Options(source=Source(in_pod), key=bytes(32), image="x:1")
    made = operator_process._Operator(
        options,
        Connected(),  # type: ignore[arg-type]
        Connected(),  # type: ignore[arg-type]
        httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(500))),
        metrics.Metrics(),
        asyncio.Event(),
        lambda: None,
    )
    made._api, made._clock = api, clock
    return made


async def test_without_the_kind_the_way_to_install_it_is_told(clock: Any) -> None:
    with pytest.raises(errors.NotFound, match=r"does not know the kind InferenceService.*kubectl apply -f crds/"):
        await operator(clock, Api(False))._check()


async def test_an_api_server_that_is_away_is_told_outside_a_cluster(clock: Any) -> None:
    with pytest.raises(errors.Unavailable, match="connection refused"):
        await operator(clock, Api(errors.Unavailable("connection refused")))._check()


async def test_a_pod_waits_for_an_api_server_that_is_away(clock: Any, caplog: pytest.LogCaptureFixture) -> None:
    api = Api(errors.Unavailable("away"), errors.Unavailable("away"), False)
    checking = asyncio.create_task(operator(clock, api, in_pod=True)._check())
    await clock.advance(4)
    assert not checking.done()
    await clock.advance(10)
    with pytest.raises(errors.NotFound):
        checking.result()
    assert caplog.text.count("waiting for the API server: away") == 2


async def test_one_that_waits_is_live_and_ready(clock: Any) -> None:
    waiting = operator(clock, Api())
    assert waiting._live().good
    assert waiting._ready().good


async def test_a_leader_is_ready_once_its_cache_is_complete_and_live_while_its_watches_are(clock: Any) -> None:
    leading = operator(clock, Api())
    leading._cluster = leading._make_cluster()
    assert not leading._ready().good
    leading._synced = True
    assert leading._ready().good
    limit = settings.KubernetesSettings().watch_age_limit_seconds
    await clock.advance(limit)
    assert leading._live().good
    await clock.advance(1)
    assert not leading._live().good
    assert "last worked 271 seconds ago; the limit is 270" in leading._live().words


async def test_a_signal_stops_and_a_task_that_fails_is_heard(clock: Any) -> None:
    process = operator(clock, Api())
    forever = asyncio.create_task(asyncio.Event().wait())
    with operator_process._signals(process._stop):
        os.kill(os.getpid(), signal.SIGTERM)
        await process._until_stopped([forever])  # type: ignore[list-item]
    assert process._stop.is_set()
    process._stop.clear()

    async def fail() -> None:
        raise errors.Conflict("the lease was lost")

    with pytest.raises(errors.Conflict, match="the lease was lost"):
        await process._until_stopped([forever, asyncio.create_task(fail())])  # type: ignore[list-item]
    forever.cancel()


async def test_others_that_took_our_signals_lose_them_again(clock: Any) -> None:
    process = operator(clock, Api())
    with operator_process._signals(process._stop) as install:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)  # as kopf does
        install()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(process._stop.wait(), 5)
