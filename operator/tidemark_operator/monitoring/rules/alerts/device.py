"""Cards, as NVML has them: without one there are no series, and nothing fires."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics

_DEVICE = (*promql.ENGINE, "device")

BROKEN_XIDS = ("48", "61", "62", "63", "64", "74", "79", "92", "94", "95", "119", "120")
"""Memory errors, failed row remapping, links, the card's own processors, a card that fell off the bus: by NVIDIA's
documentation ("XID Errors") the card or the node needs somebody. The others (13, 31, 43, 45) may be a program's fault,
and its requests that fail have an alert of their own."""


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-device",
        about=About.SERVICE,
        alerts=(_errors(thresholds), _hot(thresholds), _grows(thresholds)),
    )


def _errors(thresholds: Thresholds) -> Alert:
    xids = promql.one_of("xid", BROKEN_XIDS)
    return Alert(
        name="TidemarkDeviceErrors",
        expr=thresholds.scope.total_rise(metrics.DEVICE_XID_ERRORS.name, 15 * MINUTE, xids, labels=(*_DEVICE, "xid")),
        for_seconds=0,
        severity=Severity.CRITICAL,
        summary="A card of {{ $labels.service }} reports a fault of its hardware (Xid {{ $labels.xid }})",
        summary_zh="{{ $labels.service }} 的一张卡报告硬件故障（Xid {{ $labels.xid }}）",
        description="Card {{ $labels.device }} of pod {{ $labels.pod }} ({{ $labels.instance }}) of "
        "{{ $labels.namespace }}/{{ $labels.service }} reported Xid {{ $labels.xid }} {{ $value | humanize }} times "
        "within 15 minutes. Results and requests on it are at risk.",
    )


def _hot(thresholds: Thresholds) -> Alert:
    series = thresholds.scope.select(metrics.DEVICE_TEMPERATURE.name)
    limit = promql.number(thresholds.device_celsius)
    return Alert(
        name="TidemarkDeviceHot",
        expr=f"max by {promql.by(_DEVICE)} (min_over_time({series}[{promql.duration(5 * MINUTE)}])) > {limit}",
        for_seconds=10 * MINUTE,
        keep_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="A card of {{ $labels.service }} is nearly so hot that it slows itself down",
        summary_zh="{{ $labels.service }} 的一张卡温度过高，接近降频",
        description="Card {{ $labels.device }} of pod {{ $labels.pod }} ({{ $labels.instance }}) of "
        "{{ $labels.namespace }}/{{ $labels.service }} has been at {{ $value | humanize }} °C for more than 10 minutes "
        f"(limit {limit} °C).",
    )


def _grows(thresholds: Thresholds) -> Alert:
    """Not the level, which is high by design: the slab is taken at the start. Loading looks like growth, so the whole
    window must have been at about the level of now."""
    window = promql.duration(6 * HOUR)
    series = thresholds.scope.select(metrics.DEVICE_MEMORY_USED.name)
    hourly = f"max by {promql.by(_DEVICE)} ({HOUR} * deriv({series}[{window}]))"
    level = f"(min_over_time({series}[{window}]) > 0.8 * {series}) and {series} offset {window}"
    loaded = f"max by {promql.by(_DEVICE)} ({level})"
    limit = promql.number(thresholds.device_growth_bytes_per_hour / 2**20)
    return Alert(
        name="TidemarkDeviceMemoryGrows",
        expr=f"{hourly} > {promql.number(thresholds.device_growth_bytes_per_hour)}\nand {loaded}",
        for_seconds=HOUR,
        severity=Severity.WARNING,
        summary="Memory in use on a card of {{ $labels.service }} grows, which it should not",
        summary_zh="{{ $labels.service }} 的一张卡显存占用持续增长，属于异常",
        description="Memory in use on card {{ $labels.device }} of pod {{ $labels.pod }} ({{ $labels.instance }}) of "
        "{{ $labels.namespace }}/{{ $labels.service }} grew by {{ $value | humanize1024 }}B an hour over 6 hours "
        f"(limit {limit} MiB). An engine takes all it needs at its start.",
    )
