"""Under pressure, those who agreed to it get less first, and are told so; nobody else is touched."""

from __future__ import annotations

import asyncio
import json

import pytest

from tidemark_runtime import config, config_parsing
from tidemark_runtime.contract import http as paths
from tidemark_runtime.engine import messages
from tidemark_runtime.server import degrading, presence, standing, wanted

KEYS = "team name=contracts max-priority=5\nbatch name=nightly priority=-1\nnameless priority=-1\n"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True}
PRESSURES = {
    "queue": {"above_queue_line": True},
    "preempt": {"above_preempt_line": True},
    "backlog": {"requests_waiting": 5},
}


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(KEYS)
    return path


@pytest.fixture
def settings(settings, key_file, tmp_path):
    (tmp_path / "token").write_text("the-token\n")
    document = config_parsing.to_mapping(settings)
    scheduler = {"maxQueuedRequests": 10, "maxQueueSeconds": 20}
    server = {"apiKeysFile": str(key_file), "adminTokenFile": str(tmp_path / "token")}
    return config_parsing.parse(document | {"scheduler": scheduler, "server": server})


@pytest.fixture
def put(http, settings):
    """Rules come as an operator sends them: by `PUT /admin/config`."""

    async def send(*rules: dict):
        document = config_parsing.to_mapping(settings) | {"overload": {"degrade": list(rules)}}
        headers = {"authorization": "Bearer the-token"}
        return await http.put(paths.ADMIN_CONFIG_PATH, json=document, headers=headers)

    return send


@pytest.fixture
def ask(http):
    async def send(key: str = "batch", **fields):
        return await http.post(paths.CHAT_PATH, json=CHAT | fields, headers={"authorization": f"Bearer {key}"})

    return send


def press(engine, at: str | None) -> None:
    engine.tell(messages.EngineStats(**PRESSURES.get(at, {})))


def count(shared, name: str, **labels: str) -> float:
    return shared.metrics.registry.get_sample_value(f"tidemark_{name}", labels)


@pytest.mark.parametrize("at", list(PRESSURES))
async def test_max_tokens_shrink_only_at_the_rules_own_pressure(ask, put, shared, engine, at):
    assert (await put({"at": at, "keys": ["nightly"], "maxTokens": 7})).status_code == 200
    for pressure in (None, *PRESSURES):
        press(engine, pressure)
        response = await ask(max_tokens=40)
        assert response.status_code == 200
        expected = (7, f"max_tokens=7; rule=overload.degrade[0]; at={at}") if pressure == at else (40, None)
        assert (engine.submitted[-1].params.max_tokens, response.headers.get(paths.DEGRADED_HEADER)) == expected
        assert response.json()["choices"][0]["finish_reason"] == "length"
    assert count(shared, "requests_degraded_total") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_the_answer_says_so_also_as_a_stream_and_with_choices(ask, put, engine, parse_events, stream):
    await put({"at": "queue", "keys": ["nightly"], "maxTokens": 3})
    press(engine, "queue")
    response = await ask(stream=stream, n=2)
    assert response.headers[paths.DEGRADED_HEADER] == "max_tokens=3; rule=overload.degrade[0]; at=queue"
    assert response.headers[paths.PRIORITY_HEADER] == "-1"
    assert [request.params.max_tokens for request in engine.submitted] == [3, 3]
    if stream:
        assert parse_events(response.text)[-1] == "[DONE]"
    else:
        assert response.json()["usage"]["completion_tokens"] == 6


async def test_who_asks_for_no_more_anyway_is_told_nothing(ask, put, shared, engine):
    await put({"at": "queue", "keys": ["nightly"], "maxTokens": 7})
    press(engine, "queue")
    response = await ask(max_tokens=7)
    assert paths.DEGRADED_HEADER not in response.headers
    assert count(shared, "requests_degraded_total") == 0


