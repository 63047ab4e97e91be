"""When requests leave, which count, and from when latency counts: on a virtual clock, to the millisecond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import virtual_loop

from tidemark_runtime.loadtest import driver, exchange, figures, levels
from tidemark_runtime.simulation import senders, workload

Answer = Callable[[senders.Request, exchange.Clock, exchange.Exchange], Awaitable[None]]


def answering(first: float, tokens: int = 1, gap: float = 0.0) -> Answer:
    """A server with a place for everybody."""

    async def answer(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        into.sent = clock()
        await asyncio.sleep(first)
        for index in range(tokens):
            if index:
                await asyncio.sleep(gap)
            into.chunk_times.append(clock())
        into.outcome, into.status, into.ended = exchange.Outcome.OK, 200, clock()
        into.prompt_tokens, into.output_tokens = request.num_prompt_tokens, tokens

    return answer


def one_by_one(seconds: Callable[[int], float]) -> Answer:
    """A server with one place; its n-th answer takes `seconds(n)`."""
    place, served = asyncio.Semaphore(1), iter(range(10_000))

    async def answer(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        into.sent = clock()
        async with place:
            await asyncio.sleep(seconds(next(served)))
        into.chunk_times.append(clock())
        into.outcome, into.status, into.ended = exchange.Outcome.OK, 200, clock()
        into.output_tokens = 1

    return answer


def window(seconds: float = 10.0, *, warm_up: float = 0.0, least: int = 1, most: float | None = None) -> levels.Window:
    return levels.Window(warm_up, seconds, least, most or 10 * seconds)


def level_of(values: dict[str, Any]) -> levels.Level:
    """A whole workload of one class."""
    kind = {"promptTokens": 10, "outputTokens": 1, **values}
    load = workload.parse({"classes": {"load": kind}}, "made", seed=1)
    return levels.Level(levels.Kind.SCALE, 1, load, None)


def measured(level: levels.Level, answer: Answer, **more: Any) -> tuple[figures.LevelFigures, driver.Record]:
    record = virtual_loop.run(driver.Driver(level, answer, cpu=lambda: 0.0, **more).run())
    return figures.make(level, record, None, None), record


EVEN = levels.Shape(prompt_tokens="10", output_tokens="1", arrivals="even")


def test_latency_counts_from_when_a_request_was_due() -> None:
    """One answer takes 5 s. A client that waited for it would send four requests fewer, and see one slow answer."""
    level = level_of({"arrivals": {"even": {"perSecond": 1}}, "requests": 8})
    found, record = measured(level, one_by_one(lambda number: 5.0 if number == 1 else 0.1))
    waits = [entry.exchange.ended - entry.due for entry in record.tries if entry.exchange.ended is not None]
    assert waits == pytest.approx([0.1, 5.0, 4.1, 3.2, 2.3, 1.4, 0.5, 0.1], abs=1e-6)
    assert [entry.due for entry in record.tries] == pytest.approx(list(range(8)))
    assert found.total.time_to_first_token.max == pytest.approx(5.0)
    assert found.total.time_to_first_token.mean == pytest.approx(sum(waits) / 8)


def test_a_client_that_is_late_says_so_and_counts_it_to_the_latency() -> None:
    """Something keeps the loop busy for 0.4 s while requests are due."""

    async def answer(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        into.sent = clock()
        if request.number == 0:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, virtual_loop.VirtualLoop)
            loop.now += 0.4
        into.outcome, into.ended = exchange.Outcome.OK, clock()

    level = level_of({"arrivals": {"even": {"perSecond": 10}}, "requests": 5})
    found, record = measured(level, answer)
    late = [entry.exchange.sent - entry.due for entry in record.tries if entry.exchange.sent is not None]
    assert late == pytest.approx([0.0, 0.3, 0.2, 0.1, 0.0], abs=1e-6)
    assert found.client.lateness.max == pytest.approx(0.3)
    assert found.total.end_to_end.max == pytest.approx(0.4)
    assert any("300 ms (p95) after they were due" in warning for warning in found.client.warnings)


def test_a_client_that_is_in_time_warns_of_nothing() -> None:
    found, _ = measured(levels.of_rate(50, EVEN, window(), 1), answering(0.2))
    assert found.client.warnings == ()
    assert found.client.lateness.max == pytest.approx(0.0, abs=1e-6)


def test_a_client_that_computes_all_the_time_warns() -> None:
    seconds = iter([0.0, 9.5])
    level = levels.of_rate(5, EVEN, window(), 1)
    record = virtual_loop.run(driver.Driver(level, answering(0.2), cpu=lambda: next(seconds)).run())
    found = figures.make(level, record, None, None)
    assert found.client.cpu_share == pytest.approx(9.5 / record.seconds)
    assert any("of its one core" in warning for warning in found.client.warnings)


def test_a_window_counts_what_was_first_sent_in_it() -> None:
    """Even arrivals, four a second: 8 in the warm-up, 40 in the window, more until the last of these is answered."""
    found, record = measured(levels.of_rate(4, EVEN, window(10.0, warm_up=2.0), 1), answering(1.0))
    assert found.total.requests == found.total.served == 40
    assert found.seconds == pytest.approx(10.0)
    assert len(record.tries) > 50, "the load goes on while answers that count are awaited"
    assert found.mean_concurrency == pytest.approx(4.0, rel=0.02)
    assert found.requests_per_second == pytest.approx(4.0, rel=0.03)


def test_a_window_lasts_until_enough_requests_have_ended() -> None:
    found, _ = measured(levels.of_users(2, EVEN, window(1.0, least=20), 1), answering(0.5))
    assert found.whole
    assert found.seconds == pytest.approx(5.0, abs=0.02)
    assert found.total.served >= 20


def test_a_window_never_lasts_longer_than_its_most() -> None:
    found, _ = measured(levels.of_users(1, EVEN, window(1.0, least=50, most=6.0), 1), answering(0.5))
    assert not found.whole
    assert found.seconds == pytest.approx(6.0, abs=0.02)


def test_a_window_waits_for_the_first_request_that_counts() -> None:
    """The one user's first request began in the warm-up, and takes longer than the window."""
    found, _ = measured(levels.of_users(1, EVEN, window(1.0, warm_up=1.0, least=2, most=3.0), 1), answering(7.0))
    assert found.total.served >= 1
    assert not found.whole


