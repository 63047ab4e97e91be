"""Whose a request is, which priority it gets, whether it is a retry: by header, field and key."""

from __future__ import annotations

import dataclasses

import pytest

from tidemark_runtime import config
from tidemark_runtime.contract import http as paths

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
COMPLETION = {"prompt": "Hi"}
KEYS = """
team name=contracts max-priority=5
batch name=nightly priority=-2
boss name=boss priority=3 max-priority=9
plain
"""


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(KEYS)
    return path


@pytest.fixture
def settings(settings, key_file):
    return dataclasses.replace(settings, server=config.ServerConfig(api_keys_file=str(key_file)))


@pytest.fixture
def _nobody_is_told_apart(shared):
    shared.keys = None


open_to_all = pytest.mark.usefixtures("_nobody_is_told_apart")
"""Without a key file."""


def bearer(key: str, **headers: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} | {name.replace("_", "-"): value for name, value in headers.items()}


def retries(shared) -> float:
    return shared.metrics.registry.get_sample_value("tidemark_request_retries_total")


@open_to_all
@pytest.mark.parametrize(("path", "body"), [(paths.CHAT_PATH, CHAT), (paths.COMPLETIONS_PATH, COMPLETION)])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "priority", "tier"),
    [
        (None, 0, "default"),
        ("auto", 0, "default"),
        ("default", 0, "default"),
        ("flex", -1, "flex"),
        ("priority", 1, "priority"),
        ("fast", 1, "priority"),
    ],
)
async def test_a_service_tier_is_a_priority_and_the_answer_says_which_it_was(
    http, engine, parse_events, path, body, stream, asked, priority, tier
):
    response = await http.post(path, json=body | {"service_tier": asked, "stream": stream, "n": 2})
    assert response.status_code == 200
    assert [request.priority for request in engine.submitted] == [priority] * 2
    assert [request.tenant for request in engine.submitted] == [""] * 2
    assert response.headers[paths.PRIORITY_HEADER] == str(priority)
    answers = parse_events(response.text)[:-1] if stream else [response.json()]
    assert {answer["service_tier"] for answer in answers} == {tier}


@open_to_all
@pytest.mark.parametrize("value", ["scale", "Priority", "", 1, True, ["flex"], {}])
async def test_another_service_tier_is_refused(http, engine, value):
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"service_tier": value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "service_tier"
    assert "one of auto, default, flex, priority, fast" in response.json()["error"]["message"]
    assert engine.submitted == []


@open_to_all
@pytest.mark.parametrize(
    ("value", "tier"), [("-100", "flex"), ("0", "default"), ("+7", "priority"), (" 100 ", "priority")]
)
async def test_the_header_wins_over_the_service_tier(http, engine, value, tier):
    other = "flex" if tier == "priority" else "priority"
    headers = {paths.PRIORITY_HEADER: value}
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"service_tier": other}, headers=headers)
    assert engine.submitted[0].priority == int(value)
    assert response.json()["service_tier"] == tier
    assert response.headers[paths.PRIORITY_HEADER] == str(int(value))


@open_to_all
@pytest.mark.parametrize("value", ["", "101", "-101", "1.5", "high", "1e1", "--1", "\u0661".encode(), "1000"])
async def test_a_wrong_priority_is_refused_by_name(http, engine, value):
    response = await http.post(paths.CHAT_PATH, json=CHAT, headers={paths.PRIORITY_HEADER: value})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == paths.PRIORITY_HEADER
    assert error["message"].startswith(f"{paths.PRIORITY_HEADER}: got ")
    assert "expected a whole number from -100 to 100" in error["message"]
    assert engine.submitted == []


@open_to_all
async def test_two_priorities_are_no_number(http):
    headers = [(paths.PRIORITY_HEADER, "1"), (paths.PRIORITY_HEADER, "2")]
    response = await http.post(paths.CHAT_PATH, json=CHAT, headers=headers)
    assert response.status_code == 400
    assert "got '1, 2'" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("key", "tier", "header", "priority", "tenant"),
    [
        ("team", None, None, 0, "contracts"),
        ("team", "priority", None, 1, "contracts"),
        ("team", None, "5", 5, "contracts"),
        ("team", "flex", None, -1, "contracts"),
        ("batch", None, None, -2, "nightly"),
        ("batch", "auto", None, -2, "nightly"),
        ("batch", "default", None, -2, "nightly"),
        ("batch", None, "-50", -50, "nightly"),
        ("boss", None, None, 3, "boss"),
        ("boss", "priority", None, 1, "boss"),
        ("plain", None, None, 0, "sha256:"),
    ],
)
async def test_a_key_says_whose_it_is_and_what_it_has_when_it_asks_for_nothing(
    http, engine, key, tier, header, priority, tenant
):
    headers = bearer(key) | ({} if header is None else {paths.PRIORITY_HEADER: header})
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"service_tier": tier}, headers=headers)
    assert response.status_code == 200
    (request,) = engine.submitted
    assert request.priority == priority
    assert request.tenant.startswith(tenant)
    assert key == "boss" or key not in request.tenant, "the key itself goes nowhere"


