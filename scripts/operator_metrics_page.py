"""The page of the operator's metrics, from `tidemark_operator.monitoring.operator_metrics`."""

from __future__ import annotations

from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import metrics

PATH = "docs/reference/operator-metrics.md"

_HEADER = """\
# Metrics of the operator

<!-- Written by `make render` from operator/tidemark_operator/monitoring/operator_metrics.py. Change that, not this. -->

`GET /metrics` of `tidemark operator`, in Prometheus' text format, without a key. Times are seconds. A histogram `x` is
scraped as `x_bucket`, `x_sum` and `x_count`. The engines' own: [metrics](metrics.md).

Series of a service carry its `namespace` and `service`, so a scrape should say `honor_labels: true`; the rules
understand `exported_namespace` and `exported_service`, too. They vanish with the service at once, and what is not known
has no series. Files are under `operator/tidemark_operator/`.
"""

_SECTIONS = (("Of the process", operator_metrics.OF_PROCESS), ("Of each service", operator_metrics.OF_SERVICE))


def render() -> str:
    """The whole page."""
    parts = [_HEADER]
    for title, rows in _SECTIONS:
        parts.append(f"## {title}\n\n| name | kind | unit | labels | meaning | set in |\n|---|---|---|---|---|---|")
        parts.extend(map(_row, rows))
        parts.append("")
    parts.append("## Buckets\n\n| histogram | upper bounds |\n|---|---|")
    parts.extend(
        f"| `{row.name}` | {', '.join(f'{bound:g}' for bound in row.buckets)} |"
        for row in operator_metrics.TABLE
        if row.buckets
    )
    return "\n".join(parts) + "\n"


def _row(row: metrics.Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels) or "–"
    return f"| `{row.name}` | {row.kind.value} | {row.unit} | {labels} | {row.help} | `{row.where}` |"
