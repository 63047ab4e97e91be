"""One row a service: its conditions, and the numbers that people ask for."""

from __future__ import annotations

import dataclasses

from grafana_foundation_sdk.models import dashboard

from grafana import levels, links, panels, parts, queries
from grafana.parts import GREEN, ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring.rules import conditions, recording
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

_LIMITS = Thresholds()
_Cell = tuple[str, Column]
"""Expression and column; its field is the letter of the query."""


def panel(say: Say) -> dashboard.Panel:
    cells = [*_states(say), *_memory_and_waits(say), *_tokens(say), *_traffic(say)]
    letters = "ABCDEFGHIJKLMNOP"[: len(cells)]
    return panels.rows(
        panels.About(
            title=say("Each service: its state and its numbers", "各服务的状态与关键指标"),
            description=say(
                "Green is as it should be. Conditions come from the operator, numbers from the engines; an empty cell "
                "has no value: no traffic, or no operator. A service leads to its memory.",
                "绿色表示正常。状态来自 operator，数值来自引擎；空白表示无数据：没有流量或没有 operator。"
                "点击服务名打开内存仪表盘。",
            ),
            unit="none",
            width=24,
            height=9,
            no_value=say("Prometheus has no service of Tidemark.", "Prometheus 中没有 Tidemark 服务。"),
        ),
        [
            Column(field="namespace", title=say("Namespace", "命名空间"), width=120),
            Column(field="service", title=say("Service", "服务"), width=140, link=links.to(say, "memory")),
            *(
                dataclasses.replace(column, field=f"Value #{letter}")
                for letter, (_, column) in zip(letters, cells, strict=True)
            ),
        ],
        *(parts.rows(queries.largest(expr)) for expr, _ in cells),
    )


def _states(say: Say) -> list[_Cell]:
    good = {"1": (say("yes", "是"), GREEN), "0": (say("NO", "否"), RED)}
    bad = {"0": (say("no", "否"), GREEN), "1": (say("YES", "是"), RED)}
    shown = (
        ("Ready", say("Ready", "就绪"), good),
        ("Available", say("Available", "可用"), good),
        ("ConfigApplied", say("Config applied", "配置生效"), good),
        ("CapacityFit", say("Fits", "容量匹配"), good),
        ("MemoryPressure", say("Pressure", "内存压力"), bad),
    )
    return [(_condition(name), Column(field="", title=title, width=100, words=words)) for name, title, words in shown]


def _condition(name: str) -> str:
    return queries.of_services(conditions.CONDITION, f'condition="{name}"', 'status="True"')


def _memory_and_waits(say: Say) -> list[_Cell]:
    return [
        (
            queries.of_services(recording.KV_USAGE),
            Column(
                field="",
                title=say("KV use", "KV 用量"),
                unit="percentunit",
                decimals=0,
                thresholds=parts.steps((levels.QUEUE, ORANGE), (levels.PREEMPT, RED)),
            ),
        ),
        (
            queries.seen(queries.of_services(recording.QUEUE_WAIT_P95)),
            _late(say("Queue wait p95", "排队 p95"), _LIMITS.queue_wait_seconds),
        ),
    ]


def _tokens(say: Say) -> list[_Cell]:
    return [
        (
            queries.seen(queries.of_services(recording.FIRST_TOKEN_P95)),
            _late(say("First token p95", "首 token p95"), _LIMITS.first_token_seconds),
        ),
        (
            queries.seen(queries.of_services(recording.INTER_TOKEN_P95)),
            _late(say("Between tokens p95", "token 间隔 p95"), _LIMITS.inter_token_seconds),
        ),
    ]


def _late(title: str, limit_seconds: float) -> Column:
    return Column(field="", title=title, unit="s", thresholds=parts.steps((limit_seconds, ORANGE)))


def _traffic(say: Say) -> list[_Cell]:
    ended = queries.total(queries.per_second(queries.of_services(metrics.REQUESTS.name)))
    refused = Column(
        field="",
        title=say("Refused", "拒绝占比"),
        unit="percentunit",
        decimals=1,
        thresholds=parts.steps((_LIMITS.refused_ratio, ORANGE)),
    )
    return [
        (ended, Column(field="", title=say("Requests ended", "完成请求"), unit="reqps", decimals=2)),
        (queries.of_services(recording.REFUSED), refused),
    ]
