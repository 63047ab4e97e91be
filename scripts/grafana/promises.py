"""Service level objectives: how fast their budgets burn, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import panels, parts, queries
from grafana.parts import GREEN, ORANGE, RED
from grafana.words import Say
from tidemark_operator.monitoring.rules import promql, slo
from tidemark_operator.monitoring.rules.thresholds import DAY, HOUR, MINUTE, Thresholds

_LIMITS = Thresholds()


def all_panels(say: Say) -> Iterable[dashboard.Panel]:
    for seconds, factor in ((HOUR, slo.FAST[0].factor), (6 * HOUR, slo.FAST[1].factor)):
        window = promql.duration(seconds)
        yield panels.lines(
            panels.About(
                title=say(f"How fast budgets burn, over {window}", f"预算消耗速度（{window}）"),
                description=say(
                    "1: the budget of bad events lasts exactly a month. Above the dashed line, and over the shorter "
                    "window too, somebody is woken. Promises: requests do not fail, first tokens come within "
                    f"{_LIMITS.first_token_seconds:g} s, further tokens within {_LIMITS.inter_token_seconds:g} s.",
                    "1 表示错误预算正好用一个月。超过虚线且短窗口也超过时会叫醒值班人员。承诺：请求不失败；首 token 在 "
                    f"{_LIMITS.first_token_seconds:g} s 内；后续 token 间隔在 {_LIMITS.inter_token_seconds:g} s 内。",
                ),
                unit="short",
                width=8,
                thresholds=parts.steps((factor, RED)),
            ),
            *_burns(say, seconds),
            limits=True,
        )
    yield _left(say)
    yield _events(say)


def _left(say: Say) -> dashboard.Panel:
    return panels.bars(
        panels.About(
            title=say("Left of the budget, over three days", "三天内剩余预算"),
            description=say(
                "1: nothing bad happened. 0: as much as is allowed. Below 0, if it goes on, the month's promise is "
                "broken.",
                "1：没有坏事件；0：正好用完允许量；低于 0：若持续，本月承诺将被打破。",
            ),
            unit="percentunit",
            width=8,
            maximum=1,
            thresholds=parts.steps((0, ORANGE), (0.5, GREEN), base=RED),
        ),
        *(
            parts.now(
                f"1 - {_share(each, 3 * DAY)} / {promql.number(each.budget)}", f"{{{{service}}}} {_name(say, each)}"
            )
            for each in slo.slos(_LIMITS)
        ),
    )


def _events(say: Say) -> dashboard.Panel:
    return panels.lines(
        panels.About(
            title=say("Events that are judged", "参与评判的事件"),
            description=say(
                "A second: requests, first tokens, further tokens. Below one request a minute no share is judged.",
                "每秒数量：请求、首 token、后续 token。每分钟不足一个请求时不评判。",
            ),
            unit="short",
            width=24,
            height=6,
        ),
        parts.query(queries.of_services(slo.event_rate(5 * MINUTE)), "{{service}} {{slo}}"),
    )


def _burns(say: Say, seconds: int) -> Iterable[parts.Query]:
    for each in slo.slos(_LIMITS):
        burn = f"{_share(each, seconds)} / {promql.number(each.budget)}"
        yield parts.query(burn, f"{{{{service}}}} {_name(say, each)}")


def _share(each: slo.Slo, seconds: int) -> str:
    return queries.of_services(slo.bad_share(seconds), f'slo="{each.name}"')


def _name(say: Say, each: slo.Slo) -> str:
    return {
        slo.AVAILABILITY: say("availability", "可用性"),
        slo.FIRST_TOKEN: say("first token", "首 token"),
        slo.INTER_TOKEN: say("between tokens", "token 间隔"),
    }[each.name]
