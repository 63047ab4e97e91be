"""What is asked of Prometheus: every query, with the window and the matchers still open.

Totals add up: a period that is too much for one answer is asked in parts, and the parts are summed. So means are made
of two sums, of samples and of their number. Where Prometheus gives a level between the samples (`rate`, subqueries),
the window follows the interval at which engines are scraped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_runtime.contract import metrics

SERVICE = ("cluster", "namespace", "service")
"""One service. A label that a site does not have is empty and takes no part."""

LOOK_BACK_SECONDS = 300
"""Prometheus takes a sample for the present one for so long (`--query.lookback-delta`)."""

PRESENCE = metrics.PROMPT_TOKENS.name
"""One series an engine, in every version: where it has samples, the engine was scraped."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that adds up over time, by some labels."""

    name: str
    metric: str
    """What must have samples for it."""
    expression: str
    """With `{series}` where the metric and its matchers go, `{window}` for seconds."""
    by: tuple[str, ...] = SERVICE
    matchers: tuple[str, ...] = ()
    """`phase="execute"`."""

    def query(self, window_seconds: float, matchers: Sequence[str] = ()) -> str:
        """PromQL for the window that ends when it is asked."""
        inner = self.expression.format(series=select(self.metric, (*self.matchers, *matchers)), window="{window}")
        return f"sum by ({', '.join(self.by)}) ({inner.replace('{window}', seconds(window_seconds))})"


def select(metric: str, matchers: Sequence[str]) -> str:
    """`metric{a="b"}`."""
    return f"{metric}{{{', '.join(matchers)}}}" if matchers else metric


def seconds(value: float) -> str:
    """As PromQL writes it: whole seconds, or milliseconds."""
    return f"{value:.0f}s" if float(value).is_integer() else f"{value * 1000:.0f}ms"


_RISE = "increase({series}[{window}])"
_SUM = "sum_over_time({series}[{window}])"
_COUNT = "count_over_time({series}[{window}])"
_PRESENT = f"count_over_time({{series}}[{{window}}:{LOOK_BACK_SECONDS}s]) * {LOOK_BACK_SECONDS}"


def _rise(name: str, metric: str, by: tuple[str, ...] = SERVICE, *matchers: str) -> Quantity:
    return Quantity(name, metric, _RISE, by, matchers)


def _mean(name: str, metric: str, *matchers: str) -> tuple[Quantity, Quantity]:
    """The two sums of a mean."""
    return (
        Quantity(f"{name}_sum", metric, _SUM, SERVICE, matchers),
        Quantity(f"{name}_count", metric, _COUNT, SERVICE, matchers),
    )


_STEP_SECONDS = f"{metrics.STEP_DURATION.name}_sum"
_STEP_TOKENS = f"{metrics.STEP_TOKENS.name}_sum"

QUANTITIES: tuple[Quantity, ...] = (
    _rise("prompt_tokens", metrics.PROMPT_TOKENS.name),
    _rise("generated_tokens", metrics.GENERATED_TOKENS.name),
    _rise("requests", metrics.REQUESTS.name, ("outcome",)),
    _rise("key_requests", metrics.KEY_REQUESTS.name, ("key",)),
    _rise("key_prompt_tokens", metrics.KEY_TOKENS.name, ("key",), 'kind="prompt"'),
    _rise("key_generated_tokens", metrics.KEY_TOKENS.name, ("key",), 'kind="generated"'),
    _rise("device_seconds", metrics.DEVICE_SECONDS.name),
    _rise("busy_seconds", metrics.DEVICE_BUSY_SECONDS.name),
    Quantity("device_samples", metrics.DEVICE_SECONDS.name, _COUNT),
    Quantity("engine_samples", PRESENCE, _COUNT),
    Quantity("engine_seconds", PRESENCE, _PRESENT),
    _rise("execute_seconds", _STEP_SECONDS, SERVICE, 'phase="execute"'),
    _rise("computed_tokens", _STEP_TOKENS),
    *_mean("batch_fill", metrics.BATCH_FILL.name),
    *_mean("kv_usage", metrics.KV_USAGE.name),
    *_mean("device_utilization", metrics.DEVICE_UTILIZATION.name),
    *_mean("device_power", metrics.DEVICE_POWER.name),
    _rise("hit_tokens", metrics.PREFIX_TOKENS.name, SERVICE, 'result="hit"'),
    _rise("missed_tokens", metrics.PREFIX_TOKENS.name, SERVICE, 'result="miss"'),
    Quantity("kv_stored", metrics.KV_TOKEN_BYTES.name, _SUM, SERVICE, ('precision="stored"',)),
    Quantity("kv_16bit", metrics.KV_TOKEN_BYTES.name, _SUM, SERVICE, ('precision="16bit"',)),
    *_mean("weights_bytes", metrics.MEMORY_BYTES.name, 'part="weights"'),
)
"""All of them; `reading` asks for each once."""


def present(matchers: Sequence[str]) -> str:
    """Engines that were scraped, at a moment."""
    return f"count({select(PRESENCE, matchers)})"


def any_within(window_seconds: float) -> str:
    """Engines of which there is a sample in the window, of all services."""
    return f"count(last_over_time({PRESENCE}[{seconds(window_seconds)}]))"


def tokens_within(metric: str, window_seconds: float, matchers: Sequence[str]) -> str:
    """Tokens in the window, for a picture."""
    return f"sum(increase({select(metric, matchers)}[{seconds(window_seconds)}]))"


def devices_held(rate_seconds: float, matchers: Sequence[str]) -> str:
    """Devices held at a moment: each adds a second every second."""
    return f"sum(rate({select(metrics.DEVICE_SECONDS.name, matchers)}[{seconds(rate_seconds)}]))"


def running_per_device(rate_seconds: float, matchers: Sequence[str]) -> str:
    """Sequences in the running batches over devices held, at a moment."""
    return f"sum({select(metrics.RUNNING.name, matchers)}) / ({devices_held(rate_seconds, matchers)} > 0)"


def most_within(expression: str, window_seconds: float) -> str:
    """The largest value of an expression in the window, looked at every five minutes."""
    return f"max_over_time(({expression})[{seconds(window_seconds)}:{LOOK_BACK_SECONDS}s])"


def mean_within(metric: str, window_seconds: float, matchers: Sequence[str]) -> str:
    """Of a gauge, over all engines, for a picture."""
    return f"avg(avg_over_time({select(metric, matchers)}[{seconds(window_seconds)}]))"
