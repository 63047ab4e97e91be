"""What a Prometheus answers to the checks' queries. An error is an answer, too: the checks tell it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from urllib import parse

from tidemark_operator import errors, prometheus
from tidemark_operator.inspection import facts
from tidemark_operator.inspection.check import Query
from tidemark_operator.inspection.text import Text, same
from tidemark_operator.monitoring.rules import model, promql, recording

TIMEOUT_SECONDS = 60.0
_RULES = Query("rules_loaded", lambda scope: f"count ({scope.select(recording.KV_USAGE)})")
_NO_RULES = Text(
    f"Prometheus has none of our rules, or nothing to compute them from: no {recording.KV_USAGE}. "
    "Load them (tidemark render --monitoring)",
    f"Prometheus 未加载我们的规则，或没有可计算的数据：缺少 {recording.KV_USAGE}。"
    "请加载规则（tidemark render --monitoring）",
)


def read(
    source: prometheus.Prometheus,
    queries: Sequence[Query],
    scope: promql.Scope,
    now: datetime.datetime,
    services: Collection[tuple[str, str]] = (),
) -> facts.History:
    """Every query once, and its other form where that has no answer about one of `services` (namespace and name). When
    nobody answers at all, the first answer stands for all of them: nobody waits an hour."""
    answers: dict[str, Sequence[facts.Series] | Text] = {}
    gone: Text | None = None
    for query in (*queries, _RULES):
        if gone is not None:
            answers[query.name] = gone
            continue
        try:
            answers[query.name] = _answer(source, query, scope, now, services)
        except errors.PrometheusUnreachable as error:
            gone = answers[query.name] = same(str(error))
        except errors.PrometheusRefused as error:
            answers[query.name] = same(f"{query.name}: {error}")
    rules = answers.pop(_RULES.name)
    alerts = rules if isinstance(rules, Text) else _alerts(source)
    if not rules and not alerts:  # none fires, or there is nobody to make one fire; one that does says which
        alerts = _NO_RULES
    return facts.History(url=source.url, answers=answers, alerts=alerts)


def labels_of(
    source: prometheus.Prometheus, url: str, scope: promql.Scope, now: datetime.datetime
) -> tuple[str, str] | None:
    """Namespace and service of the target at this address; None where Prometheus has none, or does not answer (then
    every query says so)."""
    parts = parse.urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    instance = f"{parts.hostname}:{port}"
    by = promql.by(("namespace", "service"))
    matchers = promql.Scope((*scope.matchers, ("instance", instance)))
    try:
        found = source.instant(f"group by {by} ({matchers.select('up')})", now.timestamp())
    except errors.PrometheusError:
        return None
    if not found:
        return None
    return found[0].labels.get("namespace", ""), found[0].labels.get("service", "")


def _answer(
    source: prometheus.Prometheus,
    query: Query,
    scope: promql.Scope,
    now: datetime.datetime,
    services: Collection[tuple[str, str]],
) -> list[facts.Series]:
    found = _instant(source, query.expr(scope), now)
    if query.otherwise is None:
        return found
    known = {_service(item) for item in found}
    if found and known.issuperset(services):
        return found
    return [*found, *(item for item in _instant(source, query.otherwise(scope), now) if _service(item) not in known)]


def _service(item: facts.Series) -> tuple[str, str]:
    return item.labels.get("namespace", ""), item.labels.get("service", "")


def _instant(source: prometheus.Prometheus, expr: str, now: datetime.datetime) -> list[facts.Series]:
    """What is not a number says nothing."""
    found = source.instant(expr, now.timestamp())
    return [facts.Series(item.labels, item.value) for item in found if not math.isnan(item.value)]


def _alerts(source: prometheus.Prometheus) -> Sequence[facts.Alert] | Text:
    try:
        found = source.alerts()
    except errors.PrometheusError as error:
        return same(str(error))
    return [_alert(item) for item in found if model.ALERT_NAME.fullmatch(item.labels.get("alertname", ""))]


def _alert(item: prometheus.Alert) -> facts.Alert:
    labels: Mapping[str, str] = item.labels
    told = item.annotations
    return facts.Alert(
        name=labels["alertname"],
        severity=labels.get("severity", ""),
        state=item.state,
        labels={key: value for key, value in labels.items() if key not in ("alertname", "severity")},
        description=told.get("description") or told.get("summary", ""),
        runbook=told.get("runbook_url", ""),
        since=item.active_since,
    )
