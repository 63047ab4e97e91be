"""A real engine under load: console, `/metrics`, `/status` and the pool's own sums agree, and the page moves."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import live
import psutil
import pytest
from alerting import programs
from playwright.sync_api import expect
from prometheus_client import parser

from tidemark_runtime.contract import http as paths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_SECONDS = 120.0
KEY = "a-key-that-nobody-sees"
"""Of the key named contracts."""


def get(server: live.Server, path: str) -> httpx.Response:
    answer = httpx.get(server.url + path, timeout=30, verify=live.CERTIFICATES)
    assert answer.status_code == 200, answer.text
    return answer


def data(server: live.Server) -> dict[str, Any]:
    return dict(get(server, paths.CONSOLE_DATA_PATH).json())


def ask(server: live.Server, num_prompt: int, num_answer: int, seed: int) -> None:
    """No two begin alike, so that no page is shared."""
    drawn = random.Random(seed)
    prompt = [drawn.randrange(100, 40_000) for _ in range(num_prompt)]
    body = {"prompt": prompt, "max_tokens": num_answer, "ignore_eos": True}
    headers = {"authorization": f"Bearer {KEY}"}
    httpx.post(server.url + paths.COMPLETIONS_PATH, json=body, headers=headers, timeout=300, verify=live.CERTIFICATES)


@pytest.fixture
def load(real_server: live.Server) -> Iterator[None]:
    """More requests than places and pages."""
    ended = threading.Event()

    def user(index: int) -> None:
        for number in range(100):
            if ended.is_set():
                return
            ask(real_server, 40 + 25 * (index % 4), 12, 100 * index + number)

    users = [threading.Thread(target=user, args=(index,)) for index in range(8)]
    for each in users:
        each.start()
    yield
    ended.set()
    for each in users:
        each.join()


def engine_process(server: live.Server) -> psutil.Process:
    (child,) = psutil.Process(server.process.pid).children()
    return child


def frozen(server: live.Server) -> tuple[dict[str, Any], dict[str, Any], dict[str, dict[tuple[str, ...], float]]]:
    """Console, status and metrics of one state: the engine stands still, and the console says the same before and after
    the others. Until then what the engine had said arrives, and those who got it ask again."""
    process = engine_process(server)
    process.send_signal(signal.SIGSTOP)
    try:
        while True:
            document, status = data(server), get(server, paths.STATUS_PATH).json()
            text, after = get(server, paths.METRICS_PATH).text, data(server)
            if all(document[part] == after[part] for part in ("batch", "totals")):
                break
        scraped = parser.text_string_to_metric_families(text)
        families: dict[str, dict[tuple[str, ...], float]] = {}
        for sample in (sample for family in scraped for sample in family.samples):
            families.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
        return document, status, families
    finally:
        process.send_signal(signal.SIGCONT)


def test_all_say_the_same_under_load(real_server: live.Server, load: None) -> None:
    seen_busy = 0
    for _ in range(4):
        programs.until("requests run", lambda: data(real_server)["status"]["queue"]["running"], PATIENCE_SECONDS)
        document, status, metrics = frozen(real_server)
        for name in ("memory", "lines", "queue", "config", "model", "state"):
            assert document["status"][name] == status[name], name
        memory, queue, totals = status["memory"], status["queue"], document["totals"]
        pages = {key[0]: value for key, value in metrics["tidemark_kv_pages"].items()}
        assert pages["used"] == memory["pagesUsed"]
        assert pages["cached"] == memory["pagesCached"]
        assert pages["swapped"] == memory["pagesSwapped"]
        assert pages["free"] == memory["pagesTotal"] - memory["pagesUsed"] - memory["pagesCached"]
        assert metrics["tidemark_requests_running"][()] == queue["running"]
        waiting = {key[0]: value for key, value in metrics["tidemark_requests_waiting"].items()}
        assert waiting == queue["waitingByLane"]
        assert metrics["tidemark_oldest_wait_seconds"][()] == queue["oldestWaitSeconds"]
        assert sum(metrics["tidemark_preemptions_total"].values()) == queue["preemptionsTotal"]
        assert metrics["tidemark_preemptions_total"]["swap",] == totals["preemptionsSwap"]
        for line in ("queue", "preempt"):
            assert metrics["tidemark_watermark_state"][line,] == status["lines"][line]["above"]
            assert metrics["tidemark_watermark_seconds_total"][line,] == status["lines"][line]["secondsAboveTotal"]
        outcomes = {key[0]: value for key, value in metrics["tidemark_requests_total"].items()}
        assert outcomes == totals["requestsByOutcome"]
        assert metrics["tidemark_prompt_tokens_total"][()] == totals["promptTokens"]
        assert metrics["tidemark_generated_tokens_total"][()] == totals["generatedTokens"]
        assert metrics["tidemark_batch_fill_ratio"][()] == document["batch"]["sequences"] / queue["places"]
        seen_busy += memory["pagesUsed"] > 0
    assert seen_busy >= 3


def test_the_table_is_the_pools_own_sum_under_load(real_server: live.Server, load: None) -> None:
    steps = set()
    end = time.monotonic() + PATIENCE_SECONDS
    while len(steps) < 5 and time.monotonic() < end:
        time.sleep(0.1)
        requests = data(real_server)["requests"]
        if not requests or not requests["pagesUsed"] or requests["step"] in steps:  # none: not told yet
            continue
        steps.add(requests["step"])
        rows = requests["largest"]
        assert sum(row["pages"] for row in rows) == requests["pagesHeld"] == requests["pagesUsed"]
        assert sum(row["swappedPages"] for row in rows) == requests["pagesSwapped"]
        assert len(rows) == requests["running"] + requests["waiting"]
        assert sum(row["state"] in ("running", "restoring") for row in rows) == requests["running"] <= 4
        assert {row["key"] for row in rows} == {"contracts"}
    assert len(steps) == 5


def test_crossings_are_those_of_the_log(real_server: live.Server) -> None:
    """Once all have heard of the last one: the log, and the console from one sign of life of the engine to the next."""
    ask(real_server, 480, 2, 7)

    def are_left() -> bool:
        return not any(line["above"] for line in real_server.status()["lines"].values())

    programs.until("both lines are left", are_left, PATIENCE_SECONDS)
    programs.until("all is told", lambda: crossings_agree(real_server), PATIENCE_SECONDS)


def crossings_agree(server: live.Server) -> bool:
    document, logged = data(server), server.log.count(" line crossed ")
    if len(document["crossings"]) != min(logged, 50) or logged != server.log.count(" line left "):
        return False
    assert {each["line"] for each in document["crossings"]} == {"queue", "preempt"}
    seconds = {
        line: sum(each["lastedSeconds"] for each in document["crossings"] if each["line"] == line)
        for line in ("queue", "preempt")
    }
    above = {line: document["status"]["lines"][line]["secondsAboveTotal"] for line in seconds}
    return logged > 50 or all(abs(seconds[line] - above[line]) < 0.01 for line in seconds)


def is_running(server: live.Server) -> bool:
    """All of the prompt is computed, and the answer has begun."""
    document = data(server)
    largest = (document["requests"] or {}).get("largest", [])
    return [each["state"] for each in largest] == ["running"] and document["requests"]["pagesUsed"] >= 13


def test_the_page_moves_with_a_real_engine_and_notices_its_end(
    real_server: live.Server, opened: Callable[..., Any]
) -> None:
    """The last one in this file: the server ends."""
    assert data(real_server)["advice"] == []
    watched = opened(real_server.url)
    page = watched.page
    expect(page.locator("#state-title")).to_have_text("Fine: serving")
    expect(page.locator("#requests tbody")).to_have_text("No request is here.")
    expect(page.locator("[data-pages=used] strong")).to_have_text("0")
    request = threading.Thread(target=ask, args=(real_server, 200, 250, 1))
    request.start()
    process = engine_process(real_server)
    programs.until("it runs", lambda: is_running(real_server), PATIENCE_SECONDS, pause=0.02)
    process.suspend()  # else a fast machine has answered before the page has looked
    try:
        row = page.locator("#requests tbody tr[data-state=running]")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("contracts")
        expect(page.locator("[data-pages=used] strong")).not_to_have_text("0")
        width = page.locator(".bar .used").evaluate("element => element.style.width")
        assert 35 < float(width.removesuffix("%")) < 90, "13 to 29 of 33 pages"
        expect(page.locator("[data-fact=running] strong")).to_have_text("1")
    finally:
        process.resume()
    request.join()
    expect(page.locator("#requests tbody")).to_have_text("No request is here.")
    expect(page.locator("[data-pages=used] strong")).to_have_text("0")
    expect(page.locator("[data-pages=cached] strong")).not_to_have_text("0")
    assert KEY not in page.content()
    assert watched.problems == []
    engine_process(real_server).kill()
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale-what")).to_have_text("This server does not answer. What you see is old.")
