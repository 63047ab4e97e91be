"""`tidemark inspect --url` against a scripted engine over loopback, a real Prometheus with six weeks, and nobody."""

from __future__ import annotations

import asyncio
import datetime
import html.parser
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import made_month
import pytest
import yaml
from alerting import programs

from tidemark_operator import cli, prometheus
from tidemark_operator.commands import inspect_history
from tidemark_operator.inspection import registry
from tidemark_operator.monitoring.rules import promql, recording
from tidemark_runtime.engine import messages

pytestmark = pytest.mark.slow

NOW_ONLY = {"alerts", "batch-fill", "queue-wait", "scrape-targets"}
"""Checks that say nothing without a Prometheus."""


RULES = {
    "groups": [
        {
            "name": "made",
            "rules": [
                {"record": recording.KV_USAGE, "expr": "max by (namespace, service) (tidemark_kv_usage_ratio)"},
                {
                    "alert": "TidemarkRetryStorm",
                    "expr": f'service:tidemark_kv_usage:ratio_max{{service="{made_month.WORSE}"}}',
                    "labels": {"severity": "warning"},
                    "annotations": {"description": "Clients try again.", "runbook_url": "http://x/storm.md"},
                },
            ],
        }
    ]
}
"""One recorded series, so that the rules count as loaded, and one alert that fires at once."""


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := programs.missing():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("month")
    made_month.fill(folder, int(time.time()))
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    config = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": []}
    with programs.prometheus(folder, config, "--storage.tsdb.retention.time=100d") as made:
        programs.until("the alert fires", lambda: "firing" in made.alerts().values(), 30.0)
        yield made.url


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    assert cli.run(["inspect", *arguments]) == code
    shown = capsys.readouterr()
    return shown.err if code == 2 else shown.out


async def asked(capsys: pytest.CaptureFixture[str], url: str, *arguments: str, code: int = 0) -> dict[str, Any]:
    text = await asyncio.to_thread(told, capsys, "--url", url, "-o", "json", *arguments, code=code)
    found: dict[str, Any] = json.loads(text)
    return found


def states(document: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in document["checks"]}


async def test_an_engine_alone_is_inspected_and_says_what_it_needs_for_more(
    scripted_url, engine, fakes, capsys
) -> None:
    engine.ready = fakes.ready(planned_bytes={"weights": 900, "kv": 2560})
    found = await asked(capsys, scripted_url)
    assert (found["schemaVersion"], found["summary"]["checks"]) == (1, len(registry.CHECKS))
    assert found["services"] == [
        {"name": scripted_url, "origin": "url", "url": scripted_url, "answered": 1, "engines": [scripted_url[7:]]}
    ]
    (miss,) = found["findings"]
    assert (miss["check"], miss["severity"]) == ("plan-measured", "warning")
    assert miss["evidence"] == ["partsBytes.weights = 1000", "plannedBytes.weights = 900"]
    assert miss["runbookUrl"].endswith("/runbooks/en/TidemarkMemoryPlanExceeded.md")
    assert {name for name, state in states(found).items() if state == "notChecked"} >= NOW_ONLY
    assert await asyncio.to_thread(told, capsys, "--url", scripted_url, "--fail-on", "warning", code=1)


async def test_against_last_month_of_a_real_prometheus(scripted_url, month, capsys) -> None:
    """The queries themselves: a fill ratio that fell and a wait that rose, from six weeks of samples."""
    where = ("--prometheus", month, "--prometheus-service")
    found = await asked(capsys, scripted_url, *where, f"team/{made_month.WORSE}", code=1)
    by_check = {item["check"]: item for item in found["findings"]}
    assert set(by_check) == {"memory-lines", "batch-fill", "queue-wait", "alerts"}
    assert by_check["alerts"]["what"] == "TidemarkRetryStorm fires: Clients try again."
    assert "30 % full in the last week and 50 % in the four weeks before" in by_check["batch-fill"]["what"]
    assert "(30,240 in the week, 30,240 a week before)" in by_check["batch-fill"]["what"]
    wait = by_check["queue-wait"]["what"]
    assert "up to 2.4 s for their first turn in the last week" in wait
    assert "0.10 s in the four weeks before" in wait
    assert "preempt line for 20 % of the time in the last 24 hours" in by_check["memory-lines"]["what"]
    assert by_check["memory-lines"]["severity"] == "critical"
    recorded = await asked(capsys, scripted_url, *where, f"team/{made_month.RECORDED}")
    assert {item["check"]: item["what"][:63] for item in recorded["findings"]} == {
        "batch-fill": "While it worked, the batch was 20 % full in the last week and 6",
        "queue-wait": "95 of 100 requests waited up to 1.8 s for their first turn in t",
    }
    whys = [gap["why"] for check in recorded["checks"] for gap in check["notChecked"]]
    assert [why for why in whys if "it answers" in why] == [], "a query that Prometheus refuses"
    steady = await asked(capsys, scripted_url, *where, f"team/{made_month.STEADY}")
    assert steady["findings"] == []
    assert {name for name, state in states(steady).items() if state == "notChecked"} & NOW_ONLY == set()


