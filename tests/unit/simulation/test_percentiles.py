from __future__ import annotations

import random

import pytest

from tidemark_runtime.simulation import percentiles


def test_exact_percentiles_are_values_that_occurred() -> None:
    values = percentiles.Values()
    for value in random.Random(1).sample(range(1, 101), 100):
        values.add(value)
    found = values.percentiles()
    assert (found.num, found.p50, found.p90, found.p95, found.p99, found.max) == (100, 50, 90, 95, 99, 100)
    assert found.mean == 50.5


def test_of_nothing_and_of_one() -> None:
    assert percentiles.Values().percentiles() == percentiles.Percentiles()
    assert percentiles.Histogram().percentiles() == percentiles.Percentiles()
    one = percentiles.Values()
    one.add(3.0)
    assert one.percentiles() == percentiles.Percentiles(num=1, mean=3, p50=3, p90=3, p95=3, p99=3, max=3)


def test_a_histogram_is_within_one_percent() -> None:
    source = random.Random(2)
    exact, close = percentiles.Values(), percentiles.Histogram()
    for _ in range(5000):
        value = source.lognormvariate(-3.5, 1.0)
        exact.add(value)
        close.add(value)
    wanted, found = exact.percentiles(), close.percentiles()
    for name in ("p50", "p90", "p95", "p99"):
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=0.0105)
    assert (found.num, found.max) == (wanted.num, wanted.max)
    assert found.mean == pytest.approx(wanted.mean)


def test_histograms_add_up() -> None:
    left, right, whole = percentiles.Histogram(), percentiles.Histogram(), percentiles.Histogram()
    for index in range(1, 200):
        (left if index % 3 else right).add(index / 100)
        whole.add(index / 100)
    left.extend(right)
    found, wanted = left.percentiles(), whole.percentiles()
    assert found.mean == pytest.approx(wanted.mean)
    assert (found.num, found.p50, found.p99, found.max) == (wanted.num, wanted.p50, wanted.p99, wanted.max)


def test_an_average_over_time_weighs_by_how_long() -> None:
    average = percentiles.TimeAverage()
    assert average.mean == 0.0
    average.add(10, 1.0)
    average.add(2, 3.0)
    assert (average.mean, average.peak) == (4.0, 10)


def test_a_curve_rises_to_one() -> None:
    values = percentiles.Values()
    assert values.curve(10) == []
    for value in (5.0, 1.0, 3.0, 2.0):
        values.add(value)
    assert values.curve(2) == [(1.0, 0.25), (3.0, 0.75), (5.0, 1.0)]
