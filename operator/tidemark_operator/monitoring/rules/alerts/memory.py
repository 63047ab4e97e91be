"""Lines of memory use: pressure that has an effect, not a level alone."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql, recording, services
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import DAY, HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics

_WINDOW = 5 * MINUTE
_TAKEN = 'part!="free"'


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-memory",
        about=About.SERVICE,
        alerts=(
            _queue_line(thresholds),
            _preempt_line(thresholds),
            _drowning(thresholds),
            _storm(thresholds),
            _tightened(thresholds),
            _prefix_hits(thresholds),
            _plan_exceeded(thresholds),
        ),
    )


def _crossed(thresholds: Thresholds, line: str) -> str:
    """Engines above a line, each with its share of time; `sum` takes the label `level` off."""
    series = thresholds.scope.select(recording.LINE_CROSSED, f'level="{line}"')
    return f"sum by {promql.by(promql.ENGINE)} ({series}) > {promql.number(thresholds.crossed_ratio)}"


def waiting(thresholds: Thresholds, seconds: int = _WINDOW) -> str:
    """Engines with requests that wait, each with how many, on average."""
    series = thresholds.scope.select(metrics.WAITING.name)
    return f"sum by {promql.by(promql.ENGINE)} (avg_over_time({series}[{promql.duration(seconds)}])) > 0"


def _queue_line(thresholds: Thresholds) -> Alert:
    expr = (
        f"max by {promql.by(promql.SERVICE)} (\n  ({_crossed(thresholds, 'queue')})\n  and ({waiting(thresholds)})\n)"
    )
    return Alert(
        name="TidemarkMemoryQueueLine",
        expr=expr,
        for_seconds=thresholds.queue_line_for,
        keep_seconds=thresholds.pressure_keep,
        severity=Severity.WARNING,
        summary="KV memory of {{ $labels.service }} is above the queue line, and requests wait",
        summary_zh="{{ $labels.service }} 的 KV 内存越过排队线，有请求在等待",
        description="An engine of {{ $labels.namespace }}/{{ $labels.service }} was above its queue line for "
        "{{ $value | humanizePercentage }} of the last 5 minutes (limit "
        f"{promql.percent(thresholds.crossed_ratio)}), and requests wait for pages. "
        "New requests are late; nothing is lost.",
    )


def _preempt_line(thresholds: Thresholds) -> Alert:
    preempted = thresholds.scope.total_rate(metrics.PREEMPTIONS.name, _WINDOW, labels=promql.ENGINE)
    expr = (
        f"max by {promql.by(promql.SERVICE)} (\n"
        f"  ({_crossed(thresholds, 'preempt')})\n"
        f"  and (({waiting(thresholds)}) or ({preempted} > 0))\n)"
    )
    return Alert(
        name="TidemarkMemoryPreemptLine",
        expr=expr,
        for_seconds=thresholds.preempt_line_for,
        keep_seconds=thresholds.pressure_keep,
        severity=Severity.CRITICAL,
        summary="KV memory of {{ $labels.service }} is above the preempt line: nobody starts, or sequences lose pages",
        summary_zh="{{ $labels.service }} 的 KV 内存越过抢占线：新请求无法开始，或有序列被抢占",
        description="An engine of {{ $labels.namespace }}/{{ $labels.service }} was above its preempt line for "
        "{{ $value | humanizePercentage }} of the last 5 minutes (limit "
        f"{promql.percent(thresholds.crossed_ratio)}), while requests waited or sequences were preempted.",
    )


def _drowning(thresholds: Thresholds) -> Alert:
    usage = thresholds.scope.select(metrics.KV_USAGE.name)
    window = promql.duration(thresholds.drowning_seconds)
    by_engine = promql.by(promql.ENGINE)
    predicted = f"max by {by_engine} (predict_linear({usage}[{window}], {thresholds.drowning_seconds}))"
    rising = f"max by {by_engine} (deriv({usage}[{window}])) > 0"
    expr = (
        f"max by {promql.by(promql.SERVICE)} (\n"
        f"  ({predicted} > {promql.number(thresholds.drowning_ratio)})\n"
        f"  and ({rising})\n"
        f"  and (max by {by_engine} ({usage}) >= 0)\n"  # it is there now: an engine that went away has no slope
        f"  and ({waiting(thresholds)})\n)"
    )
    return Alert(
        name="TidemarkMemoryDrowning",
        expr=expr,
        for_seconds=3 * MINUTE,
        keep_seconds=thresholds.pressure_keep,
        severity=Severity.WARNING,
        summary="KV memory of {{ $labels.service }} will be full within "
        f"{thresholds.drowning_seconds // MINUTE} minutes, and requests wait already",
        summary_zh=f"{{{{ $labels.service }}}} 的 KV 内存预计 {thresholds.drowning_seconds // MINUTE} 分钟内用满，"
        "且已有请求在等待",
        description="At its slope of the last "
        f"{thresholds.drowning_seconds // MINUTE} minutes, use of the pages of an engine of "
        "{{ $labels.namespace }}/{{ $labels.service }} is predicted to be {{ $value | humanizePercentage }} in "
        f"{thresholds.drowning_seconds // MINUTE} minutes (all pages are 100 %).",
    )


def _storm(thresholds: Thresholds) -> Alert:
    window = 15 * MINUTE
    scope = thresholds.scope
    by_service = promql.by(promql.SERVICE)
    preempted = scope.total_rate(metrics.PREEMPTIONS.name, window)
    requests = scope.total_rate(metrics.REQUESTS.name, window)
    rise = f"sum by {by_service} (increase({scope.select(metrics.PREEMPTIONS.name)}[{promql.duration(window)}]))"
    expr = f"{rise} >= {thresholds.storm_least}\nand {preempted} > {promql.number(thresholds.storm_ratio)} * {requests}"
    return Alert(
        name="TidemarkPreemptionStorm",
        expr=expr,
        for_seconds=5 * MINUTE,
        keep_seconds=thresholds.pressure_keep,
        severity=Severity.WARNING,
        summary="Sequences of {{ $labels.service }} lose their pages again and again",
        summary_zh="{{ $labels.service }} 的序列反复被抢占",
        description="{{ $labels.namespace }}/{{ $labels.service }} preempted {{ $value | humanize }} sequences within "
        f"15 minutes, more than {promql.percent(thresholds.storm_ratio)} of its requests: pages are computed or copied "
        "twice, and everybody is slower.",
    )


def _tightened(thresholds: Thresholds) -> Alert:
    series = thresholds.scope.select(services.TIGHTENED)
    return Alert(
        name="TidemarkSoftLimitTightened",
        expr=f"{series} == 1",
        for_seconds=thresholds.tightened_for,
        severity=Severity.WARNING,
        summary="Memory pressure has held down the limit of {{ $labels.service }} for long",
        summary_zh="内存压力使 {{ $labels.service }} 的并发软上限长时间处于收紧状态",
        description="For more than "
        f"{promql.duration(thresholds.tightened_for)} the engines of {{{{ $labels.namespace }}}}/"
        "{{ $labels.service }} have run fewer requests at once than the spec allows, because memory pressure comes "
        "back. Tightening is meant for peaks; this is load that the service was not planned for.",
    )


def _prefix_hits(thresholds: Thresholds) -> Alert:
    """Against its own week, since what is usual depends on who asks. At zero traffic there is no share."""
    series = thresholds.scope.select(recording.PREFIX_HIT)
    lately = f"avg_over_time({series}[{promql.duration(HOUR)}])"
    usually = f"avg_over_time({series}[{promql.duration(7 * DAY)}])"
    known = thresholds.scope.total_rate(metrics.PREFIX_TOKENS.name, HOUR)
    return Alert(
        name="TidemarkPrefixHitsFell",
        expr=f"{lately} < {promql.number(thresholds.prefix_fall_ratio)} * {usually}\n"
        f"and {usually} > {promql.number(thresholds.prefix_least_ratio)}\n"
        f"and {known} > {promql.number(thresholds.token_floor_per_second)}",
        for_seconds=HOUR,
        severity=Severity.INFO,
        summary="The prefix cache of {{ $labels.service }} finds far less than it used to",
        summary_zh="{{ $labels.service }} 的前缀缓存命中率远低于平时",
        description="Over the last hour {{ $value | humanizePercentage }} of the prompt tokens of "
        "{{ $labels.namespace }}/{{ $labels.service }} were found in the prefix cache: less than "
        f"{promql.percent(thresholds.prefix_fall_ratio)} of its average of 7 days.",
    )


def _plan_exceeded(thresholds: Thresholds) -> Alert:
    """Parts that were both measured and planned; what is free is no part of either."""
    scope, by_engine = thresholds.scope, promql.by(promql.ENGINE)
    both = promql.by((*promql.ENGINE, "part"))
    measured = scope.select(metrics.MEMORY_BYTES.name, _TAKEN)
    planned = scope.select(metrics.MEMORY_PLANNED_BYTES.name, _TAKEN)
    of_measured = f"sum by {by_engine} ({measured} and on {both} {planned})"
    of_planned = f"sum by {by_engine} ({planned} and on {both} {measured})"
    return Alert(
        name="TidemarkMemoryPlanExceeded",
        expr=f"max by {promql.by(promql.SERVICE)} ({of_measured} / ({of_planned} > 0))"
        f" > {promql.number(1 + thresholds.plan_excess_ratio)}",
        for_seconds=5 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} takes more memory than was planned",
        summary_zh="{{ $labels.service }} 占用的内存超过计划",
        description="An engine of {{ $labels.namespace }}/{{ $labels.service }} takes "
        "{{ $value | humanizePercentage }} of the memory that was planned for it (limit "
        f"{promql.percent(1 + thresholds.plan_excess_ratio)}).",
    )