@pytest.mark.parametrize(
    ("rule", "key", "header", "touched"),
    [
        ({"keys": ["nightly"]}, "batch", None, True),
        ({"keys": ["nightly"]}, "team", None, False),
        ({"keys": ["nightly"]}, "nameless", None, False),
        ({"keys": ["contracts", "nightly"]}, "team", None, True),
        ({"maxPriority": -1}, "batch", None, True),
        ({"maxPriority": -1}, "nameless", None, True),
        ({"maxPriority": -1}, "team", None, False),
        ({"maxPriority": -1}, "team", "-1", True),
        ({"maxPriority": 100}, "team", "5", True),
        ({"keys": ["contracts"], "maxPriority": 0}, "team", None, True),
        ({"keys": ["contracts"], "maxPriority": 0}, "team", "1", False),
        ({"keys": ["contracts"], "maxPriority": 0}, "batch", None, False),
    ],
)
async def test_a_rule_is_about_keys_and_priorities(http, put, engine, rule, key, header, touched):
    await put({"at": "queue", "maxTokens": 2} | rule)
    press(engine, "queue")
    headers = {"authorization": f"Bearer {key}"} | ({} if header is None else {paths.PRIORITY_HEADER: header})
    response = await http.post(paths.CHAT_PATH, json=CHAT | {"max_tokens": 9}, headers=headers)
    assert (paths.DEGRADED_HEADER in response.headers) == touched
    assert engine.submitted[0].params.max_tokens == (2 if touched else 9)


async def test_of_several_rules_the_smallest_counts(ask, put, engine):
    rules = [{"at": "queue", "maxPriority": 0, "maxTokens": 9}, {"at": "queue", "keys": ["nightly"], "maxTokens": 4}]
    await put(*rules, {"at": "preempt", "keys": ["nightly"], "maxTokens": 1})
    press(engine, "queue")
    response = await ask(max_tokens=40)
    assert response.headers[paths.DEGRADED_HEADER] == "max_tokens=4; rule=overload.degrade[1]; at=queue"


@pytest.mark.parametrize("stream", [False, True])
async def test_more_than_so_many_are_refused_until_one_has_ended(ask, put, shared, engine, stream):
    await put({"at": "preempt", "keys": ["nightly"], "maxRequests": 2})
    engine.pause_after = 1
    first = [asyncio.create_task(ask(max_tokens=3, n=4)) for _ in range(2)]
    while engine.num_running < 8:
        await asyncio.sleep(0)
    press(engine, "preempt")
    refused = await ask(stream=stream)
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert error["code"] == "degraded"
    assert "at most 2 requests of this kind may be here, and 2 are (overload.degrade[0])" in error["message"]
    assert refused.headers[paths.PRIORITY_HEADER] == "-1"
    assert refused.headers[paths.DEGRADED_HEADER] == "max_requests=2; rule=overload.degrade[0]; at=preempt"
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("10", "10000")
    assert count(shared, "requests_rejected_total", reason="degraded") == 1
    assert engine.num_running == 8
    engine.resume.set()
    assert (await ask("team", max_tokens=1)).status_code == 200, "others go on as usual"
    assert [response.status_code for response in await asyncio.gather(*first)] == [200, 200], "nor what runs already"
    assert (await ask(max_tokens=1)).status_code == 200


async def test_none_may_come_where_the_rule_says_so(ask, put, engine):
    await put({"at": "queue", "maxPriority": -1, "maxRequests": 0})
    assert (await ask(max_tokens=1)).status_code == 200
    press(engine, "queue")
    assert [(await ask(key, max_tokens=1)).status_code for key in ("batch", "nameless", "team")] == [429, 429, 200]


async def test_requests_that_fail_or_leave_are_no_longer_counted(ask, put, shared, engine, fakes, exchange, app):
    await put({"at": "queue", "maxPriority": -1, "maxRequests": 1})
    press(engine, "queue")
    engine.refuse = fakes.messages.RejectReason.QUEUE_FULL
    assert (await ask()).json()["error"]["code"] == "queue_full"
    engine.refuse, engine.pause_after = None, 1
    body = json.dumps(CHAT | {"stream": True}).encode()
    leaving = exchange(app, paths.CHAT_PATH, body, {"authorization": "Bearer batch"})
    await leaving.until(b"data: ")
    assert (await ask()).json()["error"]["code"] == "degraded"
    leaving.left.set()
    await leaving.task
    engine.resume.set()
    assert (await ask(max_tokens=1)).status_code == 200
    assert shared.present.num_of(lambda name, priority: True) == 0


