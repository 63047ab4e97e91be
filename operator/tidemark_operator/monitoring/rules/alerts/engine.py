"""Engines that stand still, fail, fall back, or end again and again."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql, services
from tidemark_operator.monitoring.rules.alerts import memory
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-engine",
        about=About.SERVICE,
        alerts=(
            _stalled(thresholds),
            _failing(thresholds),
            _out_of_memory(thresholds),
            _fell_back(thresholds),
            _restarting(thresholds),
        ),
    )


def _stalled(thresholds: Thresholds) -> Alert:
    """Generated tokens are there from the start; those of steps only after a first step, so they can only acquit: a
    long prompt on a slow device makes no token for minutes."""
    scope, window = thresholds.scope, thresholds.stalled_seconds
    by_engine = promql.by(promql.ENGINE)
    running = f"min_over_time({scope.select(metrics.RUNNING.name)}[{promql.duration(window)}])"
    generated = scope.total_rate(metrics.GENERATED_TOKENS.name, window, labels=promql.ENGINE)
    computed = scope.total_rate(f"{metrics.STEP_TOKENS.name}_sum", window, labels=promql.ENGINE)
    expr = (
        f"(({memory.waiting(thresholds)}) or (sum by {by_engine} ({running}) > 0))\n"
        f"and ({generated} == 0)\n"
        f"unless ({computed} > 0)"
    )
    return Alert(
        name="TidemarkEngineStalled",
        expr=expr,
        for_seconds=2 * MINUTE,
        severity=Severity.CRITICAL,
        summary="An engine of {{ $labels.service }} has work and computes nothing",
        summary_zh="{{ $labels.service }} 的一个引擎有请求却没有任何计算",
        description="Engine {{ $labels.pod }} ({{ $labels.instance }}) of {{ $labels.namespace }}/"
        "{{ $labels.service }} has {{ $value | humanize }} requests and computed not one token in "
        f"{window // MINUTE} minutes.",
    )


def _failing(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkRequestsFailing",
        expr=thresholds.scope.total_rise(metrics.REQUESTS.name, 10 * MINUTE, 'outcome="failed"'),
        for_seconds=0,
        severity=Severity.WARNING,
        summary="Requests to {{ $labels.service }} fail by a fault of the engine",
        summary_zh="{{ $labels.service }} 有请求因引擎故障而失败",
        description="{{ $value | humanize }} requests to {{ $labels.namespace }}/{{ $labels.service }} failed within "
        "10 minutes (answer 500, or a stream that broke off). None should, whatever clients send.",
    )


def _out_of_memory(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkOutOfMemory",
        expr=thresholds.scope.total_rise(metrics.OUT_OF_MEMORY.name, 15 * MINUTE),
        for_seconds=0,
        severity=Severity.WARNING,
        summary="An engine of {{ $labels.service }} ran out of memory",
        summary_zh="{{ $labels.service }} 的引擎发生内存不足（OOM）",
        description="Memory ran out {{ $value | humanize }} times within 15 minutes in engines of "
        "{{ $labels.namespace }}/{{ $labels.service }}: each time, all requests of a step failed, or the engine ended. "
        "The plan keeps a reserve, so this is no usual load.",
    )


def _fell_back(thresholds: Thresholds) -> Alert:
    series = thresholds.scope.select(metrics.KERNEL_PATHS_UNPLANNED.name)
    return Alert(
        name="TidemarkEngineFellBack",
        expr=f"max by {promql.by(promql.SERVICE)} ({series}) > 0",
        for_seconds=2 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} computes on a slow path that was not planned",
        summary_zh="{{ $labels.service }} 在未计划的慢速路径上计算",
        description="{{ $value | humanize }} ops of an engine of {{ $labels.namespace }}/{{ $labels.service }} run on "
        "another path than planned (0 is as it should be). Answers are right, but slow.",
    )


def _restarting(thresholds: Thresholds) -> Alert:
    """A counter that falls tells of a new process; one that took no prompt before it ended is counted by the operator
    only, for all pods of the service together. A node that starts anew ends each of its pods once, which is no loop: so
    there must be as many for each pod that is wanted."""
    series, limit = thresholds.scope.select(metrics.PROMPT_TOKENS.name), thresholds.restarts_per_hour
    counted = thresholds.scope.select(services.ENGINE_RESTARTS)
    pods = f"clamp_min({services.replicas(thresholds, 'wanted')}, 1)"
    return Alert(
        name="TidemarkEngineRestarting",
        expr=f"(max by {promql.by(promql.ENGINE)} (resets({series}[{promql.duration(HOUR)}])) >= {limit})\n"
        f"or on {promql.by(promql.SERVICE)} ({counted} >= {limit} * {pods})",
        for_seconds=0,
        severity=Severity.CRITICAL,
        summary="An engine of {{ $labels.service }} ends and is started again, over and over",
        summary_zh="{{ $labels.service }} 的一个引擎反复退出并重启",
        description="Engines of {{ $labels.namespace }}/{{ $labels.service }} were started anew "
        f"{{{{ $value | humanize }}}} times within an hour (limit {limit}). Pod: {{{{ $labels.pod }}}} (none: the "
        "operator counted those of all pods). Each time, all running requests of the pod were lost.",
    )
