"""Every query of every dashboard, asked of a real Prometheus that scrapes a real engine: none fails, none is empty."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dashboard_queries
import httpx
import live
import pytest
import yaml
from alerting import inbox, programs

from tidemark_operator.monitoring import dashboard_files, operator_metrics, site
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import http as paths
from tidemark_runtime.contract import metrics

ABSENT = "prometheus is not on this machine; Debian's package of this name has it"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason=ABSENT),
]

CERTIFICATES = Path(__file__).parents[2] / "support" / "certificates"
FLAGS = {"num-pages": 64, "max-num-seqs": 4, "threads": 1, "tls-cert-file": CERTIFICATES / "one.crt",
         "tls-key-file": CERTIFICATES / "one.key", "speculative-method": "ngram"}  # fmt: skip
KEY = "sk-dashboards"
EVERY_SECOND = "1s"
FOUND_SECONDS = 120.0
"""Rules are evaluated every second; the rest is for a busy machine."""
MOST_REQUESTS = 1000
"""Of each user."""

FROM_NVML = (
    metrics.DEVICE_UTILIZATION,
    metrics.DEVICE_MEMORY_USED,
    metrics.DEVICE_MEMORY_TOTAL,
    metrics.DEVICE_TEMPERATURE,
    metrics.DEVICE_POWER,
    metrics.DEVICE_XID_ERRORS,
)
"""What an engine without a card does not export; a second target has them instead."""
REFUSED = f'{metrics.CONFIG_RELOADS.name}{{result="rejected"}} 1\n'
"""An alert without a delay (TidemarkConfigRejected), so that one fires."""
LABEL_VALUES: Mapping[str, Sequence[str]] = {
    "namespace": ["team"],
    "service": ["chat"],
    "condition": ["Ready", "Available", "ConfigApplied", "CapacityFit", "MemoryPressure"],
    "status": ["True", "False", "Unknown"],
    "state": ["wanted", "ready", "updated"],
    "verb": ["get", "patch"],
    "kind": ["Pod", "InferenceService"],
    "code": ["200", "500"],
    "result": ["done", "failed"],
    "reason": ["OutOfMemory"],
    "device": ["0"],
    "xid": ["79"],
}

ALL = {"cluster": ".*", "namespace": ".*", "service": ".*", "pod": ".*"}
"""What Grafana puts in for All (the variables' `allValue`),"""
FILLED = {**ALL, "__rate_interval": "1m"}
CHOSEN = {"cluster": "", "namespace": "(team|other)", "service": "chat", "pod": "(chat-0|card-0)"}
"""... for several, and for a single one."""


def value_of(metric: metrics.Metric, labels: Mapping[str, str], scrape: int) -> float:
    """Ready is False, everything else True; counters rise by one a scrape."""
    if metric is operator_metrics.SERVICE_CONDITION:
        return float(labels["status"] == ("False" if labels["condition"] == "Ready" else "True"))
    return float(scrape if metric.kind is metrics.Kind.COUNTER else 1)


def exposition(table: Sequence[metrics.Metric], scrape: int) -> str:
    """All series of a table, as a scrape has them."""
    lines = []
    for metric in table:
        for values in itertools.product(*(LABEL_VALUES[label] for label in metric.labels)):
            labels = dict(zip(metric.labels, values, strict=True))
            written = ",".join(f'{label}="{value}"' for label, value in labels.items())
            if metric.kind is metrics.Kind.HISTOGRAM:
                lines += [f'{metric.name}_bucket{{le="{edge}"}} {scrape}' for edge in (*metric.buckets, "+Inf")]
                lines += [f"{metric.name}_sum {scrape}", f"{metric.name}_count {scrape}"]
            else:
                lines.append(f"{metric.name}{{{written}}} {value_of(metric, labels, scrape)}")
    return "\n".join(lines) + "\n"


def rising(table: Sequence[metrics.Metric], extra: str = "") -> inbox.Answer:
    scrapes = itertools.count(1)
    return lambda _: (exposition(table, next(scrapes)) + extra).encode()


@pytest.fixture(scope="module")
def engine(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.Server]:
    """With TLS and a key that ends, so that nothing of what is shown is missing."""
    folder = tmp_path_factory.mktemp("engine")
    (folder / "keys").write_text(f"{KEY} name=drill until=2099-01-31\n")
    flags = [f"--{name}={value}" for name, value in FLAGS.items()]
    server = live.start(folder, str(smollm2_path), *flags, f"--api-keys-file={folder / 'keys'}")
    server = dataclasses.replace(server, url=server.url.replace("http:", "https:"))
    try:
        live.wait_ready(server)
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.fixture(scope="module")
def prometheus(engine: live.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[programs.Prometheus]:
    """With the rendered rules, and the jobs and labels of the rendered example."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not on this machine; Debian's package of this name has it")
    folder = tmp_path_factory.mktemp("prometheus")
    rules = yaml.safe_load(site.rules(Thresholds())[site.RULES])
    for group in rules["groups"]:
        group.pop("interval", None)
    (folder / site.RULES).write_text(yaml.safe_dump(rules))
    with (
        inbox.serving(get=rising(operator_metrics.TABLE)) as operator,
        inbox.serving(get=rising(FROM_NVML, REFUSED)) as card,
    ):
        config = configuration(engine.url, operator, card)
        with programs.prometheus(folder, config) as started, asking(engine):
            wait_for_timed_ops(engine, started)
            yield started


def configuration(engine: str, operator: str, card: str) -> dict[str, Any]:
    def target(url: str, **labels: str) -> list[dict[str, Any]]:
        return [{"targets": [url.partition("://")[2]], "labels": labels}]

    engines = {"scheme": "https", "tls_config": {"insecure_skip_verify": True}}
    place = {"namespace": "team", "service": "chat"}
    return {
        "global": {"scrape_interval": EVERY_SECOND, "evaluation_interval": EVERY_SECOND},
        "rule_files": [site.RULES],
        "scrape_configs": [
            {"job_name": site.ENGINE_JOB, **engines, "static_configs": target(engine, **place, pod="chat-0")},
            {"job_name": "card", "static_configs": target(card, **place, pod="card-0")},
            {"job_name": site.OPERATOR_JOB, "honor_labels": True, "static_configs": target(operator)},
        ],
    }


@contextlib.contextmanager
def asking(engine: live.Server) -> Iterator[None]:
    """Three users, as long as somebody looks: what rose a minute ago is no rate any more."""
    over = threading.Event()

    def user(first: int) -> None:
        for number in itertools.count(first):
            if over.is_set() or number > first + MOST_REQUESTS:
                return
            ask(engine, number)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        users = [pool.submit(user, MOST_REQUESTS * index) for index in range(3)]
        try:
            yield
        finally:
            over.set()
        for one in users:
            one.result()


def wait_for_timed_ops(engine: live.Server, prometheus: programs.Prometheus) -> None:
    """Until enough steps ran that one in 64 was timed, and two scrapes saw a difference."""
    series = f"{metrics.OP_DURATION.name}_count"
    end = time.monotonic() + FOUND_SECONDS
    while time.monotonic() < end:
        if prometheus.query(f"sum(increase({series}[1m])) > 0"):
            return
    raise AssertionError(f"{series} did not rise within {FOUND_SECONDS:.0f} s\n{engine.log}")


def ask(engine: live.Server, number: int) -> None:
    body = {"prompt": f"{number} rivers and the sea " * 6, "max_tokens": 32, "ignore_eos": True}
    answer = httpx.post(
        f"{engine.url}{paths.COMPLETIONS_PATH}",
        json=body,
        headers={"authorization": f"Bearer {KEY}"},
        timeout=60,
        verify=live.CERTIFICATES,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text


def answer(prometheus: programs.Prometheus, query: dashboard_queries.Query, chosen: Mapping[str, str]) -> bool:
    """Whether there is a number in it. Raises for one that Prometheus refuses."""
    expr = dashboard_queries.filled(query.expr, {**chosen, "__rate_interval": "1m"})
    if query.instant:
        values = [found["value"][1] for found in prometheus.query(expr)]
    else:
        now = time.time()
        span = {"start": str(now - 60), "end": str(now), "step": "5"}
        result = prometheus.get("/api/v1/query_range", query=expr, **span)["data"]["result"]
        values = [value for found in result for _, value in found["values"]]
    return any(value not in ("NaN", "+Inf", "-Inf") for value in values)


@pytest.mark.parametrize("chosen", [ALL, CHOSEN], ids=["all", "chosen"])
def test_every_query_finds_something(prometheus: programs.Prometheus, chosen: Mapping[str, str]) -> None:
    empty = list(dashboard_queries.queries())
    assert len(empty) > 100
    end = time.monotonic() + FOUND_SECONDS
    while time.monotonic() < end:
        empty = [query for query in empty if not answer(prometheus, query, chosen)]
        if not empty:
            break
    assert [f"{query}: {query.expr}" for query in empty] == []


def test_queries_of_one_table_give_rows_that_can_be_put_together(prometheus: programs.Prometheus) -> None:
    """Grafana makes one row of those with the same labels, the name of the series included."""
    for name in dashboard_files.names():
        for panel in dashboard_queries.panels(dashboard_queries.load(name, "en")):
            if panel["type"] == "table" and len(panel["targets"]) > 1:
                exprs = [dashboard_queries.filled(target["expr"], FILLED) for target in panel["targets"]]
                # Requests without a key have no such label, which Grafana shows as an empty cell.
                labels = {frozenset(row["metric"]) - {"key"} for expr in exprs for row in prometheus.query(expr)}
                assert len(labels) == 1, panel["title"]
                assert "__name__" not in next(iter(labels)), panel["title"]


def test_rules_are_evaluated_without_an_error(prometheus: programs.Prometheus) -> None:
    assert prometheus.rule_problems() == []


def test_variables_find_what_there_is_to_choose_from(prometheus: programs.Prometheus) -> None:
    wanted = {"cluster": [], "namespace": ["team"], "service": ["chat"], "pod": ["chat-0"]}
    for dashboard, series, label in dashboard_queries.variable_series():
        query = {"match[]": dashboard_queries.filled(series, ALL)}
        assert prometheus.get(f"/api/v1/label/{label}/values", **query)["data"] == wanted[label], dashboard


def test_an_alert_and_a_condition_are_told_in_words(prometheus: programs.Prometheus) -> None:
    """What somebody sees at night: the tables at the top of the overview, as they are."""
    tables = {
        panel["title"]: dashboard_queries.filled(panel["targets"][0]["expr"], ALL)
        for panel in dashboard_queries.panels(dashboard_queries.load("overview", "en"))[:6]
        if panel["type"] == "table"
    }
    alerts, conditions = (prometheus.query(expr) for expr in tables.values())
    shown = [(row["metric"]["severity"], row["metric"]["meaning"], row["metric"]["service"]) for row in alerts]
    assert ("warning", "TidemarkConfigRejected", "chat") in shown
    assert all(0 <= float(row["value"][1]) < FOUND_SECONDS * 4 for row in alerts)
    told = {(row["metric"]["meaning"], row["metric"]["reason"]) for row in conditions}
    assert told == {(condition, "OutOfMemory") for condition in LABEL_VALUES["condition"]}


def test_only_a_cards_figures_are_missing_without_one(engine: live.Server) -> None:
    scraped = httpx.get(f"{engine.url}{paths.METRICS_PATH}", verify=live.CERTIFICATES, trust_env=False).text
    missing = {metric for metric in metrics.ENGINE_METRICS if f"\n{metric.name}" not in scraped}
    assert missing <= set(FROM_NVML)
