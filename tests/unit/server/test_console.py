"""The console page: its data, what it never says, its files, and that they run nothing from elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
from importlib import resources
from pathlib import Path

import httpx
import pytest
from hatchling.builders import wheel
from prometheus_client import parser

from tidemark_runtime import config
from tidemark_runtime.contract import console as contract
from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import reasons, settings, status
from tidemark_runtime.engine import messages
from tidemark_runtime.server import app as server_app
from tidemark_runtime.server import console, console_advice, console_listing

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(str(resources.files("tidemark_runtime.server"))) / "console_page"
STATS = messages.EngineStats(
    steps=9,
    requests_running=2,
    requests_waiting=3,
    requests_waiting_slow=1,
    pages_used=5,
    pages_cached=2,
    step_tokens=12,
    step_prompt_tokens=10,
    step_sequences=2,
    execute_seconds=0.25,
    prefix_hit_tokens_total=30,
    above_queue_line=True,
)


def facts(name: str, pages: int = 3, **changes: object) -> messages.SequenceFacts:
    values: dict[str, object] = {"priority": 0, "prompt_tokens": 40, "cached_tokens": 16, "generated_tokens": 2}
    more: dict[str, object] = {"most_tokens": 9, "swapped_pages": 0, "preemptions": 0, "age_seconds": 4.0}
    return messages.SequenceFacts(
        id=name, state=messages.SequenceState.RUNNING, lane="slow", pages=pages, **(values | more | changes)
    )


def listed(*sequences: messages.SequenceFacts, crossings: list[messages.LineCrossing] | None = None):
    held = sum(each.pages for each in sequences)
    return messages.SequenceList(1, 8, len(sequences), 0, held, held, 0, list(sequences), crossings or [])


@pytest.fixture
def data(http):
    async def ask() -> dict:
        response = await http.get(paths.CONSOLE_DATA_PATH)
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
        return response.json()

    return ask


# ---- the data ----------------------------------------------------------------------------------------------------


async def test_it_has_status_as_it_is_and_the_numbers_of_the_same_stats(data, http, engine):
    engine.tell(STATS)
    document = await data()
    assert document["status"] == (await http.get(paths.STATUS_PATH)).json()
    assert document["batch"] == {
        "step": 9,
        "sequences": 2,
        "tokens": 12,
        "promptTokens": 10,
        "scheduleSeconds": 0.0,
        "executeSeconds": 0.25,
        "updateSeconds": 0.0,
    }
    assert document["totals"]["prefixHitTokens"] == 30


async def test_totals_are_the_counters_of_metrics(data, http):
    await http.post(paths.COMPLETIONS_PATH, json={"prompt": "Hi"})
    await http.post(paths.COMPLETIONS_PATH, json={"prompt": "Hi", "n": 0})
    totals = (await data())["totals"]
    families = {each.name: each for each in parser.text_string_to_metric_families((await http.get("/metrics")).text)}

    def values(name: str) -> dict[str, float]:
        samples = [each for each in families[name].samples if each.name == f"{name}_total"]
        return {next(iter(each.labels.values()), ""): each.value for each in samples}

    assert totals["requestsByOutcome"] == values("tidemark_requests")
    assert sum(totals["requestsByOutcome"].values()) == 2
    assert totals["refusedByReason"] == {"invalid": 1.0}
    assert totals["promptTokens"] == values("tidemark_prompt_tokens")[""] > 0
    assert totals["generatedTokens"] == values("tidemark_generated_tokens")[""] > 0


async def test_a_request_shows_what_it_holds_and_a_part_of_its_id(data, engine, clock):
    engine.listed = listed(facts("0123456789abcdef0123456789abcdef-2", 3))
    row = (await data())["requests"]["largest"][0]
    assert row == {
        "id": "01234567-2",
        "key": "",
        "state": "running",
        "lane": "slow",
        "priority": 0,
        "promptTokens": 40,
        "cachedTokens": 16,
        "generatedTokens": 2,
        "mostTokens": 9,
        "pages": 3,
        "swappedPages": 0,
        "preemptions": 0,
        "ageSeconds": 4.0,
    }


async def test_it_names_keys_and_never_says_a_key_an_id_or_a_word_of_a_prompt(
    tmp_path, engine, text, settings, clock, exchange
):
    """Nor what an unnamed key hashes to."""
    (tmp_path / "keys").write_text("the-secret-of-contracts name=contracts\nanother-secret\n")
    server = config.ServerConfig(api_keys_file=str(tmp_path / "keys"))
    changed = config.EngineConfig(model=settings.model, server=server)
    app = server_app.create_app(engine, text, changed, clock=clock)
    engine.pause_after = 2
    talks = []
    for key in ("the-secret-of-contracts", "another-secret"):
        body = json.dumps({"prompt": "a word that nobody else may read", "stream": True}).encode()
        talks.append(exchange(app, paths.COMPLETIONS_PATH, body, {"authorization": f"Bearer {key}"}))
        await talks[-1].until(b"data: ")
    engine.listed = listed(*(facts(request.id) for request in engine.submitted))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        said = (await client.get(paths.CONSOLE_DATA_PATH)).text
    assert [row["key"] for row in json.loads(said)["requests"]["largest"]] == ["contracts", ""]
    for secret in (
        "the-secret",
        "another-secret",
        "nobody else",
        "sha256",
        *(request.id for request in engine.submitted),
    ):
        assert secret not in said, secret
    engine.resume.set()
    await asyncio.gather(*(talk.task for talk in talks))


async def test_crossings_have_the_time_of_the_day(data, engine, monkeypatch):
    engine.listed = listed(crossings=[messages.LineCrossing("queue", 30.0, 5.0, True, 7)])
    document = await data()
    (crossing,) = document["crossings"]
    assert abs(document["at"] - crossing.pop("at") - 30.0) < 2.0
    assert crossing == {"line": "queue", "lastedSeconds": 5.0, "over": True, "pagesUsed": 7}


async def test_the_hot_settings_are_there_with_value_and_default_and_no_others(data, shared):
    found = {each["key"]: each for each in (await data())["settings"]}
    assert found.keys() == settings.HOT_KEYS
    assert found["scheduler.queueWatermark"] == {"key": "scheduler.queueWatermark", "value": 0.7, "default": 0.7}
    assert "/models" not in json.dumps(list(found.values()))


async def test_before_there_is_an_engine_it_answers(data, shared, engine):
    engine.ready, engine.progress = None, messages.LoadProgress("reading", 0.5)
    document = await data()
    assert (document["status"]["state"], document["requests"], document["crossings"]) == ("loading", None, [])
    shared.engine = None
    assert (await data())["requests"] is None
    assert engine.num_listings == 0


async def test_a_full_table_of_long_numbers_is_small(data, engine):
    engine.listed = listed(*(facts(f"{index:032x}-0", 10_000 + index) for index in range(contract.MOST_REQUESTS)))
    assert len(json.dumps(await data())) < 64 * 1024


# ---- asking the engine -------------------------------------------------------------------------------------------


async def test_nobody_looks_nobody_asks(http, engine):
    for path in (paths.CONSOLE_PATH, paths.STATUS_PATH, paths.METRICS_PATH):
        await http.get(path)
    assert engine.num_listings == 0


async def test_many_who_look_ask_once_a_second(data, engine, clock):
    engine.listed = listed(facts("a-0"))
    await asyncio.gather(*(data() for _ in range(20)))
    assert engine.num_listings == 1
    clock.now += 0.5
    assert (await data())["requests"]["ageSeconds"] == 0.5
    assert engine.num_listings == 1
    clock.now += 0.5
    await data()
    assert engine.num_listings == 2


async def test_an_engine_in_a_long_step_is_not_waited_for_and_not_asked_again(shared, engine, clock):
    listing = console_listing.Listing(shared, wait_seconds=60.0)  # however busy the machine is
    engine.listed = listed(facts("a-0"))
    first = await listing.latest()
    assert first is not None
    listing._wait_seconds = 0.001
    engine.may_list.clear()
    for _ in range(5):
        clock.now += 2
        assert await listing.latest() is first, "what is known"
    assert engine.num_listings == 2
    listing._wait_seconds = 60.0
    engine.may_list.set()
    clock.now += 2
    assert await listing.latest() is not first


async def test_a_dead_engine_leaves_what_was_known(data, engine, clock):
    engine.listed = listed(facts("a-0"))
    await data()
    engine.die("exit code 1")
    clock.now += 7
    document = await data()
    assert document["status"]["state"] == "failed"
    assert document["requests"]["ageSeconds"] == 7
    assert [each["code"] for each in document["advice"]] == ["failed"]
    assert engine.num_listings == 1


# ---- what to do --------------------------------------------------------------------------------------------------


def engine_status(**changes: object) -> status.EngineStatus:
    lines = {"queue": status.LineStatus(0.7), "preempt": status.LineStatus(0.9)}
    values: dict[str, object] = {"lines": lines, "queue": status.QueueStatus(running=8, waiting=0)}
    return status.EngineStatus(
        "1",
        changes.pop("state", status.EngineState.READY),
        "Serving.",
        status.ModelStatus("M", "m"),
        status.ConfigStatus("h"),
        **(values | changes),
    )


def codes(now: status.EngineStatus, *, knows_all_keys: bool = True) -> list[tuple[str, str]]:
    found = console_advice.of(now, max_queue_seconds=60.0, knows_all_keys=knows_all_keys)
    return [(each.code.value, each.severity.value) for each in found]


def above(*names: str) -> dict[str, status.LineStatus]:
    return {name: status.LineStatus(level, name in names) for name, level in (("queue", 0.7), ("preempt", 0.9))}


WAITS = status.QueueStatus(running=8, waiting=3, oldest_wait_seconds=2.0)
SLOW = status.KernelPath("attention", "cpu-c", "torch", "float32")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"lines": above("queue")}, []),
        ({"lines": above("queue"), "queue": WAITS}, [("queueLine", "warn")]),
        ({"lines": above("queue", "preempt"), "queue": WAITS}, [("preemptLine", "bad")]),
        ({"lines": above("queue", "preempt")}, [("preemptLine", "warn")]),
        ({"queue": status.QueueStatus(oldest_wait_seconds=31.0, waiting=1)}, [("longWait", "warn")]),
        ({"kernel_paths": [SLOW], "reason": "KernelPath"}, [("kernelPath", "warn")]),
        ({"kernel_paths": [SLOW], "reason": "KeysUnreadable"}, [("keysUnreadable", "warn"), ("kernelPath", "warn")]),
        ({"reason": "TlsUnreadable"}, [("tlsUnreadable", "warn")]),
        ({"state": status.EngineState.STALLED, "reason": "Stalled"}, [("stalled", "bad")]),
        ({"state": status.EngineState.FAILED}, [("failed", "bad")]),
        ({"state": status.EngineState.LOADING}, [("loading", "note")]),
        (
            {"state": status.EngineState.DRAINING, "lines": above("preempt"), "queue": WAITS},
            [("preemptLine", "bad"), ("draining", "note")],
        ),
        (
            {"memory": status.MemoryStatus(parts_bytes={"kv": 112, "free": 5}, planned_bytes={"kv": 100, "swap": 50})},
            [("memoryPlan", "warn")],
        ),
        ({"memory": status.MemoryStatus(parts_bytes={"kv": 109}, planned_bytes={"kv": 100})}, []),
    ],
)
def test_advice(changes, expected):
    assert codes(engine_status(**changes)) == expected


def test_advice_about_a_key_that_is_not_there():
    assert codes(engine_status(), knows_all_keys=False) == [("unknownKeys", "warn")]


def test_every_reason_that_a_serving_engine_gives_has_advice():
    serving = (reasons.Reason.KEYS_UNREADABLE, reasons.Reason.TLS_UNREADABLE, reasons.Reason.KERNEL_PATH)
    for reason in serving:
        assert codes(engine_status(reason=reason, kernel_paths=[SLOW]))


# ---- the files ---------------------------------------------------------------------------------------------------


def words() -> dict[str, list[str]]:
    text = (FOLDER / "words.js").read_text(encoding="utf-8")
    return json.loads(text[text.index("{\n") :].rstrip().removesuffix(";"))


def script() -> str:
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.js")) if path.name != "words.js"
    )


def test_every_word_is_there_in_both_languages_with_the_same_values():
    for key, pair in words().items():
        assert len(pair) == 2, key
        assert all(pair), key
        english, chinese = (set(re.findall(r"\{(\w+)\}", word)) for word in pair)
        assert english == chinese, key
        assert all(word.count("`") % 2 == 0 for word in pair), key
        if key != "language" and not pair[0].startswith("{n}"):
            assert pair[0].isascii() or "…" in pair[0] or "×" in pair[0] or "·" in pair[0] or key == "language.label", (
                key
            )


def test_every_word_the_page_uses_is_there():
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    used = set(re.findall(r'data-t="([^"]+)"', html)) | set(re.findall(r'say\("([^"]+)"', script()))
    assert used - words().keys() == set()
    assert len(used) > 50


def test_every_word_that_is_made_from_data_is_there():
    wanted = {f"advice.{code.value}.{part}" for code in contract.AdviceCode for part in ("title", "what")}
    wanted |= {f"state.{state.value}" for state in status.EngineState if state is not status.EngineState.READY}
    wanted |= {f"request.{state.value}" for state in messages.SequenceState}
    wanted |= {f"lane.{lane}" for lane in ("express", "slow")} | {f"line.{line}" for line in ("queue", "preempt")}
    wanted |= {f"column.{name}" for name in re.findall(r'\{ name: "(\w+)"', (FOLDER / "table.js").read_text())}
    assert wanted - words().keys() == set()


def test_no_word_is_left_over():
    made = ("theme.", "state.", "advice.", "line.", "column.", "request.", "lane.", "part.")
    made += tuple(f"pages.{state}" for state in ("used", "cached", "free"))
    all_code = script() + (FOLDER / "index.html").read_text(encoding="utf-8")
    assert [key for key in words() if not key.startswith(made) and f'"{key}"' not in all_code] == []


def test_the_table_of_files_is_the_folder():
    assert {path.name for path in FOLDER.iterdir()} == {console.PAGE_FILE, *paths.CONSOLE_FILES}


def test_they_are_in_the_wheel():
    packed = {each.distribution_path for each in wheel.WheelBuilder(str(ROOT)).recurse_included_files()}
    folder = "tidemark_runtime/server/console_page"
    assert {f"{folder}/{name}" for name in (console.PAGE_FILE, *paths.CONSOLE_FILES)} <= packed


def test_all_together_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 61_000


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    html = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:", html) == []
    everything = html + script() + "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.css"))
    addresses = set(re.findall(r"https?://[^\s\"']+", everything))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert (
        re.findall(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|@import|url\(", everything
        )
        == []
    )


@pytest.mark.parametrize("path", [paths.CONSOLE_PATH, *(paths.CONSOLE_PREFIX + name for name in paths.CONSOLE_FILES)])
async def test_each_file_is_served_with_a_strict_policy(http, path):
    response = await http.get(path)
    assert response.status_code == 200
    name = path.removeprefix(paths.CONSOLE_PREFIX) if path != paths.CONSOLE_PATH else console.PAGE_FILE
    assert response.content == (FOLDER / name).read_bytes()
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    again = await http.get(path, headers={"if-none-match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_only_what_is_listed_is_served(http):
    for path in ("/console/", "/console/../app.py", "/console/%2e%2e/app.py", "/console/index.html", "/console/words"):
        assert (await http.get(path)).status_code == 404
    assert (await http.post(paths.CONSOLE_PATH)).status_code == 405
    assert (await http.put(paths.CONSOLE_DATA_PATH, json={})).status_code == 405
