"""What is asked of Prometheus and what is made of the answers, with one that we write ourselves."""

from __future__ import annotations

import re
from collections.abc import Callable

import made_readings
import pytest

from tidemark_operator import errors, prometheus
from tidemark_operator.reporting import coverage, period, queries, reading
from tidemark_runtime.contract import metrics

START = made_readings.QUARTER.start
DAY = 86_400
NOW = made_readings.QUARTER.end + DAY
WINDOW = re.compile(r"\[(\d+)s\]")


class Source:
    """Engines that are there from `first` to `last`, and counters that grow by one a second."""

    url = "http://prometheus:9090"

    def __init__(
        self,
        first: float = START,
        last: float = NOW,
        kept: str | None = "400d",
        most_seconds: float = 1e12,
        missing: Callable[[float], bool] = lambda _: False,
    ) -> None:
        self.first, self.last, self.kept, self.most_seconds, self.missing = first, last, kept, most_seconds, missing
        self.asked: list[tuple[str, float]] = []

    def retention(self) -> str | None:
        return self.kept

    def instant(self, query: str, at: float) -> list[prometheus.Sample]:
        window = float(WINDOW.findall(query)[0]) if WINDOW.findall(query) else 0.0
        if window > self.most_seconds:
            raise errors.PrometheusRefused("too many samples", kind=errors.PrometheusRefused.TOO_MUCH)
        self.asked.append((query, at))
        begin, end = max(at - window, self.first), min(at, self.last)
        if end <= begin:
            return []
        return [prometheus.Sample({"service": "a"}, at, end - begin), prometheus.Sample({}, at, float("nan"))]

    def range(self, query: str, start: float, end: float, step: float) -> list[prometheus.Series]:
        points = [start + index * step for index in range(int((end - start) / step + 1e-9) + 1)]
        there = [(at, 1.0) for at in points if self.first < at <= self.last + step - 300 and not self.missing(at)]
        return [prometheus.Series({}, tuple(there))] if there else []


def test_a_total_is_one_question():
    answers = reading.read(Source(), made_readings.QUARTER, NOW)
    assert answers.num_parts == 1
    assert answers.totals["prompt_tokens"].total() == made_readings.QUARTER.seconds
    assert answers.coverage == 1.0
    assert answers.gaps == ()


def test_what_is_too_much_is_asked_in_parts_that_sum_to_the_same():
    source = Source(most_seconds=20 * DAY)
    answers = reading.read(source, made_readings.QUARTER, NOW)
    assert answers.num_parts == 8
    assert answers.totals["prompt_tokens"].total() == made_readings.QUARTER.seconds
    assert "of 8 parts" in answers.totals["prompt_tokens"].query


def test_a_day_that_is_too_much_is_an_error():
    with pytest.raises(errors.PrometheusRefused, match="too many samples"):
        reading.read(Source(most_seconds=1000), made_readings.QUARTER, NOW)


def test_gaps_are_listed_and_counted():
    gap = (START + 10 * DAY, START + 19 * DAY)
    source = Source(missing=lambda at: gap[0] < at <= gap[1])
    answers = reading.read(source, made_readings.QUARTER, NOW)
    assert answers.coverage == pytest.approx(0.9)
    assert [(found.start, found.end) for found in answers.gaps] == [gap]


def test_a_service_that_began_late_is_a_gap_and_no_error():
    answers = reading.read(Source(first=START + 30 * DAY), made_readings.QUARTER, NOW)
    assert answers.coverage == pytest.approx(60 / 90, abs=1e-4)
    assert answers.first_sample == START + 30 * DAY


def test_a_period_that_is_no_longer_kept_is_refused_with_the_first_sample():
    source = Source(first=START + 60 * DAY, kept="30d")
    with pytest.raises(coverage.NoSamples) as caught:
        reading.read(source, made_readings.QUARTER, made_readings.QUARTER.end)
    assert "keeps 30d" in str(caught.value)
    assert "2025-08-30" in str(caught.value)
    assert "--from 2025-08-31" in str(caught.value)


def test_where_no_whole_day_is_there_yet_the_first_moment_is_proposed():
    """Tomorrow is no answer to somebody who asks today."""
    source = Source(first=START + 60 * DAY, kept="30d")
    with pytest.raises(coverage.NoSamples) as caught:
        coverage.refuse_forgotten(source, made_readings.QUARTER, START + 60 * DAY, START + 60 * DAY + 7200)
    assert "--from 2025-08-30T" in str(caught.value)


@pytest.mark.parametrize(
    ("kept", "refused"), [("4w2d", True), ("30d or 50GiB", True), ("50GiB", False), (None, False), ("2y", False)]
)
def test_how_retention_is_said(kept, refused):
    source = Source(first=START + 60 * DAY, kept=kept)
    if refused:
        with pytest.raises(coverage.NoSamples):
            reading.read(source, made_readings.QUARTER, made_readings.QUARTER.end)
    else:
        assert reading.read(source, made_readings.QUARTER, made_readings.QUARTER.end).coverage < 0.5


def test_an_empty_period_names_the_samples_that_there_are():
    source = Source(first=START + 200 * DAY, last=START + 220 * DAY)
    with pytest.raises(coverage.NoSamples, match=r"first sample is of 2026-01-1\d .*the last of 2026-02-0\d "):
        reading.read(source, made_readings.QUARTER, NOW)


def test_an_empty_prometheus_says_so():
    with pytest.raises(coverage.NoSamples, match="nor at any other time"):
        reading.read(Source(first=START, last=START - 1), made_readings.QUARTER, NOW)


def test_matchers_are_in_every_query():
    source = Source()
    reading.read(source, made_readings.QUARTER, NOW, ['namespace="team"'])
    assert source.asked
    assert all('namespace="team"' in query for query, _ in source.asked)


def test_queries_are_promql():
    each = next(each for each in queries.QUANTITIES if each.name == "hit_tokens")
    assert each.query(3600, ['namespace="a"']) == (
        "sum by (cluster, namespace, service) "
        '(increase(tidemark_prefix_tokens_total{result="hit", namespace="a"}[3600s]))'
    )
    assert queries.seconds(0.25) == "250ms"


def test_every_metric_that_is_asked_for_is_exported():
    exported = {each.name: set(each.labels) for each in metrics.ENGINE_METRICS}
    for each in queries.QUANTITIES:
        labels = exported[each.metric.removesuffix("_sum")]
        own = set(each.by) - set(queries.SERVICE)
        assert own | {matcher.partition("=")[0] for matcher in each.matchers} <= labels, each.name


def test_what_is_left_of_a_period_is_a_shorter_window():
    days = period.Period(START, START + 4 * DAY + 7200)
    source = Source()
    answers = reading.read(source, days, NOW)
    bars = answers.curves["tokens"][0].points
    assert [at for at, _ in bars] == [START + index * DAY for index in range(5)]
    assert bars[-1][1] == 7200


@pytest.mark.parametrize(("minutes", "listed"), [(10, False), (15, True)])
def test_short_gaps_are_counted_and_not_listed(minutes, listed):
    source = Source(missing=lambda at: START + DAY < at <= START + DAY + minutes * 60)
    answers = reading.read(source, made_readings.QUARTER, NOW)
    assert answers.coverage < 1
    assert bool(answers.gaps) == listed
