"""B033: refusals and timeouts say why, say when to come back, and are counted by reason."""

from __future__ import annotations

import pytest

PATH = "/v1/completions"


def count(shared, name: str, **labels: str) -> float | None:
    return shared.metrics.registry.get_sample_value(f"tidemark_{name}", labels)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("reason", "status", "code", "has_retry"),
    [
        ("QUEUE_FULL", 429, "queue_full", True),
        ("QUEUE_TOKENS", 429, "queue_tokens", True),
        ("QUEUE_TIME", 429, "queue_time", True),
        ("RETRY_BUDGET", 429, "retry_budget", True),
        ("DEADLINE", 429, "deadline", True),
        ("SHED", 429, "shed", True),
        ("NEVER_FITS", 400, "exceeds_kv_capacity", False),
        ("CONTEXT_LENGTH", 400, "context_length_exceeded", False),
        ("DRAINING", 503, "draining", True),
    ],
)
async def test_refused_at_arrival(http, shared, engine, fakes, stream, reason, status, code, has_retry):
    engine.refuse = fakes.messages.RejectReason[reason]
    response = await http.post(PATH, json={"prompt": "Hi", "stream": stream})
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert ("retry-after" in response.headers) == has_retry
    assert ("retry-after-ms" in response.headers) == has_retry
    assert "9 of 8" in response.json()["error"]["message"]
    assert count(shared, "requests_rejected_total", reason=code) == 1
    assert count(shared, "requests_total", outcome="rejected") == 1


def test_every_reason_is_in_the_table_above(fakes):
    (marks,) = [mark for mark in test_refused_at_arrival.pytestmark if mark.args[0] != "stream"]
    assert {row[0] for row in marks.args[1]} == {reason.name for reason in fakes.messages.RejectReason}


@pytest.mark.parametrize(
    ("predicted", "seconds", "milliseconds"), [(0.0, "1", "1000"), (1.0, "1", "1000"), (12.0301, "13", "12031")]
)
async def test_when_to_come_back_is_what_the_engine_predicts_rounded_up(
    http, engine, fakes, predicted, seconds, milliseconds
):
    engine.refuse, engine.retry_after_seconds = fakes.messages.RejectReason.QUEUE_FULL, predicted
    headers = (await http.post(PATH, json={"prompt": "Hi"})).headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == (seconds, milliseconds)
    engine.refuse, engine.end_early = None, (0, fakes.messages.FinishReason.TIMEOUT, "waited 5 s")
    headers = (await http.post(PATH, json={"prompt": "Hi", "stream": True})).headers
    assert (headers["retry-after"], headers["retry-after-ms"]) == (seconds, milliseconds)


async def test_waited_too_long_for_a_turn(http, shared, engine, fakes):
    engine.end_early = (0, fakes.messages.FinishReason.TIMEOUT, "waited 5 s, the limit is 5 s")
    response = await http.post(PATH, json={"prompt": "Hi", "stream": True})
    assert response.status_code == 429
    assert response.json()["error"]["message"] == "waited 5 s, the limit is 5 s"
    assert response.headers["retry-after"]
    assert count(shared, "requests_total", outcome="timeout") == 1
    assert count(shared, "requests_rejected_total", reason="queue_timeout") == 1


async def test_the_engine_failed_in_a_step(http, shared, engine, fakes):
    engine.end_early = (2, fakes.messages.FinishReason.FAILED, "the step failed")
    response = await http.post(PATH, json={"prompt": "Hi"})
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "the step failed"
    assert count(shared, "requests_total", outcome="failed") == 1


async def test_an_engine_that_is_gone(http, engine):
    engine.failure = "killed by signal 9"
    response = await http.post(PATH, json={"prompt": "Hi"})
    assert response.status_code == 503
    assert "killed by signal 9" in response.json()["error"]["message"]


async def test_a_bug_of_ours_tells_nothing_of_its_insides(http, engine):
    engine.script = lambda request: [b"no token"]
    response = await http.post(PATH, json={"prompt": "Hi", "max_tokens": 1})
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert engine.num_running == 0


async def test_a_deadline_goes_to_the_engine_with_every_choice(http, engine):
    await http.post(PATH, json={"prompt": "Hi", "n": 2, "deadline_seconds": 1.5})
    await http.post(PATH, json={"prompt": "Hi"})
    assert [request.deadline_seconds for request in engine.submitted] == [1.5, 1.5, None]


@pytest.mark.parametrize("value", [0, -1, 86_401, "5", True])
async def test_a_wrong_deadline_is_refused(http, engine, value):
    response = await http.post(PATH, json={"prompt": "Hi", "deadline_seconds": value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "deadline_seconds"
    assert engine.submitted == []


async def test_a_deadline_that_passes_in_the_middle_ends_the_stream_with_an_error(http, shared, engine, fakes):
    engine.end_early = (2, fakes.messages.FinishReason.DEADLINE, "the request's deadline has passed")
    response = await http.post(PATH, json={"prompt": "Hi", "stream": True, "deadline_seconds": 5})
    assert response.status_code == 200
    assert '"code":"deadline"' in response.text
    assert "[DONE]" not in response.text
    assert count(shared, "requests_total", outcome="deadline") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_deadline_that_passes_while_it_waits_is_no_queue_timeout(http, shared, engine, fakes, stream):
    engine.end_early = (0, fakes.messages.FinishReason.DEADLINE, "the request's deadline of 5 s has passed")
    engine.retry_after_seconds = 7.0
    response = await http.post(PATH, json={"prompt": "Hi", "stream": stream, "deadline_seconds": 5})
    assert (response.status_code, response.json()["error"]["code"]) == (429, "deadline")
    assert response.json()["error"]["message"] == "the request's deadline of 5 s has passed"
    assert response.headers["retry-after"] == "7"
    assert count(shared, "requests_total", outcome="deadline") == 1
    assert count(shared, "requests_total", outcome="timeout") == 0
    assert count(shared, "requests_rejected_total", reason="deadline") == 1
    assert count(shared, "requests_rejected_total", reason="queue_timeout") == 0