def test_users_send_when_they_have_read() -> None:
    """Three users, answers of 20 tokens in 1.0 + 19 * 0.1 s."""
    shape = levels.Shape(prompt_tokens="10", output_tokens="20")
    found, record = measured(levels.of_users(3, shape, window(29.0, warm_up=2.9), 1), answering(1.0, 20, 0.1))
    assert found.peak_concurrency == 3
    assert found.mean_concurrency == pytest.approx(3.0, rel=0.01)
    assert found.output_tokens_per_second == pytest.approx(3 * 20 / 2.9, rel=0.03)
    assert found.total_tokens_per_second == pytest.approx(3 * 30 / 2.9, rel=0.05)
    assert found.total.between_tokens.p50 == pytest.approx(0.1, rel=0.02)
    assert found.total.end_to_end.p99 == pytest.approx(2.9)
    firsts = sorted(entry.due for entry in record.tries)[:3]
    assert firsts == pytest.approx([0.0, 2.9 / 3, 5.8 / 3]), "users begin within the warm-up"


def test_the_same_seed_sends_the_same_at_the_same_moments() -> None:
    shape = levels.Shape(prompt_tokens="{uniform: {min: 5, max: 500}}", output_tokens="{uniform: {min: 1, max: 90}}")

    def sent(seed: int) -> list[tuple[float, int, int]]:
        _, record = measured(levels.of_rate(3, shape, window(), seed), answering(0.3))
        return [(e.due, e.request.num_prompt_tokens, e.request.num_output_tokens) for e in record.tries]

    assert sent(4) == sent(4)
    assert sent(4) != sent(5)