@pytest.mark.parametrize(
    ("waiting", "oldest", "touched"),
    [(0, 0.0, False), (4, 9.9, False), (5, 0.0, True), (1, 10.0, True), (0, 10.0, False)],
)
async def test_a_backlog_is_half_of_what_may_wait_or_half_of_the_longest_wait(
    ask, put, engine, waiting, oldest, touched
):
    await put({"at": "backlog", "keys": ["nightly"], "maxTokens": 2})
    engine.tell(messages.EngineStats(requests_waiting=waiting, oldest_wait_seconds=oldest))
    assert (paths.DEGRADED_HEADER in (await ask()).headers) == touched


async def test_a_rule_that_is_wrong_is_named_by_its_place_and_nothing_changes(put, ask, engine):
    await put({"at": "queue", "keys": ["nightly"], "maxTokens": 2})
    response = await put(
        {"at": "queue", "keys": ["nightly"], "maxTokens": 2}, {"at": "full", "keys": "x", "maxtoken": 0}
    )
    assert response.status_code == 400
    problems = {each["key"]: each["expected"] for each in response.json()["error"]["problems"]}
    assert problems == {
        "overload.degrade[1].at": "one of queue, preempt, backlog",
        "overload.degrade[1].keys": "a list of texts",
        "overload.degrade[1].maxtoken": "a known setting",
    }
    press(engine, "queue")
    assert (await ask()).headers[paths.DEGRADED_HEADER].startswith("max_tokens=2;")


async def test_rules_are_hot_and_what_is_in_force_can_be_sent_back(http, put, engine):
    applied = (await put({"at": "queue", "keys": ["nightly"], "maxTokens": 2})).json()
    rule = {"at": "queue", "keys": ["nightly"], "maxPriority": None, "maxTokens": 2, "maxRequests": None}
    assert applied["changed"] == {"overload.degrade": [[], [rule]]}
    assert engine.configured[-1].overload.degrade == (config.DegradeRule(keys=("nightly",), max_tokens=2),)
    headers = {"authorization": "Bearer the-token"}
    in_force = (await http.get(paths.ADMIN_CONFIG_PATH, headers=headers)).json()
    assert in_force["config"]["overload"] == {"degrade": [rule]}
    again = (await http.put(paths.ADMIN_CONFIG_PATH, json=in_force["config"], headers=headers)).json()
    assert (again["changed"], again["hash"]) == ({}, applied["hash"])


async def test_a_name_that_no_key_has_is_said_where_it_is_seen(http, put, caplog, clock, key_file):
    await put({"at": "queue", "keys": ["nightly", "nihgtly"], "maxTokens": 2})
    assert "names=['nihgtly']" in caplog.text
    message = (await http.get(paths.STATUS_PATH)).json()["message"]
    assert "overload.degrade names nihgtly, and the key file has no key of such a name" in message
    key_file.write_text(KEYS + "late name=nihgtly\n")
    clock.now += 1
    assert (await http.get(paths.STATUS_PATH)).json()["message"] == "Serving."


def test_a_pressure_that_nobody_knows_is_no_backlog():
    rule = config.DegradeRule(at="later", max_priority=0, max_requests=0)
    settings = config.EngineConfig(overload=config.OverloadConfig(degrade=(rule,)))
    nobody, nothing = standing.Standing(), presence.Presence()
    asked = wanted.Wanted.__new__(wanted.Wanted)
    with pytest.raises(ValueError, match="'later'"):
        degrading.apply(asked, nobody, nothing, messages.EngineStats(requests_waiting=10**6), settings)
