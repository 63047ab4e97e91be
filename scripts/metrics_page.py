"""The page of metrics, from `contract.metrics`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark_runtime.contract import metrics

_HEADER = """\
# Metrics

<!-- Written by `make render` from runtime/tidemark_runtime/contract/metrics.py. Change that file, not this one. -->

`GET /metrics` of each engine, without a key: in Prometheus' text format, or in OpenMetrics' for whoever accepts that;
names are the same. Times are seconds, sizes bytes, ratios 0 to 1. A histogram `x` is scraped as `x_bucket`, `x_sum` and
`x_count`. Paths in "set in" are below `runtime/tidemark_runtime/`.

Whatever is counted begins at 0 with the server process and never goes back while that lives. The engine process is not
restarted within it: when the engine ends, its server ends, and Prometheus sees both begin anew. Series of known label
values are there at 0 from the start. What a site does not have (a card, TLS, keys that end) has no series at all.

Device hours are `increase(tidemark_device_seconds_total) / 3600`, utilization is
`rate(tidemark_device_busy_seconds_total) / rate(tidemark_device_seconds_total)`, both summed over pods before dividing.
"""

_LAYERS: Mapping[str, Sequence[metrics.Metric]] = {
    "Requests": metrics.REQUEST_LAYER,
    "Batch and queue": metrics.BATCH_LAYER,
    "Memory": metrics.MEMORY_LAYER,
    "Computing": metrics.COMPUTE_LAYER,
    "Configuration": metrics.CONFIG_LAYER,
}


def render() -> str:
    """The whole page."""
    parts = [_HEADER]
    for title, layer in _LAYERS.items():
        parts.append(f"## {title}\n\n| name | kind | unit | labels | meaning | set in |\n|---|---|---|---|---|---|")
        parts.extend(_row(metric) for metric in layer)
        parts.append("")
    parts.append("## Buckets\n\n| histogram | upper bounds |\n|---|---|")
    histograms = [metric for metric in metrics.ENGINE_METRICS if metric.buckets]
    parts.extend(f"| `{item.name}` | {', '.join(f'{bound:g}' for bound in item.buckets)} |" for item in histograms)
    return "\n".join(parts) + "\n"


def _row(metric: metrics.Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{metric.name}` | {metric.kind.value} | {metric.unit} | {labels} | {metric.help} | {metric.where} |"
