"""`/admin/config`: who may, what is refused and how, and that nothing or everything changes."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json

import pytest
import yaml

from tidemark_runtime import config, errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import settings as contract
from tidemark_runtime.server import admin, live_config

PATH = paths.ADMIN_CONFIG_PATH
TOKEN = {"authorization": "Bearer the-token"}
MODEL = {"source": "/models/tiny.gguf", "name": "M"}


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("the-token\n")
    return path


@pytest.fixture
def settings(settings, token_file, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("api-key\n")
    server = config.ServerConfig(admin_token_file=str(token_file), api_keys_file=str(keys))
    return dataclasses.replace(settings, server=server)


@pytest.fixture
def put(http):
    async def send(document: object, kind: str = "application/json", headers: dict[str, str] = TOKEN):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await http.put(PATH, content=body, headers={**headers, "content-type": kind})

    return send


def reloads(shared) -> dict[str, float]:
    read = shared.metrics.registry.get_sample_value
    results = ("applied", "unchanged", "rejected")
    return {result: read("tidemark_config_reloads_total", {"result": result}) for result in results}


# ---- the door ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "No admin token"),
        ({"authorization": "Bearer "}, "No admin token"),
        ({"authorization": "Basic the-token"}, "No admin token"),
        ({"authorization": "Bearer the-toke"}, "Incorrect admin token"),
        ({"authorization": "Bearer api-key"}, "An API key does not open /admin"),
    ],
)
@pytest.mark.parametrize("path", [PATH, "/admin", "/admin/", "/admin/nothing"])
async def test_only_the_token_opens_it(http, headers, words, path):
    response = await http.get(path, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_admin_token")
    assert words in response.json()["error"]["message"]
    assert response.headers["www-authenticate"] == "Bearer"
    assert "the-toke" not in response.text.replace("admin token", "")


async def test_the_token_opens_nothing_else(http):
    assert (await http.get(paths.MODELS_PATH, headers=TOKEN)).status_code == 401
    assert (await http.get("/admin/nothing", headers=TOKEN)).status_code == 404


async def test_a_changed_token_file_is_in_force_within_a_second(http, token_file, clock):
    token_file.write_text("another\n")
    clock.now += 1
    assert (await http.get(PATH, headers=TOKEN)).status_code == 401
    assert (await http.get(PATH, headers={"authorization": "Bearer another"})).status_code == 200


async def test_a_token_file_that_goes_bad_is_told_and_the_last_token_stays(http, token_file, clock):
    token_file.unlink()
    clock.now += 1
    assert (await http.get(PATH, headers=TOKEN)).status_code == 200
    status = (await http.get(paths.STATUS_PATH)).json()
    assert status["reason"] == "KeysUnreadable"
    assert "server.adminTokenFile" in status["message"]


async def test_without_a_token_file_there_is_no_admin(http, shared):
    shared.admin_tokens = None
    for headers in ({}, TOKEN, {"authorization": "Bearer api-key"}):
        response = await http.put(PATH, headers=headers, content=b"{}")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "admin_disabled")
        assert "--admin-token-file" in response.json()["error"]["message"]


# ---- what changes --------------------------------------------------------------------------------------------


async def test_hot_settings_change_together_and_are_told_everywhere(http, put, shared, engine):
    before = (await http.get(PATH, headers=TOKEN)).json()
    document = {"model": MODEL, "scheduler": {"maxQueuedRequests": 5}, "server": {"maxBody": "2Ki", "drainSeconds": 7}}
    response = await put(document)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["changed"] == {
        "scheduler.maxQueuedRequests": [512, 5],
        "server.maxBody": [8 * 2**20, 2048],
        "server.drainSeconds": [60.0, 7.0],
    }
    assert answer["generation"] == 2
    assert answer["hash"] == contract.config_hash(contract.parse(document)) != before["hash"]
    assert engine.configured == [shared.config]
    after = (await http.get(PATH, headers=TOKEN)).json()
    assert after["config"]["scheduler"]["maxQueuedRequests"] == 5
    assert (after["hash"], after["generation"], after["restartHash"]) == (answer["hash"], 2, before["restartHash"])
    status = (await http.get(paths.STATUS_PATH)).json()["config"]
    assert status == {"hash": answer["hash"], "generation": 2, "restartHash": after["restartHash"]}
    scraped = (await http.get(paths.METRICS_PATH)).text
    assert f'tidemark_config_info{{generation="2",hash="{answer["hash"]}"}} 1.0' in scraped
    assert scraped.count("tidemark_config_info{") == 1
    assert reloads(shared) == {"applied": 1, "unchanged": 0, "rejected": 0}


async def test_what_a_document_leaves_out_goes_back_to_its_default(put, shared):
    await put({"model": MODEL, "scheduler": {"maxQueuedRequests": 5}})
    answer = (await put({"model": MODEL, "server": {"stallSeconds": 9}})).json()
    assert answer["changed"] == {"scheduler.maxQueuedRequests": [5, 512], "server.stallSeconds": [60.0, 9.0]}
    assert answer["generation"] == 3


@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml", "TEXT/X-YAML"])
async def test_yaml_is_the_file_itself(put, kind):
    response = await put(b"model: {name: M}\nscheduler:\n  maxQueueSeconds: 3  # soon\n", kind)
    assert response.json()["changed"] == {"scheduler.maxQueueSeconds": [600.0, 3.0]}


async def test_the_document_in_force_sent_back_changes_nothing(http, put, shared, engine):
    document = (await http.get(PATH, headers=TOKEN)).json()["config"]
    for body, kind in ((document, "application/json"), (yaml.safe_dump(document).encode(), "application/yaml")):
        response = await put(body, kind)
        assert (response.status_code, response.json()["changed"], response.json()["generation"]) == (200, {}, 1)
    assert engine.configured == []
    assert reloads(shared) == {"applied": 0, "unchanged": 2, "rejected": 0}


async def test_places_may_be_left_out_but_not_moved(put):
    """Where model, keys and port are is said by flags in one place and by the file in another."""
    assert (await put({"model": {"name": "M"}, "server": {"apiKeysFile": None}})).status_code == 200
    response = await put({"model": {"name": "M", "source": "/models/other.gguf"}, "server": {"port": 9}})
    assert response.status_code == 409
    assert {change["key"] for change in response.json()["error"]["changes"]} == {"model.source", "server.port"}


# ---- what is refused -----------------------------------------------------------------------------------------


async def test_restart_settings_are_all_named_and_nothing_changes(put, shared, engine):
    before = shared.config
    document = {"model": MODEL, "scheduler": {"maxNumSeqs": 32, "maxQueuedRequests": 1}, "kvCache": {"blockSize": 32}}
    response = await put(document)
    assert response.status_code == 409
    body = response.json()
    assert body["error"]["code"] == "restart_required"
    assert body["error"]["changes"] == [
        {"key": "kvCache.blockSize", "running": 16, "wanted": 32},
        {"key": "scheduler.maxNumSeqs", "running": 64, "wanted": 32},
    ]
    assert "kvCache.blockSize (16 runs, 32 is wanted)" in body["error"]["message"]
    assert (body["hash"], body["generation"]) == (shared.config_hash, 1)
    assert shared.config is before
    assert engine.configured == []
    assert reloads(shared)["rejected"] == 1


async def test_every_problem_is_named_at_once_and_nothing_changes(put, shared, engine):
    before = shared.config
    response = await put(
        {"model": MODEL, "scheduler": {"maxQueueSeconds": "soon"}, "sever": {}, "server": {"port": -1}}
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "config_invalid"
    found = {each["key"]: each for each in error["problems"]}
    assert set(found) == {"scheduler.maxQueueSeconds", "sever", "server.port"}
    assert found["scheduler.maxQueueSeconds"] == {
        "key": "scheduler.maxQueueSeconds",
        "seen": "'soon'",
        "expected": "a number of at least 0.001",
        "remedy": "",
    }
    assert "Did you mean server?" in found["sever"]["remedy"]
    assert all(key in error["message"] for key in found)
    assert (shared.config, engine.configured) == (before, [])
    assert reloads(shared)["rejected"] == 1


async def test_the_rules_between_settings_hold_as_at_the_start(put):
    response = await put({"model": MODEL, "scheduler": {"maxNumBatchedTokens": 63}})
    assert response.status_code == 400
    assert "at least scheduler.maxNumSeqs, 64" in response.json()["error"]["message"]
    response = await put({"model": MODEL, "server": {"lameDuckSeconds": 61}})
    assert "at most server.drainSeconds, 60" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "application/json"),
        (b"", "application/yaml"),
        (b"[]", "application/json"),
        (b"- a", "application/yaml"),
        (b"{", "application/json"),
        (b"a: [", "application/yaml"),
        (b"\xff\xfe", "application/yaml"),
        (b"a: 2020-99-99", "application/yaml"),
        (b'{"server": {"port": NaN}}', "application/json"),
        (b"[" * 5000, "application/yaml"),
        (b"!!python/object/apply:os.getpid []", "application/yaml"),
        (b"1: 2", "application/yaml"),
        (b"server: {3: 4}", "application/yaml"),
    ],
)
async def test_junk_is_refused_in_words(put, body, kind):
    response = await put(body, kind)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "config_invalid")
    assert response.json()["error"]["problems"]


async def test_aliases_cannot_blow_up_the_answer(put):
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]" for level in range(1, 12)]
    response = await put("\n".join(lines).encode(), "application/yaml")
    assert response.status_code == 400
    assert len(response.content) < 20_000


async def test_types_and_sizes_that_are_no_configuration(put):
    assert (await put({}, "application/x-www-form-urlencoded")).status_code == 415
    assert (await put(b" " * (admin.MAX_DOCUMENT_BYTES + 1))).status_code == 413
    assert (await put({}, headers={})).status_code == 401


async def test_what_the_engine_refuses_is_not_in_force_here_either(put, shared, engine):
    engine.refuse_settings = [errors.Problem("scheduler.maxNumBatchedTokens", 9000, "at most 700", "Lower it.")]
    before = shared.config
    response = await put({"model": MODEL, "scheduler": {"maxNumBatchedTokens": 9000}, "server": {"maxBody": 2048}})
    assert response.status_code == 400
    assert response.json()["error"]["problems"][0]["expected"] == "at most 700"
    assert (shared.config, shared.generation) == (before, 1)


# ---- when it does not fit in time ----------------------------------------------------------------------------


async def test_while_loading_it_says_when_to_come_back(put, engine, shared):
    engine.ready = None
    response = await put({"model": MODEL, "server": {"maxBody": 2048}})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "loading")
    assert response.headers["retry-after"]
    assert (await put({"model": MODEL})).status_code == 200, "nothing to change is no reason to wait"
    assert (await put({"model": MODEL, "kvCache": {"blockSize": 8}})).status_code == 409
    assert shared.generation == 1


async def test_while_draining_nothing_changes(put, shared):
    shared.draining = True
    response = await put({"model": MODEL, "server": {"maxBody": 2048}})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
    assert shared.config.server.max_body == 8 * 2**20


async def test_a_dead_engine_confirms_nothing(put, shared, engine):
    engine.may_confirm.clear()
    sent = asyncio.create_task(put({"model": MODEL, "server": {"maxBody": 2048}}))
    while not engine.may_confirm._waiters:
        await asyncio.sleep(0)
    engine.die("killed")
    engine.may_confirm.set()
    response = await sent
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_dead")
    assert shared.config.server.max_body == 8 * 2**20


async def test_a_long_step_is_not_waited_for_forever_and_the_change_comes_with_its_end(shared, engine):
    live = live_config.LiveConfig(shared, confirm_seconds=0.01)
    engine.may_confirm.clear()
    with pytest.raises(errors.NotConfirmed, match="has not confirmed"):
        await live.put({"model": MODEL, "server": {"maxBody": 2048}})
    assert shared.config.server.max_body == 8 * 2**20, "not before the engine"
    with pytest.raises(errors.NotConfirmed):
        await live.put({"model": MODEL, "server": {"maxBody": 4096}})
    live._confirm_seconds = 60.0  # however busy the machine is now
    engine.may_confirm.set()
    applied = await live.put({"model": MODEL, "server": {"maxBody": 4096}})
    assert applied.changed == {"server.maxBody": (2048, 4096)}, "one after the other"
    assert applied.generation == 3


async def test_an_engine_that_dies_when_nobody_waits_any_more_is_no_second_error(shared, engine, caplog):
    live = live_config.LiveConfig(shared, confirm_seconds=0.01)
    engine.may_confirm.clear()
    with pytest.raises(errors.NotConfirmed):
        await live.put({"model": MODEL, "server": {"maxBody": 2048}})
    engine.die("killed")
    engine.may_confirm.set()
    while "not applied" not in caplog.text:
        await asyncio.sleep(0)
    assert shared.config.server.max_body == 8 * 2**20


async def test_changes_at_the_same_time_come_one_after_the_other(put, shared, engine):
    engine.may_confirm.clear()
    sizes = [2048 + step for step in range(8)]
    sent = [asyncio.create_task(put({"model": MODEL, "server": {"maxBody": size}})) for size in sizes]
    while not engine.may_confirm._waiters:
        await asyncio.sleep(0)
    engine.may_confirm.set()
    answers = [response.json() for response in await asyncio.gather(*sent)]
    assert [answer["changed"]["server.maxBody"][1] for answer in answers] == sizes, "each hears of its own"
    assert sorted(answer["generation"] for answer in answers) == list(range(2, 10))
    chain = sorted(answers, key=lambda answer: answer["generation"])
    pairs = [answer["changed"]["server.maxBody"] for answer in chain]
    assert all(former[1] == latter[0] for former, latter in itertools.pairwise(pairs))
    assert shared.config.server.max_body == pairs[-1][1]


@pytest.mark.parametrize(
    ("body", "kind", "seen"),
    [
        (b'{"scheduler": {"maxQueuedRequests": 5, "maxQueuedRequests": 6}}', "application/json", "two of it"),
        (
            b"scheduler:\n  maxQueuedRequests: 5\n  maxQueuedRequests: 6\n",
            "application/yaml",
            "two of it, on lines 2 and 3",
        ),
    ],
)
async def test_a_key_that_stands_twice_is_refused_by_name(put, shared, body, kind, seen):
    before = shared.config
    response = await put(body, kind)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "config_invalid")
    (problem,) = response.json()["error"]["problems"]
    assert (problem["key"], problem["seen"]) == ("scheduler.maxQueuedRequests", seen)
    assert shared.config is before


@pytest.mark.parametrize("value", ["64", "4_096"])
async def test_b075_a_text_is_no_number(put, value):
    response = await put({"model": MODEL, "scheduler": {"maxQueuedRequests": value}})
    (problem,) = response.json()["error"]["problems"]
    assert (problem["key"], problem["seen"]) == ("scheduler.maxQueuedRequests", repr(value))
    yaml_says = f'scheduler: {{maxQueuedRequests: "{value}"}}'.encode()
    assert (await put(yaml_says, "application/yaml")).status_code == 400


@pytest.mark.parametrize("text", ["1e30", "100000000000000000000000000"])
async def test_a_number_above_64_bits_is_told_the_limit(put, engine, text):
    response = await put(f'{{"scheduler": {{"maxQueuedRequests": {text}}}}}'.encode())
    assert response.status_code == 400
    assert "at most 9223372036854775807" in response.json()["error"]["message"]
    assert engine.configured == []


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
async def test_what_json_cannot_hold_is_named_by_its_place(put, word):
    response = await put(f'{{"server": {{"drainSeconds": {word}}}}}'.encode())
    (problem,) = response.json()["error"]["problems"]
    assert problem["key"] == "server.drainSeconds"
    assert problem["seen"] == "what JSON cannot hold"
    assert response.json()["error"]["message"].startswith("server.drainSeconds: got what JSON cannot hold, expected")


async def test_what_the_engine_has_seen_is_shown_as_it_says_it(put, engine):
    engine.refuse_settings = [errors.Problem("scheduler.fairness", errors.Seen("'2'"), "another", "")]
    response = await put({"model": MODEL, "server": {"maxBody": 2048}})
    (problem,) = response.json()["error"]["problems"]
    assert problem["seen"] == "'2'"
    assert "got '2', expected another" in response.json()["error"]["message"]
