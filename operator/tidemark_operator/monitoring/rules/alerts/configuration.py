"""Configurations that differ, or were not taken."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import conditions, promql
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import MINUTE, Thresholds
from tidemark_runtime.contract import metrics


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-configuration",
        about=About.SERVICE,
        alerts=(_drift(thresholds), _rejected(thresholds), _not_applied(thresholds)),
    )


def _drift(thresholds: Thresholds) -> Alert:
    """While a rollout is on its way, pods of two configurations are as it should be."""
    series = thresholds.scope.select(metrics.CONFIG_INFO.name)
    distinct = f"count by {promql.by((*promql.SERVICE, 'hash'))} ({series})"
    rolling = conditions.holds(thresholds, "Progressing", "True")
    return Alert(
        name="TidemarkConfigDrift",
        expr=f"count by {promql.by(promql.SERVICE)} ({distinct}) > 1\nunless {rolling}",
        for_seconds=15 * MINUTE,
        severity=Severity.WARNING,
        summary="Engines of {{ $labels.service }} run different configurations",
        summary_zh="{{ $labels.service }} 的各引擎配置不一致",
        description="{{ $value | humanize }} different configurations are in force in the engines of "
        "{{ $labels.namespace }}/{{ $labels.service }}, and no rollout is on its way. Which answer a client gets "
        "depends on the engine.",
    )


def _rejected(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkConfigRejected",
        expr=thresholds.scope.total_rise(metrics.CONFIG_RELOADS.name, 10 * MINUTE, 'result="rejected"'),
        for_seconds=0,
        severity=Severity.WARNING,
        summary="An engine of {{ $labels.service }} refused a configuration",
        summary_zh="{{ $labels.service }} 的引擎拒绝了一份配置",
        description="{{ $value | humanize }} configurations sent to engines of {{ $labels.namespace }}/"
        "{{ $labels.service }} within 10 minutes were refused. What was in force before still is.",
    )


def _not_applied(thresholds: Thresholds) -> Alert:
    return Alert(
        name="TidemarkConfigNotApplied",
        expr=conditions.holds(thresholds, "ConfigApplied", "False"),
        for_seconds=10 * MINUTE,
        severity=Severity.WARNING,
        summary="{{ $labels.service }} does not run the configuration that its manifest asks for",
        summary_zh="{{ $labels.service }} 未按清单运行所要求的配置",
        description="The condition ConfigApplied of {{ $labels.namespace }}/{{ $labels.service }} is False for more "
        "than 10 minutes; its message names the engines and why.",
    )
