"""Is it fine, and if not: which service, what is wrong, and which runbook. For somebody who was just woken up."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import alerts, frame, panels, parts, queries, service_table
from grafana.parts import GREEN, ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring.rules import recording
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

_LIMITS = Thresholds()


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Overview", "总览"),
        description=say(
            "Is every service fine, and if not, what is wrong and what to do. Begin at the top left.",
            "各服务是否正常；若不正常，问题在哪里、该怎么做。从左上角看起。",
        ),
        rows=[
            frame.Row(say("What is wrong", "当前问题"), list(alerts.all_panels(say))),
            frame.Row(say("Services", "服务"), [service_table.panel(say)]),
            frame.Row(say("The last hours", "最近走势"), list(_trends(say))),
            frame.Row(say("What ends soon", "即将到期"), list(_ends(say))),
        ],
        with_pods=False,
    )


def _trends(say: Say) -> Iterable[dashboard.Panel]:
    yield panels.lines(
        panels.About(
            title=say("KV use of the fullest engine of each service", "各服务最满引擎的 KV 用量"),
            description=say(
                "Used pages over all pages. Dashed: the queue line, above which new requests wait, and the preempt "
                "line, above which sequences lose their pages; the lowest of the services shown.",
                "已用页占全部页的比例。虚线：排队线（高于它新请求等待）与抢占线（高于它序列会失去页），"
                "取所示服务中的最低值。",
            ),
            unit="percentunit",
            width=12,
            maximum=1,
            overrides=[parts.dashed("B", ORANGE), parts.dashed("C", RED)],
        ),
        parts.query(queries.of_services(recording.KV_USAGE), "{{service}}"),
        *(
            parts.query(f"min({queries.line(level)})", legend)
            for level, legend in (("queue", say("queue line", "排队线")), ("preempt", say("preempt line", "抢占线")))
        ),
    )
    yield panels.lines(
        panels.About(
            title=say("Time to the first token, 95 of 100", "首 token 时间 p95"),
            description=say(
                "Arrival to first token, as clients feel it. Dashed: what is promised.",
                "从到达到首个 token，即客户端的感受。虚线：承诺值。",
            ),
            unit="s",
            width=12,
            thresholds=parts.steps((_LIMITS.first_token_seconds, RED)),
        ),
        parts.query(queries.seen(queries.of_services(recording.FIRST_TOKEN_P95)), "{{service}}"),
        limits=True,
    )
    yield from _load(say)


def _load(say: Say) -> Iterable[dashboard.Panel]:
    ended = queries.total(queries.per_second(queries.of_services(metrics.REQUESTS.name)), ("outcome",))
    yield panels.lines(
        panels.About(
            title=say("Requests ended, by how", "完成的请求（按结果）"),
            description=say(
                "stop and length are good ends, abort is the client's own; failed and timeout break the promise.",
                "stop 与 length 为正常结束，abort 由客户端造成；failed 与 timeout 违背承诺。",
            ),
            unit="reqps",
            width=12,
            overrides=[parts.coloured("failed", RED), parts.coloured("timeout", ORANGE)],
        ),
        parts.query(ended, "{{outcome}}"),
        stacked=True,
    )
    waiting = queries.total(queries.of_services(metrics.WAITING.name))
    running = queries.total(queries.of_services(metrics.RUNNING.name))
    yield panels.lines(
        panels.About(
            title=say("Requests that run and that wait", "运行与等待中的请求"),
            description=say(
                "Waiting that grows while running stays is too much load, or too little memory: see Scheduling.",
                "等待增长而运行不变，说明负载过大或内存不足：见“调度”。",
            ),
            unit="short",
            width=12,
        ),
        parts.query(running, say("{{service}} runs", "{{service}} 运行")),
        parts.query(waiting, say("{{service}} waits", "{{service}} 等待")),
    )


def _ends(say: Say) -> Iterable[dashboard.Panel]:
    """Certificates and keys: nobody looks at them until they have ended."""
    left = parts.steps((86_400, ORANGE), (14 * 86_400, GREEN), base=RED)
    place = [
        Column(field="namespace", title=say("Namespace", "命名空间"), width=140),
        Column(field="service", title=say("Service", "服务"), width=160),
    ]
    remaining = Column(field="Value", title=say("Time left", "剩余时间"), unit="s", decimals=0, thresholds=left)
    expiry = queries.of_services(metrics.CERTIFICATE_EXPIRY.name)
    yield panels.rows(
        panels.About(
            title=say("Certificates", "证书"),
            description=say(
                "Until the certificate ends that engines serve with. Put a new one into the Secret: it is read again "
                "without a restart.",
                "引擎所用证书的剩余时间。把新证书放入 Secret 即可，无需重启。",
            ),
            unit="none",
            width=12,
            height=6,
            no_value=say("No engine serves with TLS.", "没有引擎启用 TLS。"),
        ),
        [*place, remaining],
        parts.rows(f"{queries.least(expiry)} - time()"),
    )
    keys = queries.of_services(metrics.KEY_EXPIRY.name)
    yield panels.rows(
        panels.About(
            title=say("API keys", "API 密钥"),
            description=say("Keys with an end, and how long they still work.", "有期限的密钥及其剩余时间。"),
            unit="none",
            width=12,
            height=6,
            no_value=say("No key has an end.", "没有设置期限的密钥。"),
        ),
        [*place, Column(field="key", title=say("Key", "密钥")), remaining],
        parts.rows(f"{queries.least(keys, (*queries.SERVICE, 'key'))} - time()"),
    )
