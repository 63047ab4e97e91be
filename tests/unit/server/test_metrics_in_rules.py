"""B085: every series and label value that a rule asks for is in a real scrape, in both text formats."""

from __future__ import annotations

import re

import promql_names
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser

from tidemark_operator.cluster.kubernetes import metrics as kubernetes_metrics
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import catalog, promql
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics
from tidemark_runtime.engine import messages

GROUPS = catalog.groups(Thresholds())
RECORDED = {rule.record: dict(rule.labels) for group in GROUPS for rule in group.recording}
ASKED = sorted(
    {
        (series.name, label, value)
        for group in GROUPS
        for rule in (*group.recording, *group.alerts)
        for series in promql_names.named(rule.expr).selectors
        for label, value in [
            ("", ""),
            *((each.label, each.value) for each in series.matchers if "!" not in each.operator),
        ]
    }
)
"""Series, and of each matcher the label and its regular expression."""
PASSED_ON = {metrics.WATERMARK_STATE.labels[0], "condition", "status", "state", "slo"}
"""Labels that recorded series keep; who records them asks the real ones."""
ABSENT = {metric.name for metric in metrics.COMPUTE_LAYER if metric.name.startswith("tidemark_device_")} | {
    metrics.CERTIFICATE_EXPIRY.name,
    metrics.KEY_EXPIRY.name,
}
"""Only with a card, a certificate, or a key that ends: `test_device_metrics` and others have them."""


def operator_scrape() -> kubernetes_metrics.Metrics:
    made = kubernetes_metrics.Metrics()
    for result in ("done", "gone", "failed"):
        made.reconciled(result, 0.1)
    for code in (0, 200, 429, 500):
        made.requested("get", "Pod", code)
    made.leader.set(1)
    made.read_at_scrape(operator_metrics.WATCH_AGE, lambda: [(("Pod",), 1.0)])
    made.services_at_scrape(
        lambda: [
            kubernetes_metrics.Sample(row.name, ("x",) * len(row.labels), 1) for row in operator_metrics.OF_SERVICE
        ]
    )
    return made


@pytest.fixture(params=["text", "openmetrics"])
async def scraped(request, http, engine, shared, fakes):
    """Every sample of an engine under a little load and of an operator."""
    engine.ready = fakes.ready(planned_bytes={"weights": 1000, "kv": 2560})
    engine.tell(messages.EngineStats(steps=1, step_sequences=1, step_tokens=1, queue_waits_seconds=[0.1]))
    await http.post("/v1/completions", json={"prompt": "Hi"})
    await http.post("/v1/completions", json={"prompt": "Hi", "n": 0})
    if request.param == "openmetrics":
        registries = (shared.metrics.registry, operator_scrape().registry)
        texts = [openmetrics.generate_latest(registry).decode() for registry in registries]
        families = [family for text in texts for family in openmetrics_parser.text_string_to_metric_families(text)]
        families += parser.text_string_to_metric_families(operator_scrape()._service_lines().decode())
    else:
        engine_text, operator_text = (await http.get("/metrics")).text, operator_scrape().exposition().decode()
        families = [*parser.text_string_to_metric_families(engine_text)]
        families += parser.text_string_to_metric_families(operator_text)
    return [sample for family in families for sample in family.samples]


async def test_every_series_and_label_value_that_rules_name_is_scraped(scraped):
    missing = []
    for name, label, pattern in ASKED:
        if name == "up" or name in RECORDED or name in ABSENT:
            continue
        values = {sample.labels.get(label, "") for sample in scraped if sample.name == name}
        if not values:
            missing.append(name)
        if not label:
            continue
        alternatives = [pattern] if label == "code" else pattern.split("|")
        found = [any(re.fullmatch(each, value) for value in values) for each in alternatives]
        # An edge of a histogram is written `1` or `1.0`, depending on the format: one of the two is there.
        if not (any(found) if label == "le" else all(found)):
            missing.append(f'{name}{{{label}="{pattern}"}}: {sorted(values)}')
    assert missing == []


def test_recorded_series_that_alerts_read_are_recorded_and_matched_by_labels_they_have():
    for name, label, pattern in ASKED:
        if ":" not in name:
            continue
        assert name in RECORDED
        assert not label or label in PASSED_ON, (name, label, pattern)


def test_every_threshold_is_an_edge_of_its_histogram():
    """B083."""
    default = Thresholds()
    assert default.reconcile_seconds in operator_metrics.RECONCILE_DURATION.buckets
    assert default.oldest_wait_seconds in metrics.FIRST_TOKEN.buckets
    assert promql.bucket_edge(default.first_token_seconds) == 'le="2.5"'
    assert promql.bucket_edge(5.0) == 'le=~"5|5\\\\.0"'
