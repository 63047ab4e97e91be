"""Certificates and API keys that end soon. What has no end has no series."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import About, Alert, Group, Severity
from tidemark_operator.monitoring.rules.thresholds import DAY, HOUR, MINUTE, Thresholds
from tidemark_runtime.contract import metrics


def group(thresholds: Thresholds) -> Group:
    return Group(
        name="tidemark-expiry",
        about=About.SERVICE,
        alerts=(
            _certificate(thresholds, "TidemarkCertificateExpires", Severity.WARNING),
            _certificate(thresholds, "TidemarkCertificateExpiresSoon", Severity.CRITICAL),
            _key(thresholds),
        ),
    )


def _left(thresholds: Thresholds, metric: metrics.Metric) -> str:
    """Seconds until the first of all engines' ends; below 0: it has ended."""
    labels = promql.by((*promql.SERVICE, *metric.labels))
    return f"min by {labels} ({thresholds.scope.select(metric.name)}) - time()"


def _certificate(thresholds: Thresholds, name: str, severity: Severity) -> Alert:
    """The same twice: the critical one silences the warning."""
    is_soon = severity is Severity.CRITICAL
    limit = thresholds.certificate_critical_seconds if is_soon else thresholds.certificate_warning_seconds
    days = promql.number(limit / DAY)
    return Alert(
        name=name,
        expr=f"{_left(thresholds, metrics.CERTIFICATE_EXPIRY)} < {limit}",
        for_seconds=10 * MINUTE if is_soon else HOUR,
        severity=severity,
        summary=f"The certificate of {{{{ $labels.service }}}} ends within {days} days",
        summary_zh=f"{{{{ $labels.service }}}} 的证书将在 {days} 天内到期",
        description="The certificate that an engine of {{ $labels.namespace }}/{{ $labels.service }} serves ends in "
        "{{ $value | humanizeDuration }} (with a minus: it has ended). Then every client that checks it is refused.",
    )


def _key(thresholds: Thresholds) -> Alert:
    """A day after its end it is history: a key may end on purpose."""
    days = promql.number(thresholds.key_warning_seconds / DAY)
    return Alert(
        name="TidemarkKeyExpires",
        expr=f"({_left(thresholds, metrics.KEY_EXPIRY)} < {thresholds.key_warning_seconds}) > -{DAY}",
        for_seconds=HOUR,
        severity=Severity.WARNING,
        summary=f"An API key of {{{{ $labels.service }}}} ends within {days} days: {{{{ $labels.key }}}}",
        summary_zh=f"{{{{ $labels.service }}}} 的 API 密钥 {{{{ $labels.key }}}} 将在 {days} 天内到期",
        description="The key {{ $labels.key }} of {{ $labels.namespace }}/{{ $labels.service }} ends in "
        "{{ $value | humanizeDuration }} (with a minus: it has ended). Then its requests are answered with 401.",
    )
