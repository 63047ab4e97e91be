from __future__ import annotations

from typing import Any

from prometheus_client import parser

from tidemark_operator.cluster.kubernetes import metrics
from tidemark_operator.monitoring import operator_metrics

TEAM = ("team", "chat")


def families(made: metrics.Metrics) -> dict[str, Any]:
    return {family.name: family for family in parser.text_string_to_metric_families(made.exposition().decode())}


def condition(name: str, status: str) -> metrics.Sample:
    return metrics.Sample(operator_metrics.SERVICE_CONDITION.name, (*TEAM, name, status), 1)


def test_the_table_is_what_is_exported() -> None:
    made = metrics.Metrics()
    made.requested("get", "Pod", 200)
    made.services_at_scrape(
        lambda: [metrics.Sample(row.name, ("x",) * len(row.labels), 1) for row in operator_metrics.OF_SERVICE]
    )
    for gauge in (operator_metrics.QUEUE_DEPTH, operator_metrics.WATCH_AGE, operator_metrics.CACHED_OBJECTS):
        made.read_at_scrape(gauge, list)
    exported = families(made)
    table = {row.name.removesuffix("_total"): row for row in operator_metrics.TABLE}
    assert set(exported) == set(table)
    assert len(table) == len(operator_metrics.TABLE)
    for name, row in table.items():
        assert exported[name].type == row.kind.value, name
        labels = {label for sample in exported[name].samples for label in sample.labels} - {"le"}
        assert not exported[name].samples or labels == set(row.labels), name


def test_results_and_reasons_are_there_from_the_start() -> None:
    """B087."""
    text = metrics.Metrics().exposition().decode()
    for result in metrics.RESULTS:
        assert f'tidemark_operator_reconciles_total{{result="{result}"}} 0.0\n' in text
    for reason in metrics.DROPPED_REASONS:
        assert f'tidemark_operator_events_dropped_total{{reason="{reason}"}} 0.0\n' in text
    assert "_created" not in text


def test_series_of_a_service_that_is_gone_vanish() -> None:
    """B091."""
    there = [condition("Ready", "True")]
    made = metrics.Metrics()
    made.services_at_scrape(lambda: there)
    labels = 'namespace="team",service="chat",condition="Ready",status="True"'
    assert f"service_condition{{{labels}}} 1.0\n" in made.exposition().decode()
    there.clear()
    assert 'service="chat"' not in made.exposition().decode()


def test_two_operators_in_one_process_do_not_share_numbers() -> None:
    one, two = metrics.Metrics(), metrics.Metrics()
    one.event_dropped("rate")
    assert b'dropped_total{reason="rate"} 0.0' in two.exposition()


def test_a_condition_of_any_name_can_be_read_back() -> None:
    odd = 'a "quoted" \\ name\nof two lines'
    made = metrics.Metrics()
    made.services_at_scrape(lambda: [condition(odd, "Unknown")])
    found = families(made)[operator_metrics.SERVICE_CONDITION.name].samples
    assert [(sample.labels["condition"], sample.labels["status"], sample.value) for sample in found] == [
        (odd, "Unknown", 1.0)
    ]
