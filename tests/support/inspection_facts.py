"""Facts for tests of the inspection: a healthy service on a cluster, and what is laid over it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from tidemark_operator.inspection import facts, registry
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import metrics
from tidemark_runtime.contract import status as contract

NOW = datetime.datetime(2026, 11, 30, 12, 0, tzinfo=datetime.UTC)
URL = "http://127.0.0.1:8000"
POD = "chat-7f9c-abcde"
HASH = "123456789abc"
LABELS = ("team", "chat")
PROMETHEUS = "http://prometheus:9090"
_STATUS: dict[str, Any] = {
    "version": "1",
    "state": "ready",
    "message": "Serving.",
    "model": {"name": "chat", "source": "x"},
    "config": {"hash": HASH, "generation": 1},
    "worker": {"kind": "torch", "device": "cuda:0"},
    "kernelPaths": [{"op": "rms_norm", "planned": "triton", "path": "triton", "dtype": "bfloat16"}],
    "memory": {
        "partsBytes": {"weights": 1000, "kv": 2000, "activations": 100},
        "plannedBytes": {"weights": 1000, "kv": 2000, "activations": 100},
        "kvBytes": {"bfloat16": 2000},
        "pageBytes": 20,
        "blockSize": 16,
        "pagesTotal": 100,
        "pagesUsed": 50,
    },
    "lines": {"queue": {"level": 0.7}, "preempt": {"level": 0.9}},
    "queue": {"running": 4, "places": 64},
    "uptimeSeconds": 86_400.0,
    "devices": [{"device": "0", "uuid": "u", "name": "card", "temperatureCelsius": 60.0, "xidErrors": {}}],
}


def after(seconds: float) -> str:
    """A time of the API server, so many seconds from now on; negative: before."""
    return f"{NOW + datetime.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def status(**changes: Any) -> contract.EngineStatus:
    """Of a healthy engine; a mapping is laid over the section of its name."""
    document = dict(_STATUS)
    for key, value in changes.items():
        old = document.get(key)
        document[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
    return msgspec.convert(document, contract.EngineStatus)


def scrape(*samples: tuple[str, dict[str, str], float]) -> facts.Scrape:
    values: dict[str, list[facts.Series]] = {}
    for name, labels, value in samples:
        values.setdefault(name, []).append(facts.Series(labels, value))
    return facts.Scrape(values)


HEALTHY_SCRAPE = (
    (metrics.KV_FRAGMENTATION.name, {}, 0.05),
    (metrics.REQUESTS.name, {"outcome": "stop"}, 1000.0),
    (metrics.PREEMPTIONS.name, {"mode": "recompute"}, 0.0),
    (metrics.CONFIG_RELOADS.name, {"result": "rejected"}, 0.0),
)


def pod(**changes: Any) -> dict[str, Any]:
    return {
        "name": POD,
        "ready": True,
        "restarts": 0,
        "terminating": False,
        "state": {"running": {}},
        "lastState": {},
        "finding": None,
        "log": f"kubectl logs -n team {POD} -c engine --previous",
        **changes,
    }


def engine(name: str = POD, *, samples: Sequence[Any] = HEALTHY_SCRAPE, on: Any = None, **changes: Any) -> facts.Engine:
    """`on`: its pod."""
    shown = pod() if on is None else on
    return facts.Engine(name=name, status=status(**changes), scrape=scrape(*samples), pod=shown)


def silent(why: str = "no answer to /status within 5 s", on: Any = None) -> facts.Engine:
    return facts.Engine(name=POD, why_not=why, pod=pod() if on is None else on)


def condition(type_: str, truth: str, reason: str = "AsExpected", message: str = "") -> dict[str, Any]:
    when = after(-3600)
    return {
        "type": type_,
        "status": truth,
        "reason": reason,
        "message": message or f"{type_} is {truth}.",
        "observedGeneration": 3,
        "lastTransitionTime": when,
    }


GOOD = (
    condition("Ready", "True"),
    condition("Degraded", "False"),
    condition("ConfigApplied", "True"),
    condition("MemoryPressure", "False"),
)


def service(
    *engines: facts.Engine, conditions: Sequence[Any] = GOOD, told: Any = None, **changes: Any
) -> facts.Service:
    """`told`: more of its status."""
    return dataclasses.replace(
        facts.Service(
            origin=facts.Origin.CLUSTER,
            namespace="team",
            name="chat",
            url="http://chat.team.svc",
            spec={"replicas": 1},
            status={"conditions": list(conditions), **(told or {})},
            generation=3,
            wanted_hash=HASH,
            engines=engines or (engine(),),
            labels=LABELS,
        ),
        **changes,
    )


def address(*engines: facts.Engine, **changes: Any) -> facts.Service:
    """A URL and nothing else."""
    found = engines or (dataclasses.replace(engine(), name="127.0.0.1:8000", pod={}),)
    return dataclasses.replace(facts.Service(origin=facts.Origin.URL, url=URL, engines=found), **changes)


OPERATOR = facts.Operator(
    name="system/tidemark-1",
    scrape=scrape((operator_metrics.LEADER.name, {}, 1.0), (operator_metrics.WATCH_AGE.name, {"kind": "Pod"}, 3.0)),
)


def site(*services: facts.Service, **changes: Any) -> facts.Facts:
    found = facts.Facts(now=NOW, services=services or (service(),), operators=(OPERATOR,), everything=True)
    return dataclasses.replace(found, **changes)


def series(value: float, **labels: str) -> facts.Series:
    return facts.Series({"namespace": "team", "service": "chat", **labels}, value)


HEALTHY_ANSWERS: dict[str, tuple[facts.Series, ...]] = {
    "lines_day": (series(0.0, level="queue"), series(0.0, level="preempt")),
    "lines_week": (series(0.0, level="queue"), series(0.0, level="preempt")),
    "batch_fill_last_week": (series(0.5),),
    "batch_fill_month_before": (series(0.5),),
    "queue_wait_p95_last_week": (series(0.2),),
    "queue_wait_p95_month_before": (series(0.2),),
    "requests_last_week": (series(7000.0),),
    "requests_month_before": (series(7000.0),),
    "a_month_ago": (series(1.0),),
    "fragmentation_week": (series(0.05),),
    "temperature_day": (series(61.0, pod=POD, device="0"),),
    "scraped": (series(1.0),),
    "operator_leader": (facts.Series({}, 1.0),),
}


def history(alerts: Sequence[facts.Alert] | Text = (), **answers: Any) -> facts.History:
    """A Prometheus in which all is well; every query that nobody speaks of has no series. A text: it failed."""
    asked: dict[str, Any] = {query.name: () for query in registry.queries()}
    assert {*HEALTHY_ANSWERS, *answers} <= set(asked), "a query that no check asks"
    return facts.History(url=PROMETHEUS, answers={**asked, **HEALTHY_ANSWERS, **answers}, alerts=alerts)