def refusing(times: int, retry_after: float | None) -> Answer:
    """Every request is refused so many times, then served."""

    async def answer(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        into.sent = clock()
        await asyncio.sleep(0.1)
        if request.num_tries <= times:
            into.outcome, into.status, into.code = exchange.Outcome.REFUSED, 429, "queue_full"
            into.retry_after_seconds = retry_after
        else:
            into.outcome, into.status = exchange.Outcome.OK, 200
            into.chunk_times.append(clock())
        into.ended = clock()

    return answer


def test_clients_come_back_when_retry_after_says_and_first_tries_are_what_users_feel() -> None:
    retries = {"most": 2, "backoffSeconds": 0.5}
    level = level_of({"arrivals": {"at": {"seconds": [0]}}, "retries": retries})
    found, record = measured(level, refusing(2, 3.0))
    total = found.total
    assert [entry.due for entry in record.tries] == pytest.approx([0.0, 3.1, 6.2])
    assert (total.requests, total.tries, total.served, total.served_first_try, total.gave_up) == (1, 3, 1, 0, 0)
    assert total.outcomes == {"429 queue_full": 2, "ok": 1}
    assert (total.retry_after.num, total.retry_after.max) == (2, 3.0)
    assert total.time_to_first_token.p50 == pytest.approx(6.3)
    assert found.failed_share == 0


def test_clients_give_up_after_the_last_retry() -> None:
    level = level_of({"arrivals": {"at": {"seconds": [0]}}, "retries": {"most": 1, "backoffSeconds": 0.5}})
    found, _ = measured(level, refusing(9, None))
    assert (found.total.tries, found.total.served, found.total.gave_up) == (2, 0, 1)
    assert found.failed_share == 1.0


def test_users_whose_requests_fail_do_not_run_wild() -> None:
    """Without a pause a server that is gone would be asked thousands of times a second."""

    async def fail(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        into.sent = into.ended = clock()
        into.outcome, into.code = exchange.Outcome.UNREACHABLE, "ConnectError"

    found, _ = measured(levels.of_users(2, EVEN, window(10.0), 1), fail)
    assert found.total.outcomes == {"unreachable ConnectError": 20}
    assert found.output_tokens_per_second == 0


def test_a_companion_runs_under_load_and_is_not_measured() -> None:
    seen: list[float] = []

    async def companion() -> None:
        seen.append(asyncio.get_running_loop().time())
        await asyncio.sleep(30)
        seen.append(asyncio.get_running_loop().time())

    _, record = measured(levels.of_users(2, EVEN, window(10.0, warm_up=2.0), 1), answering(0.5), companion=companion)
    assert seen == pytest.approx([12.5, 42.5], abs=0.6), "after the window, so that it is not measured"
    assert max(entry.due for entry in record.tries) > 30, "the load lasts as long as it does"


def test_mistakes_of_ours_end_the_level() -> None:
    async def broken(request: senders.Request, clock: exchange.Clock, into: exchange.Exchange) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measured(levels.of_users(1, EVEN, window(), 1), broken)


def test_what_there_is_when_it_is_cancelled() -> None:
    level = levels.of_users(2, EVEN, window(10.0), 1)

    async def cut_short() -> driver.Record:
        run = driver.Driver(level, answering(0.5), cpu=lambda: 0.0)
        task = asyncio.get_running_loop().create_task(run.run())
        await asyncio.sleep(3.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return run.record

    found = figures.make(level, virtual_loop.run(cut_short()), None, None)
    assert not found.whole
    assert found.total.served == 12
    assert found.total.outcomes == {"ok": 12}, "what we cut off is nobody's failure"
    assert found.seconds == pytest.approx(3.2)