@pytest.mark.parametrize(
    ("key", "tier", "header", "param", "numbers"),
    [
        ("team", None, "6", paths.PRIORITY_HEADER, ("got 6", "at most priority 5")),
        ("plain", "priority", None, "service_tier", ("priority, which is priority 1", "at most priority 0")),
        ("batch", None, "-1", paths.PRIORITY_HEADER, ("got -1", "at most priority -2")),
        ("batch", "flex", None, "service_tier", ("which is priority -1", "at most priority -2")),
    ],
)
async def test_more_than_the_key_may_have_is_refused_with_both_numbers(
    http, shared, engine, key, tier, header, param, numbers
):
    headers = bearer(key) | ({} if header is None else {paths.PRIORITY_HEADER: header})
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"service_tier": tier, "stream": True}, headers=headers)
    assert response.status_code == 403
    error = response.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("priority_not_allowed", "permission_error", param)
    assert all(number in error["message"] for number in numbers)
    assert engine.submitted == []
    read = shared.metrics.registry.get_sample_value
    assert read("tidemark_requests_rejected_total", {"reason": "priority_not_allowed"}) == 1


async def test_keys_change_while_it_runs_and_a_bad_file_changes_nothing(http, engine, key_file, clock):
    async def priority() -> int:
        assert (await http.post(paths.CHAT_PATH, json=CHAT, headers=bearer("batch"))).status_code == 200
        return engine.submitted[-1].priority

    assert await priority() == -2
    key_file.write_text("batch name=nightly priority=-7\n")
    clock.now += 1
    assert await priority() == -7
    for bad in ("batch name=nightly priority=-8 colour=red\n", "batch priority=-800\n", "a name=x\nbatch name=x\n"):
        key_file.write_text(bad)
        clock.now += 1
        assert await priority() == -7
        status = (await http.get(paths.STATUS_PATH)).json()
        assert (status["reason"], status["state"]) == ("KeysUnreadable", "ready")
        assert "stay in force" in status["message"]
        assert "line" in status["message"]


async def test_requests_are_counted_by_the_name_of_the_key(http, shared):
    for key in ("team", "team", "plain"):
        await http.post(paths.CHAT_PATH, json=CHAT, headers=bearer(key))
    await http.post(paths.CHAT_PATH, json=CHAT | {"n": 0}, headers=bearer("team"))
    read = shared.metrics.registry.get_sample_value
    name = "tidemark_key_requests_total"
    assert read(name, {"key": "contracts", "outcome": "stop"}) == 2
    assert read(name, {"key": "contracts", "outcome": "rejected"}) == 1
    assert read(name, {"key": "", "outcome": "stop"}) == 1
    scraped = (await http.get(paths.METRICS_PATH)).text
    assert "plain" not in scraped.replace("text/plain", "")


@open_to_all
@pytest.mark.parametrize(
    ("headers", "is_retry"),
    [
        ({}, False),
        ({"x-stainless-retry-count": "0"}, False),
        ({"x-stainless-retry-count": "1"}, True),
        ({"x-stainless-retry-count": "many"}, False),
        ({"x-stainless-retry-count": "-1"}, False),
        ({"x-stainless-retry-count": ""}, False),
        ({"x-tidemark-retry-count": "0"}, False),
        ({"x-tidemark-retry-count": "12"}, True),
        ({"x-tidemark-retry-count": "0", "x-stainless-retry-count": "2"}, True),
        ({"x-tidemark-retry-count": "1", "x-stainless-retry-count": "junk"}, True),
    ],
)
async def test_retries_are_told_from_first_tries_and_counted(http, shared, engine, headers, is_retry):
    response = await http.post(paths.COMPLETIONS_PATH, json=COMPLETION | {"n": 2}, headers=headers)
    assert response.status_code == 200
    assert [request.is_retry for request in engine.submitted] == [is_retry] * 2
    assert retries(shared) == is_retry


@open_to_all
@pytest.mark.parametrize("value", ["", "-1", "1.5", "one", "+1", "9" * 40, "99999999999"])
async def test_our_own_retry_count_must_be_a_number(http, shared, engine, value):
    response = await http.post(
        paths.COMPLETIONS_PATH,
        json=COMPLETION,
        headers={paths.RETRY_COUNT_HEADER: value, "x-stainless-retry-count": "1"},
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == paths.RETRY_COUNT_HEADER
    assert "expected a whole number from 0 to 999999999" in response.json()["error"]["message"]
    assert engine.submitted == []
    assert retries(shared) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_says_the_priority_too(http, engine, fakes, stream):
    engine.refuse = fakes.messages.RejectReason.QUEUE_FULL
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"stream": stream}, headers=bearer("batch"))
    assert response.status_code == 429
    assert response.headers[paths.PRIORITY_HEADER] == "-2"
    unknown = await http.post(paths.CHAT_PATH, json=CHAT | {"n": 0}, headers=bearer("batch"))
    assert paths.PRIORITY_HEADER not in unknown.headers
