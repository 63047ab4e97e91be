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
