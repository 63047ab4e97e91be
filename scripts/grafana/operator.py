"""The operator itself, and what it has done with services."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import frame, panels, parts, queries
from grafana.parts import GREEN, ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules import services
from tidemark_operator.monitoring.rules.alerts import operator as recorded
from tidemark_operator.monitoring.rules.thresholds import Thresholds

_LIMITS = Thresholds()


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Operator", "Operator"),
        description=say(
            "Whether the operator works, hears of changes and reaches the API server; and services' replicas, "
            "restarts, rollbacks and evaluations.",
            "Operator 是否工作、能否收到变化、能否访问 API server；以及各服务的副本、重启、回滚与评估。",
        ),
        rows=[
            frame.Row(say("Is it at work", "是否在工作"), list(_state(say))),
            frame.Row(say("Passes over services", "调谐"), list(_passes(say))),
            frame.Row(say("The API server", "访问 API server"), list(_api(say))),
            frame.Row(say("Services", "服务"), list(_services(say))),
        ],
        with_pods=False,
    )


def _state(say: Say) -> Iterable[dashboard.Panel]:
    leaders = queries.of_operators(operator_metrics.LEADER.name)
    yield panels.number(
        panels.About(
            title=say("Processes that hold the lease", "持有租约的进程"),
            description=say(
                "1 is right. 0: nothing is repaired or rolled out. More: two work against each other.",
                "应为 1。0：无人修复或发布；大于 1：相互冲突。",
            ),
            unit="none",
            width=6,
            height=5,
            thresholds=parts.steps((1, GREEN), (2, RED), base=RED),
            no_value=say("no operator is scraped", "没有抓取到 operator"),
        ),
        parts.now(f"sum({leaders})"),
    )
    waiting = queries.of_operators(operator_metrics.QUEUE_DEPTH.name)
    yield panels.number(
        panels.About(
            title=say("Services that wait for a pass", "等待调谐的服务"),
            description=say(
                "Those of a later time included. Growing without end: passes are too slow.",
                "含稍后执行的。持续增长说明调谐过慢。",
            ),
            unit="none",
            width=6,
            height=5,
        ),
        parts.now(f"sum({waiting})"),
    )
    age = queries.largest(queries.of_operators(operator_metrics.WATCH_AGE.name), ("kind",))
    yield panels.lines(
        panels.About(
            title=say("Since a watch was last known to work", "距上次确认 watch 正常"),
            description=say(
                "By kind of object. Above the dashed line the operator is deaf for this kind.",
                "按对象种类。高于虚线说明收不到该类对象的变化。",
            ),
            unit="s",
            width=12,
            height=5,
            thresholds=parts.steps((_LIMITS.watch_seconds, RED)),
        ),
        parts.query(age, "{{kind}}"),
    )


def _passes(say: Say) -> Iterable[dashboard.Panel]:
    passes = queries.per_second(queries.of_operators(operator_metrics.RECONCILES.name))
    yield panels.lines(
        panels.About(
            title=say("Passes by result", "调谐次数（按结果）"),
            description=say(
                "A second. done: as wanted, or changed so; gone: the service was deleted; failed: tried again later.",
                "每秒数量。done：完成；gone：服务已删除；failed：失败，稍后重试。",
            ),
            unit="ops",
            width=8,
            overrides=[parts.coloured("failed", RED), parts.coloured("done", GREEN)],
        ),
        parts.query(queries.total(passes, ("result",)), "{{result}}"),
        stacked=True,
    )
    buckets = queries.of_operators(f"{operator_metrics.RECONCILE_DURATION.name}_bucket")
    yield panels.lines(
        panels.About(
            title=say("Time of a pass", "单次调谐耗时"),
            description=say(
                "Over one service. Dashed: where the alert begins for p99.", "针对一个服务。虚线：p99 的告警阈值。"
            ),
            unit="s",
            width=8,
            thresholds=parts.steps((_LIMITS.reconcile_seconds, ORANGE)),
        ),
        parts.query(queries.quantile(0.5, buckets), "p50"),
        parts.query(queries.of_operators(recorded.DURATION_P99) + " >= 0", "p99"),
        limits=True,
    )
    yield panels.lines(
        panels.About(
            title=say("Share that fails", "失败占比"),
            description=say(
                "Over ten minutes: passes over services, and requests to the API server. Dashed: where alerts begin.",
                "十分钟内：调谐与 API 请求的失败占比。虚线：告警阈值。",
            ),
            unit="percentunit",
            width=8,
            thresholds=parts.steps((_LIMITS.reconcile_failed_ratio, RED)),
        ),
        parts.query(queries.of_operators(recorded.FAILED), say("passes", "调谐")),
        parts.query(queries.of_operators(recorded.API_FAILED), say("API requests", "API 请求")),
        limits=True,
    )


def _api(say: Say) -> Iterable[dashboard.Panel]:
    asked = queries.per_second(queries.of_operators(operator_metrics.API_REQUESTS.name))
    for label, title, text in (
        (
            "code",
            say("Requests by answer", "请求（按状态码）"),
            say("A second; 0: no answer; 409 and 404 are usual work.", "每秒数量；0：无应答；409、404 属正常。"),
        ),
        (
            "kind",
            say("Requests by kind", "请求（按对象种类）"),
            say("A second. A kind that stands out is written again and again.", "每秒数量。某一类突出说明在反复写入。"),
        ),
    ):
        yield panels.lines(
            panels.About(title=title, description=text, unit="reqps", width=8),
            parts.query(queries.total(asked, (label,)), f"{{{{{label}}}}}"),
            stacked=True,
        )
    held = queries.largest(queries.of_operators(operator_metrics.CACHED_OBJECTS.name), ("kind",))
    dropped = queries.rise(queries.of_operators(operator_metrics.EVENTS_DROPPED.name))
    yield panels.lines(
        panels.About(
            title=say("Objects in memory, events not recorded", "缓存对象与未记录的事件"),
            description=say(
                "Objects held by kind. Events that were dropped between two points: the API server refused or too many "
                "came at once.",
                "按种类缓存的对象数。相邻两点间丢弃的事件：API server 拒绝或过多。",
            ),
            unit="short",
            width=8,
        ),
        parts.query(held, "{{kind}}"),
        parts.query(queries.total(dropped, ("reason",)), say("dropped: {{reason}}", "丢弃：{{reason}}")),
    )


def _services(say: Say) -> Iterable[dashboard.Panel]:
    states = ("wanted", "ready", "updated")
    titles = (say("Wanted", "期望"), say("Ready", "就绪"), say("Updated", "已更新"))
    place = [
        Column(field="namespace", title=say("Namespace", "命名空间"), width=130),
        Column(field="service", title=say("Service", "服务")),
    ]
    yield panels.rows(
        panels.About(
            title=say("Pods of each service", "各服务的 pod"),
            description=say(
                "wanted: as the manifest asks; ready: they answer; updated: they have the current spec.",
                "期望：清单要求；就绪：能应答；已更新：使用当前配置。",
            ),
            unit="none",
            width=10,
            height=9,
            no_value=say("No service, or no operator.", "没有服务，或没有 operator。"),
        ),
        [
            *place,
            *(
                Column(field=f"Value #{letter}", title=title, width=90)
                for letter, title in zip("ABC", titles, strict=True)
            ),
        ],
        *(parts.rows(queries.largest(queries.of_services(services.REPLICAS, f'state="{state}"'))) for state in states),
    )
    yield panels.lines(
        panels.About(
            title=say("Engines started again, revisions rolled back", "引擎重启与版本回滚"),
            description=say(
                "Restarts within an hour, rollbacks within 15 minutes, of each service.",
                "各服务一小时内的引擎重启与十五分钟内的回滚。",
            ),
            unit="short",
            width=7,
            height=9,
        ),
        parts.query(queries.of_services(services.ENGINE_RESTARTS), say("{{service}} restarts", "{{service}} 重启")),
        parts.query(queries.of_services(services.ROLLBACKS), say("{{service}} rollbacks", "{{service}} 回滚")),
    )
    yield _evaluations(say, place)


def _evaluations(say: Say, place: list[Column]) -> dashboard.Panel:
    passed = {"1": (say("passed", "通过"), GREEN), "0": (say("FAILED", "未通过"), RED)}
    age = f"time() - {queries.of_services(services.EVALUATION_TIME)}"
    overdue = f"({age}) / {queries.of_services(services.EVALUATION_INTERVAL)}"
    return panels.rows(
        panels.About(
            title=say("Evaluations of quantized memory", "量化精度评估"),
            description=say(
                "Services with evaluation.schedule: how long ago the last one ended, as a share of the longest time "
                "between two of the schedule, and whether its limits were kept.",
                "设置了 evaluation.schedule 的服务：上次评估距今时间、占计划最长间隔的比例，以及是否达标。",
            ),
            unit="none",
            width=7,
            height=9,
            no_value=say("No service is evaluated by a schedule.", "没有按计划评估的服务。"),
        ),
        [
            *place,
            Column(field="Value #A", title=say("Ago", "距今"), unit="s", width=80, decimals=0),
            Column(
                field="Value #B",
                title=say("Of interval", "占间隔"),
                unit="percentunit",
                width=80,
                decimals=0,
                thresholds=parts.steps((1.5, ORANGE)),
            ),
            Column(field="Value #C", title=say("Result", "结果"), width=80, words=passed),
        ],
        parts.rows(age),
        parts.rows(overdue),
        parts.rows(queries.largest(queries.of_services(services.EVALUATION_PASSED))),
    )
