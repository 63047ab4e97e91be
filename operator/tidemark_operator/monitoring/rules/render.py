"""Rules become a file for Prometheus, or a PrometheusRule for its operator. Both say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from tidemark_operator.monitoring import runbooks
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import Alert, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import Thresholds

HEADER = "# Written by `make render` from operator/tidemark_operator/monitoring/rules/. Change that, not this file.\n"
API_VERSION = "monitoring.coreos.com/v1"
KIND = "PrometheusRule"


def body(groups: Sequence[Group], thresholds: Thresholds) -> dict[str, Any]:
    """What a rule file holds, and `spec` of a PrometheusRule. Needs Prometheus 2.42 or later (`keep_firing_for`)."""
    return {"groups": [_group(group, thresholds) for group in groups]}


def rule_file(groups: Sequence[Group], thresholds: Thresholds) -> str:
    """For `rule_files:` of a plain Prometheus."""
    return HEADER + to_yaml(body(groups, thresholds))


def prometheus_rule(
    name: str, groups: Sequence[Group], thresholds: Thresholds, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    """The object of the Prometheus operator; `labels` are what a site's Prometheus selects rules by (B081)."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "tidemark", **(labels or {})}},
        "spec": body(groups, thresholds),
    }


def prometheus_rule_file(name: str, groups: Sequence[Group], thresholds: Thresholds) -> str:
    """The same as text for `kubectl apply`."""
    return HEADER + to_yaml(prometheus_rule(name, groups, thresholds))


def _group(group: Group, thresholds: Thresholds) -> dict[str, Any]:
    interval = {"interval": promql.duration(group.interval_seconds)} if group.interval_seconds is not None else {}
    rules = [*map(_recorded, group.recording), *(_alert(alert, thresholds) for alert in group.alerts)]
    return {"name": group.name, **interval, "rules": rules}


def _recorded(rule: RecordingRule) -> dict[str, Any]:
    return {"record": rule.record, "expr": rule.expr, **({"labels": dict(rule.labels)} if rule.labels else {})}


def _alert(alert: Alert, thresholds: Thresholds) -> dict[str, Any]:
    keep = {"keep_firing_for": promql.duration(alert.keep_seconds)} if alert.keep_seconds else {}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": promql.duration(alert.for_seconds)} if alert.for_seconds else {}),
        **keep,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "summary_zh": alert.summary_zh,
            "description": alert.description,
            "runbook_url": runbooks.url(thresholds.runbook_base_url, alert.name, thresholds.runbook_language),
        },
    }


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and no anchors where a value occurs twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    """As people write it: keys in the order in which they were given."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
