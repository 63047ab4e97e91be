"""Values over time, for the pictures of a report and for its peaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tidemark_operator import prometheus
from tidemark_operator.reporting import figures, queries
from tidemark_operator.reporting import period as period_
from tidemark_runtime.contract import metrics

_POINTS = 400
_FEW_DAYS = 3
_TOKENS = (("prompt_tokens", metrics.PROMPT_TOKENS.name), ("generated_tokens", metrics.GENERATED_TOKENS.name))
_UTILIZATION = (
    ("batch_fill", metrics.BATCH_FILL.name),
    ("kv_usage", metrics.KV_USAGE.name),
    ("device_utilization", metrics.DEVICE_UTILIZATION.name),
)

Asked = tuple[figures.Curve, str]
"""A curve, and the query it came from."""


def curves(
    source: prometheus.Prometheus, period: period_.Period, matchers: Sequence[str], rate_seconds: float
) -> dict[str, list[Asked]]:
    """For pictures; the two of devices hold the peaks, too. `rate_seconds`: the window of rates at a moment."""
    step, bar = _step(period), _bar(period)

    def curve(name: str, step: float, query: Callable[[float], str]) -> Asked:
        return _curve(source, name, query, period, step), f"{query(step)}, each {step:.0f} s: the largest value"

    def most(expression: str) -> Callable[[float], str]:
        return lambda window: queries.most_within(expression, window)

    def tokens(metric: str) -> Callable[[float], str]:
        return lambda window: queries.tokens_within(metric, window, matchers)

    def mean(metric: str) -> Callable[[float], str]:
        return lambda window: queries.mean_within(metric, window, matchers)

    used = [(name, curve(name, bar, mean(metric))) for name, metric in _UTILIZATION]
    return {
        "tokens": [curve(name, bar, tokens(metric)) for name, metric in _TOKENS],
        "devices": [curve("devices", step, most(queries.devices_held(rate_seconds, matchers)))],
        "running": [curve("running", step, most(queries.running_per_device(rate_seconds, matchers)))],
        "utilization": [asked for _, asked in used if any(value is not None for _, value in asked[0].points)],
    }


def _step(period: period_.Period) -> float:
    """Of a picture: a whole number of five minutes."""
    look_back = queries.LOOK_BACK_SECONDS
    return max(1, math.ceil(period.seconds / _POINTS / look_back)) * look_back


def _bar(period: period_.Period) -> float:
    """Of bars: a day, or an hour where there would be few days."""
    return 3600 if period.seconds < _FEW_DAYS * period_.DAY_SECONDS else period_.DAY_SECONDS


def _curve(
    source: prometheus.Prometheus, name: str, query: Callable[[float], str], period: period_.Period, step: float
) -> figures.Curve:
    """Values of windows side by side, the last one as long as what is left; a point is where its window begins."""
    count = math.floor(period.seconds / step + 1e-9)
    known: dict[int, float] = {}
    if count:
        for series in source.range(query(step), period.start + step, period.start + count * step, step):
            known |= {round((at - period.start) / step) - 1: value for at, value in series.points}
    left = period.seconds - count * step
    if left >= queries.LOOK_BACK_SECONDS:
        known |= {
            index: sample.value for index, sample in enumerate(source.instant(query(left), period.end), start=count)
        }
        count += 1
    return figures.Curve(
        name, tuple((period.start + index * step, figures.finite(known.get(index))) for index in range(count))
    )
