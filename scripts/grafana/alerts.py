"""What is wrong now, in words: alerts that fire with their runbooks, and conditions of services."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grafana_foundation_sdk.models import dashboard

from grafana import links, panels, parts, queries
from grafana.parts import GREEN, ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring import alerts_page
from tidemark_operator.monitoring.rules import catalog, services
from tidemark_operator.monitoring.rules.thresholds import Thresholds

_LIMITS = Thresholds()
_OURS = 'alertname=~"Tidemark.*"'
_FIRING = 'alertstate="firing"'


def all_panels(say: Say) -> Iterable[dashboard.Panel]:
    """The first row of the overview."""
    yield from _counts(say)
    yield _firing(say)
    yield _conditions(say)


def _alert_series(name: str, *matchers: str) -> str:
    """Of the services that were chosen, and what belongs to none: alerts of the operator."""
    chosen = queries.of_services(name, _OURS, *matchers)
    nobodys = queries.of_operators(name, _OURS, 'service=""', *matchers)
    return f"({chosen} or {nobodys})"


def _counts(say: Say) -> Iterable[dashboard.Panel]:
    for severity, title, colour in (
        ("critical", say("Critical alerts", "严重告警"), RED),
        ("warning", say("Warnings", "警告"), ORANGE),
    ):
        firing = _alert_series("ALERTS", _FIRING, f'severity="{severity}"')
        yield panels.number(
            panels.About(
                title=title,
                description=say(
                    "Alerts of Tidemark that fire now. 0 counts only if the numbers to the right say that somebody "
                    "watches: without scrapes nothing fires.",
                    "当前触发的 Tidemark 告警数。只有右侧数字表明抓取正常时，0 才可信：没有抓取就不会有告警。",
                ),
                unit="none",
                width=6,
                height=4,
                thresholds=parts.steps((1, colour)),
            ),
            parts.now(f"count({firing}) or vector(0)"),
        )
    yield _scraped(say, _LIMITS.engine_jobs, say("Engines that answer Prometheus", "可抓取的引擎占比"), place=True)
    yield _scraped(
        say, _LIMITS.operator_jobs, say("Operators that answer Prometheus", "可抓取的 operator 占比"), place=False
    )


def _scraped(say: Say, job: str, title: str, *, place: bool) -> dashboard.Panel:
    matcher = f'job=~"{job}"'
    up = queries.of_services("up", matcher) if place else queries.of_operators("up", matcher)
    return panels.number(
        panels.About(
            title=title,
            description=say(
                f"Targets of job {job} that answered the last scrape, of all. No target at all is shown in words: then "
                "Prometheus is not set up, and everything below is silent.",
                f"任务 {job} 的抓取目标中最近一次成功的占比。若没有任何目标则以文字显示："
                "说明 Prometheus 未配置，下方一切都不可信。",
            ),
            unit="percentunit",
            width=6,
            height=4,
            thresholds=parts.steps((0.999, GREEN), base=RED),
            no_value=say("nothing is scraped", "没有抓取目标"),
        ),
        parts.now(f"avg({up})"),
    )


def _firing(say: Say) -> dashboard.Panel:
    """A row an alert, with its meaning instead of its name, and a link to its runbook."""
    firing = _alert_series("ALERTS", _FIRING)
    since = f"(time() - {_alert_series('ALERTS_FOR_STATE')}) and ignoring (alertstate) {firing}"
    named = f'label_replace({since}, "meaning", "$1", "alertname", "(.*)")'
    runbook = f"${{runbooks:raw}}/{say.language.value}/${{__data.fields.alertname}}.md"
    title = say(
        "Alerts that fire: what, where, since when; click for the runbook",
        "正在触发的告警：内容、位置、持续时间；点击查看运维手册",
    )
    return panels.rows(
        panels.About(
            title=title,
            description=say(
                "One line an alert. Its name leads to its runbook: what it means, how to look, which field to set to "
                "what. The worst first.",
                "每条告警一行。点击告警名打开运维手册：含义、排查命令、应调整的字段。最严重的在最上面。",
            ),
            unit="none",
            width=14,
            height=9,
            no_value=say("Nothing fires.", "没有告警。"),
        ),
        [
            Column(
                field="severity",
                title=say("Severity", "级别"),
                width=90,
                words={"critical": (say("critical", "严重"), RED), "warning": (say("warning", "警告"), ORANGE)},
            ),
            Column(field="meaning", title=say("What is wrong", "问题"), words=_meanings(say)),
            Column(field="namespace", title=say("Namespace", "命名空间"), width=120),
            Column(field="service", title=say("Service", "服务"), width=120, link=links.to(say, "memory")),
            Column(field="Value", title=say("For", "持续"), unit="s", width=90, decimals=0),
            Column(
                field="alertname",
                title=say("Runbook", "运维手册"),
                width=230,
                link=(say("Open the runbook", "打开运维手册"), runbook),
            ),
        ],
        parts.rows(named),
        sort=(say("Severity", "级别"), False),
    )


def _meanings(say: Say) -> Mapping[str, tuple[str, str]]:
    """Alert -> its summary, without templates, as on the page of alerts."""
    found = catalog.alerts_of(catalog.groups(_LIMITS))
    return {alert.name: (say(*alerts_page.meanings(alert)), "") for alert in found}


def _conditions(say: Say) -> dashboard.Panel:
    """What the operator says itself, whether or not an alert waits for it to last."""
    named = f'label_replace({queries.of_services(services.REASON)}, "meaning", "$1", "condition", "(.*)")'
    return panels.rows(
        panels.About(
            title=say("Conditions that are not as they should be", "异常的状态条件"),
            description=say(
                "As the operator reports them on the InferenceService, with no delay for alerting. The whole sentence: "
                "`tidemark status SERVICE -n NAMESPACE`, or `kubectl describe inferenceservice`.",
                "来自 InferenceService 的状态条件，没有告警的等待时间。完整说明："
                "`tidemark status SERVICE -n NAMESPACE` 或 `kubectl describe inferenceservice`。",
            ),
            unit="none",
            width=10,
            height=9,
            no_value=say(
                "Every condition is as it should be, or there is no operator.", "所有条件正常，或没有 operator。"
            ),
        ),
        [
            Column(field="namespace", title=say("Namespace", "命名空间"), width=110),
            Column(field="service", title=say("Service", "服务"), width=110, link=links.to(say, "memory")),
            Column(field="meaning", title=say("What is wrong", "问题"), words=_condition_words(say)),
            Column(field="reason", title=say("Reason", "原因"), width=150),
            Column(field="condition", title=say("Condition", "条件"), width=120),
        ],
        parts.rows(named),
    )


def _condition_words(say: Say) -> Mapping[str, tuple[str, str]]:
    """Condition -> what it means that it is not as it should be."""
    return {
        "Ready": (say("Traffic is not served as asked for", "未按要求提供服务"), ""),
        "Available": (say("No engine takes requests", "没有引擎接受请求"), ""),
        "ModelReady": (say("The model cannot be found or loaded", "模型找不到或无法加载"), ""),
        "CapacityFit": (say("It does not fit the memory it was given", "所给内存放不下"), ""),
        "ConfigApplied": (say("It runs another configuration than the manifest", "实际配置与清单不一致"), ""),
        "MonitoringReady": (say("Its monitoring objects could not be made", "监控对象未能创建"), ""),
        "Degraded": (say("Some of its engines do not serve", "部分引擎不可用"), ""),
        "EvaluationPassed": (say("Accuracy was not shown to be within its limits", "精度评估未通过或尚无结果"), ""),
        "MemoryPressure": (say("A line of KV memory is crossed", "KV 内存越过水位线"), ""),
    }