def test_the_labels_of_an_address_are_looked_up(month: str) -> None:
    now = datetime.datetime.now(datetime.UTC)
    with prometheus.Prometheus(month) as source:
        for url, found in ((f"http://{made_month.ADDRESS}", ("team", made_month.WORSE)), ("https://else", None)):
            assert inspect_history.labels_of(source, url, promql.EVERYTHING, now) == found
        nowhere = promql.Scope((("cluster", "paris"),))
        assert inspect_history.labels_of(source, f"http://{made_month.ADDRESS}", nowhere, now) is None


async def test_a_target_that_prometheus_does_not_know(scripted_url, month, capsys) -> None:
    found = await asked(capsys, scripted_url, "--prometheus", month)
    (fill,) = [check for check in found["checks"] if check["name"] == "batch-fill"]
    assert f"Prometheus has no target {scripted_url}" in fill["notChecked"][0]["why"]


@pytest.mark.parametrize(
    ("which", "reason"),
    [("http://127.0.0.1:1", "cannot connect"), ("engine", "the answer is not that of a Prometheus")],
)
async def test_a_prometheus_that_does_not_answer_is_told_and_not_passed_over(
    scripted_url, capsys, which: str, reason: str
) -> None:
    address = scripted_url if which == "engine" else which
    words = ("--url", scripted_url, "-o", "json", "--prometheus", address, "--prometheus-service", "team/chat")
    assert await asyncio.to_thread(cli.run, ["inspect", *words]) == 2
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert reason in found["prometheusError"]
    assert reason in json.loads(shown.err)["error"]["message"]
    whys = {check["name"]: [gap["why"] for gap in check["notChecked"]] for check in found["checks"]}
    for name in NOW_ONLY:
        assert reason in whys[name][0], name


async def test_one_html_file_in_chinese(scripted_url, engine, fakes, capsys) -> None:
    engine.ready = fakes.ready(planned_bytes={"weights": 900, "kv": 2560})
    words = ("--url", scripted_url, "-o", "html", "--language", "zh")
    page = await asyncio.to_thread(told, capsys, *words, code=0)

    class Assets(html.parser.HTMLParser):
        found: list[str] = []  # noqa: RUF012 - of this class alone

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [f"{tag} {key}" for key, _ in attrs if key in ("src", "srcset") or tag in ("link", "script")]

    Assets().feed(page)
    assert Assets.found == []
    assert '<html lang="zh-CN">' in page
    assert "内存超过计划" in page or "为计划" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


async def test_an_engine_that_loads_is_no_alarm(scripted_url, engine, capsys) -> None:
    engine.ready = None
    found = await asked(capsys, scripted_url)
    assert {(item["check"], item["severity"]) for item in found["findings"]} <= {("conditions", "info")}


async def test_an_engine_under_pressure(scripted_url, engine, capsys) -> None:
    """What only the scrape says, and the status beside it: half-empty pages."""
    engine.tell(messages.EngineStats(steps=1, pages_total=100, pages_used=40, tokens_in_used_pages=40 * 8))
    found = await asked(capsys, scripted_url)
    (empty,) = [item for item in found["findings"] if item["check"] == "fragmentation"]
    assert empty["what"].startswith("97 % of the pages in use hold no token, at this moment")


def test_nobody_there_is_no_inspection(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = told(capsys, "--url", "http://127.0.0.1:1", code=2)
    assert "cannot connect" in words
    shown = json.loads(told(capsys, "--url", "http://127.0.0.1:1", "-o", "json", code=2))
    assert "cannot connect" in shown["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--url", "x", "--all-namespaces"), "does not go with"),
        (("--url", "x", "name"), "does not go with"),
        (("-A", "-n", "team"), "does not go with"),
        (("name", "-n", "a", "-n", "b"), "in which namespace?"),
        (("-n", ""), "--namespace: got nothing"),
        (("--record", "x", "-A"), "--record: got 'x', expected NAMESPACE/NAME"),
        (("--prometheus-match", "x", "--prometheus", "http://x"), "expected LABEL=VALUE"),
        (("--prometheus-match", "a=b"), "say nothing without --prometheus"),
        (("--prometheus-service", "a/b"), "give exactly one --url"),
        (("--url", "x", "--prometheus-service", "a"), "expected NAMESPACE/NAME"),
        (("--url", "x", "--prometheus", "nowhere"), "--prometheus: got 'nowhere'"),
        (("--url", "nowhere"), "URL: got 'nowhere'"),
        (("--fail-on", "info"), "invalid choice"),
        (("--url", "https://x", "--ca-file", "/nowhere"), "--ca-file: got /nowhere"),
    ],
)
def test_wrong_usage_names_the_option(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in told(capsys, *arguments, code=2)
