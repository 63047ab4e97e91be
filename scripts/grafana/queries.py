"""Small pieces of PromQL with the variables of the dashboards in them."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_operator.monitoring.rules import promql
from tidemark_runtime.contract import metrics

SERVICE = promql.SERVICE
ENGINE = (*SERVICE, "engine")
"""`engine` is the pod; where there are no pods, the address: see `with_engine`."""

_PLACE = ('cluster=~"$cluster"', 'namespace=~"$namespace"', 'service=~"$service"')
_WINDOW = "$__rate_interval"


def of_services(name: str, *matchers: str) -> str:
    """Series of the services that were chosen; recorded ones have no pod."""
    return f"{name}{{{','.join((*_PLACE, *matchers))}}}"


def of_engines(name: str, *matchers: str) -> str:
    """Series of the pods that were chosen."""
    return of_services(name, 'pod=~"$pod"', *matchers)


def of_operators(name: str, *matchers: str) -> str:
    """Series of the operator itself: its namespace is not one of those to choose from."""
    return f"{name}{{{','.join((_PLACE[0], *matchers))}}}"


def per_second(series: str) -> str:
    """Over as long as Grafana finds right for the time shown."""
    return f"rate({series}[{_WINDOW}])"


def rise(series: str) -> str:
    """By how much a counter rose from one point to the next."""
    return f"increase({series}[{_WINDOW}])"


def total(expr: str, by: Sequence[str] = SERVICE) -> str:
    return f"sum by {promql.by(by)} ({expr})"


def largest(expr: str, by: Sequence[str] = SERVICE) -> str:
    return f"max by {promql.by(by)} ({expr})"


def least(expr: str, by: Sequence[str] = SERVICE) -> str:
    return f"min by {promql.by(by)} ({expr})"


def with_engine(expr: str) -> str:
    """Adds the label `engine`: the pod, or else the address that was scraped."""
    address = f'label_replace({expr}, "engine", "$1", "instance", "(.+)")'
    return f'label_replace({address}, "engine", "$1", "pod", "(.+)")'


def by_engine(expr: str, *labels: str) -> str:
    """The sum for each engine, and for each value of `labels`."""
    return total(with_engine(expr), (*ENGINE, *labels))


def quantile(share: float, buckets: str, by: Sequence[str] = ()) -> str:
    """`buckets`: series of a histogram's buckets. None in a time in which nothing was seen, rather than NaN."""
    rates = total(per_second(buckets), (*by, "le"))
    return seen(f"histogram_quantile({promql.number(share)}, {rates})")


def seen(expr: str) -> str:
    """Without NaN, which a percentile of nothing is."""
    return f"{expr} >= 0"


def line(level: str) -> str:
    """Where a line lies, of each engine, as a share of its pages."""
    return of_services(metrics.WATERMARK_LEVEL.name, f'level="{level}"')


def share_of(part: str, whole: str) -> str:
    """None where the whole is 0."""
    return f"{part} / ({whole} > 0)"
