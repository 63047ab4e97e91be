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
        ("NEVER_FITS", 400, "exceeds_kv_capacity", False),
        ("DRAINING", 503, "draining", True),
    ],
)
async def test_refused_at_arrival(http, shared, engine, fakes, stream, reason, status, code, has_retry):
    engine.refuse = fakes.messages.RejectReason[reason]
    response = await http.post(PATH, json={"prompt": "Hi", "stream": stream})
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert ("retry-after" in response.headers) == has_retry
    assert "9 of 8" in response.json()["error"]["message"]
    assert count(shared, "requests_rejected_total", reason=code) == 1
    assert count(shared, "requests_total", outcome="rejected") == 1


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


async def test_a_deadline_that_passes_in_the_middle_ends_the_stream_with_an_error(http, engine, fakes):
    engine.end_early = (2, fakes.messages.FinishReason.TIMEOUT, "the request's deadline has passed")
    response = await http.post(PATH, json={"prompt": "Hi", "stream": True, "deadline_seconds": 5})
    assert response.status_code == 200
    assert '"code":"deadline"' in response.text.splitlines()[-2].replace(" ", "")
