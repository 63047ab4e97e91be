from __future__ import annotations

from typing import Any

from prometheus_client import parser

from tidemark_operator.cluster.kubernetes import metrics


def families(made: metrics.Metrics) -> dict[str, object]:
    return {family.name: family for family in parser.text_string_to_metric_families(made.exposition().decode())}


def test_the_table_is_sorted_and_is_what_is_exported() -> None:
    names = [row.name for row in metrics.TABLE]
    assert names == sorted(set(names))
    made = metrics.Metrics()
    made.requested("get", "Pod", 200)
    made.reconciled("done", 0.1)
    made.event_dropped("rate")
    made.conditions_at_scrape(list)
    for gauge in (metrics.QUEUE_DEPTH, metrics.WATCH_AGE, metrics.CACHED_OBJECTS):
        made.read_at_scrape(gauge, list)
    exported = {name for name in families(made) if not name.endswith("_created")}
    assert exported == {name.removesuffix("_total") for name in names}


def test_series_of_a_service_that_is_gone_vanish() -> None:
    """B091."""
    there = [metrics.ServiceCondition("team", "chat", "Ready", "True")]
    made = metrics.Metrics()
    made.conditions_at_scrape(lambda: there)
    text = made.exposition().decode()
    labels = 'condition="Ready",namespace="team",service="chat"'
    assert f'service_condition{{{labels},status="True"}} 1.0' in text.replace(
        'namespace="team",service="chat",condition="Ready"', labels
    )
    assert text.count('service="chat"') == 3
    there.clear()
    assert 'service="chat"' not in made.exposition().decode()


def test_two_operators_in_one_process_do_not_share_numbers() -> None:
    one, two = metrics.Metrics(), metrics.Metrics()
    one.event_dropped("rate")
    assert b'reason="rate"' not in two.exposition()


def test_a_condition_of_any_name_can_be_read_back() -> None:
    odd = 'a "quoted" \\ name\nof two lines'
    made = metrics.Metrics()
    made.conditions_at_scrape(lambda: [metrics.ServiceCondition("team", "chat", odd, "Unknown")])
    family: Any = families(made)[metrics.SERVICE_CONDITION]
    assert [(sample.labels["condition"], sample.labels["status"], sample.value) for sample in family.samples] == [
        (odd, "True", 0.0),
        (odd, "False", 0.0),
        (odd, "Unknown", 1.0),
    ]
