"""For each check: facts in which it finds something, facts in which all is well, and facts in which it cannot look."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import inspection_facts as made

from tidemark_operator.inspection import facts
from tidemark_operator.inspection.check import Severity
from tidemark_operator.inspection.text import Text, same
from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import metrics

WARNING, CRITICAL, INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO
BROKEN = same("http://prometheus:9090: cannot connect")


@dataclass(frozen=True)
class Fires:
    severity: Severity
    words: str
    """Part of the English sentence."""
    facts: facts.Facts


@dataclass(frozen=True)
class Cases:
    fires: list[Fires]
    silent: list[facts.Facts] = field(default_factory=lambda: [made.site(), made.site(history=made.history())])
    not_checked: list[tuple[str, facts.Facts]] = field(default_factory=list)
    """Part of the reason, and the facts."""


def engines(*found: facts.Engine) -> facts.Facts:
    return made.site(made.service(*found))


def past(**answers: object) -> facts.Facts:
    return made.site(history=made.history(**answers))


def ended(reason: str, code: int, ago: float, **more: object) -> dict[str, object]:
    when = made.after(-ago)
    last = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": when}}
    return made.pod(restarts=4, lastState=last, **more)


def crossed(level: str, seconds: float) -> facts.Facts:
    return engines(made.engine(lines={level: {"level": 0.8, "secondsAboveTotal": seconds}}))


def certificate(seconds: float) -> facts.Facts:
    shown = facts.Certificate(where="10.0.0.1:8000", not_after=made.NOW + datetime.timedelta(seconds=seconds))
    return made.site(made.service(certificate=shown))


def alert(name: str, severity: str, state: str = "firing", **labels: str) -> facts.Alert:
    return facts.Alert(
        name=name,
        severity=severity,
        state=state,
        labels={"namespace": "team", "service": "chat", **labels},
        description="12 of 100.",
        runbook=f"http://x/{name}.md",
        since=made.after(-600),
    )


def operators(leader: float, age: float = 3.0, ready: str = "") -> facts.Facts:
    samples = made.scrape(
        (operator_metrics.LEADER.name, {}, leader), (operator_metrics.WATCH_AGE.name, {"kind": "Pod"}, age)
    )
    return made.site(operators=(facts.Operator(name="system/t", scrape=samples, ready=ready),))


DAY = 86_400.0


def evaluated(told: dict[str, object], **changes: object) -> facts.Facts:
    spec = {"evaluation": {"schedule": "0 3 * * 0"}}
    return made.site(made.service(spec=spec, told={"evaluation": told}, **changes))


NOBODY = engines(made.silent())
ALONE = made.site(made.address())
UNKNOWN_TARGET = made.site(made.address(), history=made.history())
FALLBACK = {"op": "linear", "planned": "triton", "path": "torch", "dtype": "int8", "reason": "no compiler"}
LOSSY = made.condition("LossyKV", "True", "AcceptedByName", "KV memory is int4.")
CARD = {"device": "0", "uuid": "u", "name": "card"}
STALLED = made.engine(state="stalled", reason="Stalled", message="no step for 60 s")
THOUSAND = (metrics.REQUESTS.name, {"outcome": "stop"}, 1000.0)
PREEMPTED = (metrics.PREEMPTIONS.name, {"mode": "swap"}, 50.0)

CASES: dict[str, Cases] = {
    "conditions": Cases(
        [
            Fires(CRITICAL, "Ready is False", made.site(made.service(conditions=[made.condition("Ready", "False")]))),
            Fires(
                WARNING,
                "MemoryPressure is True",
                made.site(made.service(conditions=[*made.GOOD[:3], made.condition("MemoryPressure", "True")])),
            ),
            Fires(CRITICAL, "No operator has said", made.site(made.service(conditions=[]))),
            Fires(
                INFO,
                "MonitoringReady is False",
                made.site(made.service(conditions=[*made.GOOD, made.condition("MonitoringReady", "False")])),
            ),
            Fires(WARNING, "has not acted on generation 4", made.site(made.service(generation=4))),
            Fires(CRITICAL, "no step for 60 s", engines(STALLED)),
            Fires(WARNING, "TlsUnreadable", engines(made.engine(reason="TlsUnreadable", message="bad pair"))),
            Fires(
                WARNING,
                "cannot be pulled",
                engines(
                    made.silent(
                        on=made.pod(
                            finding={"reason": "ImagePullBackOff", "message": "cannot be pulled", "problem": True}
                        )
                    )
                ),
            ),
            Fires(INFO, "has no effect", made.site(made.service(told={"warnings": ["spec.x has no effect yet."]}))),
            Fires(INFO, "loading", made.site(made.address(made.engine(state="loading", message="Loading.")))),
        ],
        [
            *Cases([]).silent,
            made.site(made.service(conditions=[made.condition("Ready", "False")], spec={"suspend": True})),
        ],
        [("no answer", made.site(made.address(made.silent())))],
    ),
    "engines-answer": Cases(
        [
            Fires(WARNING, "does not answer: no answer", NOBODY),
            Fires(CRITICAL, "does not answer", made.site(made.address(facts.Engine(name="a", why_not="refused")))),
        ],
        [*Cases([]).silent, engines(made.silent(on=made.pod(state={"waiting": {}})))],
        [
            ("not permitted", engines(made.silent("not permitted: get pods/proxy in namespace team"))),
            ("pods (not asked", made.site(made.service(not_read=("pods (not asked: 403)",)))),
            ("suspended", made.site(made.service(spec={"suspend": True}))),
        ],
    ),
    "alerts": Cases(
        [
            Fires(
                CRITICAL,
                "TidemarkEngineStalled fires: 12 of 100.",
                made.site(history=made.history([alert("TidemarkEngineStalled", "critical")])),
            ),
            Fires(
                WARNING,
                "fires",
                made.site(history=made.history([alert("TidemarkRetryStorm", "warning", service="other")])),
            ),
        ],
        [
            past(),
            made.site(history=made.history([alert("TidemarkRetryStorm", "warning", "pending")])),
            made.site(
                history=made.history([alert("TidemarkRetryStorm", "warning", service="other")]), everything=False
            ),
        ],
        [("--prometheus", made.site()), ("cannot connect", made.site(history=made.history(BROKEN)))],
    ),
    "memory-lines": Cases(
        [
            Fires(WARNING, "above the queue line for 20 % of the time since", crossed("queue", 0.2 * DAY)),
            Fires(INFO, "above the queue line for 5 %", crossed("queue", 0.05 * DAY)),
            Fires(
                INFO,
                "above the queue line for 50 % of the time since it started 60 s ago",
                engines(made.engine(uptimeSeconds=60.0, lines={"queue": {"level": 0.7, "secondsAboveTotal": 30.0}})),
            ),
            Fires(CRITICAL, "above the preempt line for 20 %", crossed("preempt", 0.2 * DAY)),
            Fires(
                WARNING,
                "2 % of the time in the last 24 hours",
                past(lines_day=(made.series(0.02, level="preempt"),), lines_week=(made.series(0.01, level="preempt"),)),
            ),
            Fires(
                INFO,
                "5 % of the time in the last 7 days",
                past(lines_day=(), lines_week=(made.series(0.05, level="queue"),)),
            ),
        ],
        [*Cases([]).silent, crossed("queue", 20.0)],
        [
            ("no answer", NOBODY),
            ("cannot connect", past(lines_day=BROKEN)),
            ("no tidemark_watermark", past(lines_week=())),
        ],
    ),
    "out-of-memory": Cases(
        [
            Fires(CRITICAL, "for want of memory 60 min ago", engines(made.engine(on=ended("OOMKilled", 137, 3600)))),
            Fires(WARNING, "ran out of memory 2 times since", engines(made.engine(outOfMemoryTotal=2))),
            Fires(WARNING, "3 times in the last 7 days", past(out_of_memory_week=(made.series(3.0),))),
        ],
        [*Cases([]).silent, engines(made.engine(on=ended("OOMKilled", 137, 30 * DAY)))],
        [("no answer", NOBODY), ("cannot connect", past(out_of_memory_week=BROKEN))],
    ),
    "restarts": Cases(
        [
            Fires(
                WARNING,
                "started again 4 times, last 2 h ago, after exit code 1",
                engines(made.engine(on=ended("Error", 1, 7200))),
            ),
            Fires(
                WARNING,
                "5 times in the last 7 days",
                made.site(made.address(labels=made.LABELS), history=made.history(resets_week=(made.series(5.0),))),
            ),
        ],
        [
            *Cases([]).silent,
            engines(made.engine(on=ended("Error", 1, 30 * DAY))),
            engines(made.engine(on=ended("OOMKilled", 137, 3600))),
        ],
        [
            ("--prometheus", ALONE),
            ("no target http://127.0.0.1:8000", UNKNOWN_TARGET),
            ("pods (not", made.site(made.service(not_read=("pods (not asked: x)",), engines=()))),
        ],
    ),
    "kernel-paths": Cases(
        [
            Fires(
                WARNING,
                "1 op runs on a slower path than planned: linear (int8)",
                engines(made.engine(kernelPaths=[FALLBACK])),
            ),
            Fires(INFO, "Within 7 days an engine ran 2 ops", past(unplanned_week=(made.series(2.0),))),
        ],
        not_checked=[
            ("no answer", NOBODY),
            ("no op has run", engines(made.engine(kernelPaths=[]))),
            ("cannot connect", past(unplanned_week=BROKEN)),
        ],
    ),
    "plan-measured": Cases(
        [
            Fires(
                WARNING,
                "weights takes 1.0 KiB, 104 % of the planned 1000 B (tolerance 3 %)",
                engines(made.engine(memory={"partsBytes": {"weights": 1040}})),
            ),
            Fires(
                WARNING, "activations takes 112 B", engines(made.engine(memory={"partsBytes": {"activations": 112}}))
            ),
            Fires(INFO, "kv takes 1.8 KiB", engines(made.engine(memory={"partsBytes": {"kv": 1800}}))),
        ],
        [*Cases([]).silent, engines(made.engine(memory={"partsBytes": {"weights": 1020, "activations": 109}}))],
        [
            ("no answer", NOBODY),
            (f"no part is both planned and measured in {made.POD}", engines(made.engine(memory={"plannedBytes": {}}))),
        ],
    ),
    "batch-fill": Cases(
        [
            Fires(
                WARNING,
                "30 % full in the last week and 50 % in the four weeks before; as many requests came",
                past(batch_fill_last_week=(made.series(0.3),)),
            ),
            Fires(
                INFO,
                "fewer requests came",
                past(batch_fill_last_week=(made.series(0.3),), requests_last_week=(made.series(3000.0),)),
            ),
        ],
        [past(), past(batch_fill_last_week=(made.series(0.45),)), past(batch_fill_last_week=(made.series(0.9),))],
        [
            ("--prometheus", made.site()),
            ("cannot connect", past(batch_fill_last_week=BROKEN)),
            ("too few requests", past(requests_month_before=())),
            ("has no batch_fill_month_before", past(batch_fill_month_before=())),
            ("no target", UNKNOWN_TARGET),
        ],
    ),
    "queue-wait": Cases(
        [
            Fires(
                WARNING,
                "waited up to 1.2 s for their first turn in the last week, and 0.20 s",
                past(queue_wait_p95_last_week=(made.series(1.2),)),
            )
        ],
        [
            past(),
            past(queue_wait_p95_last_week=(made.series(0.4),)),
            past(queue_wait_p95_last_week=(made.series(0.28),)),
        ],
        [
            ("--prometheus", made.site()),
            ("cannot connect", past(queue_wait_p95_last_week=BROKEN)),
            ("has no queue_wait_p95_last_week", past(queue_wait_p95_last_week=())),
        ],
    ),
    "fragmentation": Cases(
        [
            Fires(
                WARNING,
                "45 % of the pages in use hold no token, at this moment (a page holds 16 tokens)",
                engines(made.engine(samples=[(metrics.KV_FRAGMENTATION.name, {}, 0.45)])),
            ),
            Fires(
                WARNING,
                "40 % of the pages in use hold no token, on average of 7 days",
                past(fragmentation_week=(made.series(0.4),)),
            ),
        ],
        not_checked=[
            ("no answer", NOBODY),
            (f"hardly a page is in use now: {made.POD} (3)", engines(made.engine(memory={"pagesUsed": 3}))),
            ("no /metrics of", engines(made.engine(samples=[]))),
            ("in 7 days", past(fragmentation_week=())),
        ],
    ),
    "soft-limit": Cases(
        [
            Fires(
                WARNING,
                "50 sequences lost their pages since its engines started, 5 % of the requests",
                engines(made.engine(samples=[THOUSAND, PREEMPTED])),
            ),
            Fires(
                WARNING,
                "700 sequences lost their pages in the last 7 days",
                past(preemptions_week=(made.series(700.0),)),
            ),
        ],
        [
            *Cases([]).silent,
            made.site(
                made.service(made.engine(samples=[THOUSAND, PREEMPTED]), spec={"scheduler": {"maxConcurrencySoft": 8}})
            ),
            engines(made.engine(samples=[(metrics.REQUESTS.name, {}, 20.0), PREEMPTED])),
        ],
        [("no answer", NOBODY), ("cannot connect", past(preemptions_week=BROKEN))],
    ),
    "configuration-drift": Cases(
        [
            Fires(
                WARNING,
                f"1 of 1 engines do not run the wanted configuration {made.HASH}",
                engines(made.engine(config={"hash": "old"})),
            ),
            Fires(
                INFO,
                "a rollout goes on",
                made.site(
                    made.service(
                        made.engine(config={"hash": "old"}),
                        conditions=[*made.GOOD, made.condition("Progressing", "True")],
                    )
                ),
            ),
            Fires(
                WARNING,
                "Its 2 engines run 2 configurations",
                made.site(made.service(made.engine(), made.engine("b", config={"hash": "old"}), wanted_hash="")),
            ),
        ],
        not_checked=[("no answer", NOBODY), ("one engine, and nothing says", ALONE)],
    ),
    "configuration-refused": Cases(
        [
            Fires(
                WARNING,
                "ConfigApplied is False",
                made.site(
                    made.service(conditions=[*made.GOOD[:2], made.condition("ConfigApplied", "False", "Rejected")])
                ),
            ),
            Fires(
                INFO,
                "refused 2 configurations since",
                engines(made.engine(samples=[(metrics.CONFIG_RELOADS.name, {"result": "rejected"}, 2.0)])),
            ),
            Fires(INFO, "refused 3 configurations in the last 7 days", past(rejected_week=(made.series(3.0),))),
        ],
        not_checked=[("no answer", NOBODY), ("cannot connect", past(rejected_week=BROKEN))],
    ),
    "held-back": Cases(
        [
            Fires(WARNING, "leaves it alone", made.site(made.service(paused=True))),
            Fires(INFO, "because spec.suspend is true", made.site(made.service(spec={"suspend": True}))),
            Fires(INFO, "because spec.replicas is 0", made.site(made.service(spec={"replicas": 0}))),
            Fires(
                WARNING,
                "lets 32 requests run at once instead of 64",
                made.site(
                    made.service(
                        told={"tightened": {"maxConcurrencySoft": 32, "instead": 64, "since": made.after(-60)}}
                    )
                ),
            ),
        ],
        not_checked=[("an address has no manifest", ALONE)],
    ),
    "evaluation": Cases(
        [
            Fires(INFO, "no result of one yet", evaluated({"intervalSeconds": 7 * DAY}, created=made.after(-DAY))),
            Fires(CRITICAL, "evaluation of 2 d ago failed", evaluated({"time": made.after(-2 * DAY), "passed": False})),
            Fires(
                WARNING, "there is no result", made.site(made.service(spec={"evaluation": {"schedule": "0 3 * * 0"}}))
            ),
            Fires(
                CRITICAL,
                "evaluation of 2 d ago failed",
                past(
                    **{
                        operator_metrics.EVALUATION_TIME.name: (made.series(made.NOW.timestamp() - 2 * DAY),),
                        operator_metrics.EVALUATION_PASSED.name: (made.series(0.0),),
                    }
                ),
            ),
            Fires(
                WARNING,
                "is overdue (every 7 d)",
                past(
                    **{
                        operator_metrics.EVALUATION_TIME.name: (made.series(made.NOW.timestamp() - 20 * DAY),),
                        operator_metrics.EVALUATION_PASSED.name: (made.series(1.0),),
                        operator_metrics.EVALUATION_INTERVAL.name: (made.series(7 * DAY),),
                    }
                ),
            ),
        ],
        not_checked=[
            ("an address has no manifest", ALONE),
            ("cannot connect", past(**{operator_metrics.EVALUATION_TIME.name: BROKEN})),
        ],
    ),
    "lossy-kv": Cases(
        [
            Fires(INFO, "KV memory is int4.", made.site(made.service(conditions=[*made.GOOD, LOSSY]))),
            Fires(
                INFO,
                "25 % of KV memory is int4",
                engines(made.engine(memory={"kvBytes": {"bfloat16": 300, "int4": 100}})),
            ),
        ],
        not_checked=[("no answer", NOBODY), ("no engine has loaded", engines(made.engine(memory={"kvBytes": {}})))],
    ),
    "certificates": Cases(
        [
            Fires(INFO, "The certificate of 10.0.0.1:8000 ends in 20 d", certificate(20 * DAY)),
            Fires(WARNING, "ends in 10 d", certificate(10 * DAY)),
            Fires(CRITICAL, "ends in 24 h", certificate(DAY)),
            Fires(CRITICAL, "ended 2 d ago", certificate(-2 * DAY)),
            Fires(CRITICAL, "ends in 2 h", engines(made.engine(certificateExpires=made.NOW.timestamp() + 7200))),
        ],
        [*Cases([]).silent, certificate(90 * DAY)],
        [
            ("no TLS handshake", made.site(made.service(certificate=facts.Certificate(where="x", problem="refused")))),
            ("nobody said when", made.site(made.service(spec={"access": {"tlsSecretRef": {"name": "t"}}}))),
        ],
    ),
    "api-keys": Cases(
        [
            Fires(
                WARNING,
                "API key contracts ends in 5 d",
                engines(made.engine(keysExpire={"contracts": made.NOW.timestamp() + 5 * DAY})),
            )
        ],
        [*Cases([]).silent, engines(made.engine(keysExpire={"contracts": made.NOW.timestamp() + 50 * DAY}))],
        [("no answer", NOBODY)],
    ),
    "devices": Cases(
        [
            Fires(
                CRITICAL,
                "Device 0 reported Xid 79 1 times since",
                engines(made.engine(devices=[{**CARD, "xidErrors": {"79": 1}}])),
            ),
            Fires(
                WARNING, "Device 0 reached 91 °C", engines(made.engine(devices=[{**CARD, "temperatureCelsius": 91.0}]))
            ),
            Fires(
                WARNING,
                "Device 1 reported Xid 13 2 times in the last 7 days",
                past(xid_week=(made.series(2.0, pod=made.POD, device="1", xid="13"),)),
            ),
        ],
        not_checked=[
            ("without devices", engines(made.engine(worker={"device": "cpu"}, devices=[]))),
            ("finds no NVML", engines(made.engine(devices=[]))),
            ("no answer", NOBODY),
            ("cannot connect", past(temperature_day=BROKEN)),
        ],
    ),
    "scrape-targets": Cases(
        [
            Fires(WARNING, "2 of its targets do not answer Prometheus", past(down=(made.series(2.0),))),
            Fires(WARNING, "1 of its engines answer this inspection, and Prometheus scrapes 0", past(scraped=())),
        ],
        [past()],
        [("--prometheus", made.site()), ("cannot connect", past(scraped=BROKEN))],
    ),
    "operator": Cases(
        [
            Fires(CRITICAL, "0 processes of the operator lead", operators(0.0)),
            Fires(CRITICAL, "has not heard of Pod for 20 min", operators(1.0, 1200.0)),
            Fires(WARNING, "is not ready: HTTP 503", operators(1.0, ready="HTTP 503")),
            Fires(
                CRITICAL,
                "2 processes",
                made.site(operators=(), history=made.history(operator_leader=(facts.Series({}, 2.0),))),
            ),
        ],
        not_checked=[
            ("no pod of an operator", made.site(operators=(), why_no_operators=Text("no pod of an operator", "没有"))),
            (
                "no /metrics of system/t: timeout",
                made.site(operators=(facts.Operator(name="system/t", why_not="timeout"),)),
            ),
            (
                "Prometheus has no tidemark_operator_leader",
                made.site(operators=(), why_no_operators=same("x"), history=made.history(operator_leader=())),
            ),
        ],
    ),
}
