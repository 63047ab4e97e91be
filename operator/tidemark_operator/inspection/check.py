"""What a check is, what it finds, and what it asks a Prometheus beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidemark_operator.inspection.facts import Facts, Series, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql

DAY, WEEK, MONTH = 86_400, 7 * 86_400, 28 * 86_400
"""Seconds. A month is four weeks, so that it has as many weekends as four single ones."""


class Severity(StrEnum):
    """`critical`: today. `warning`: this week. `info`: good to know."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that somebody should know."""

    severity: Severity
    what: Text
    """One sentence with the numbers."""
    advice: Text
    """Which field to set to what, hot or restart; or which command to run."""
    evidence: Sequence[str] = ()
    """Numbers, names, the query: what it was concluded from."""
    service: str = ""
    """`namespace/name`, or an address; empty: the site."""
    pod: str = ""
    runbook: str = ""
    """Name of the alert whose runbook says more."""


class NotChecked(Exception):
    """Raised by a check that cannot look, or not at everything: `why` is shown. What it yielded before counts."""

    def __init__(self, why: Text) -> None:
        self.why = why
        super().__init__(why.en)


@dataclass(frozen=True, slots=True)
class Query:
    """One question to Prometheus about all services at once."""

    name: str
    expr: Callable[[promql.Scope], str]
    otherwise: Callable[[promql.Scope], str] | None = None
    """Asked where `expr` has no answer about a service: recorded series come from our rules, and a site may not have
    loaded them, or not for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Exactly one of `of_service` and `of_site`. They may raise `NotChecked`."""

    name: str
    title: Text
    fine: Text
    """What may be said when it found nothing."""
    fine_now: Text | None = None
    """The same without history, where that says less."""
    of_service: Callable[[Service, Facts], Iterable[Finding]] | None = None
    of_site: Callable[[Facts], Iterable[Finding]] | None = None
    queries: tuple[Query, ...] = ()


NO_PROMETHEUS = Text("no Prometheus was given: --prometheus URL", "未提供 Prometheus：请使用 --prometheus URL")


def has_history(facts: Facts, service: Service) -> bool:
    """Whether Prometheus was given, and it is known which series are this service's."""
    return bool(facts.history.url) and service.labels is not None


def answer(facts: Facts, query: Query) -> Sequence[Series]:
    """What Prometheus said. Raises `NotChecked` where none was given, or it could not answer."""
    if not facts.history.url:
        raise NotChecked(NO_PROMETHEUS)
    found = facts.history.answers.get(query.name)
    if found is None:
        raise NotChecked(Text(f"Prometheus was not asked for {query.name}", f"未向 Prometheus 查询 {query.name}"))
    if isinstance(found, Text):
        raise NotChecked(found)
    return found


def of_service(facts: Facts, query: Query, service: Service) -> list[Series]:
    """The part of an answer that is about one service. Raises `NotChecked`."""
    found = answer(facts, query)
    if service.labels is None:
        raise NotChecked(
            Text(
                f"Prometheus has no target {service.url}: it is not scraped, or under another address "
                "(--prometheus-service NAMESPACE/NAME says which labels it has)",
                f"Prometheus 没有抓取目标 {service.url}，或以其他地址抓取"
                "（用 --prometheus-service NAMESPACE/NAME 指定其标签）",
            )
        )
    namespace, name = service.labels
    return [item for item in found if (item.labels.get("namespace"), item.labels.get("service")) == (namespace, name)]


def one(facts: Facts, query: Query, service: Service) -> float | None:
    """The largest value about one service; None: there is none. Raises `NotChecked`."""
    return max((item.value for item in of_service(facts, query, service)), default=None)


def statuses(service: Service) -> None:
    """Raises `NotChecked` where no engine of a service has said anything."""
    if any(engine.status is not None for engine in service.engines):
        return
    if service.suspended:
        raise NotChecked(Text("it is suspended", "服务已暂停"))
    why = "; ".join(dict.fromkeys(engine.why_not for engine in service.engines if engine.why_not))
    if why:
        raise NotChecked(Text(f"no engine of it answered: {why}", f"没有引擎应答：{why}"))
    raise NotChecked(Text("it has no engine that runs", "没有运行中的引擎"))
