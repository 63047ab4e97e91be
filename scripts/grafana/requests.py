"""What clients feel: how many requests, how they end, how long they take, and whether the promises are kept."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import frame, panels, parts, promises, queries
from grafana.parts import ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

_LIMITS = Thresholds()
_SHARES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Requests", "请求"),
        description=say(
            "How many requests there are and how they end, how long clients wait, who sends them, and how fast the "
            "budgets of the promises burn.",
            "请求量与结果、客户端的等待时间、请求来源，以及各承诺（SLO）的错误预算消耗速度。",
        ),
        rows=[
            frame.Row(say("Traffic", "流量"), list(_traffic(say))),
            frame.Row(say("What clients wait for", "客户端的等待"), list(_waits(say))),
            frame.Row(say("Promises", "承诺（SLO）"), list(promises.all_panels(say))),
            frame.Row(say("Who sends", "请求来源"), list(_keys(say))),
        ],
    )


def _traffic(say: Say) -> Iterable[dashboard.Panel]:
    ended = queries.per_second(queries.of_engines(metrics.REQUESTS.name))
    yield panels.lines(
        panels.About(
            title=say("Requests ended, by how", "完成的请求（按结果）"),
            description=say(
                "A second. stop and length: good ends; abort: the client went away; rejected: refused at once or "
                "from the queue; failed and timeout break the promise.",
                "每秒数量。stop、length：正常结束；abort：客户端断开；rejected：被拒绝；failed、timeout：违背承诺。",
            ),
            unit="reqps",
            width=8,
            overrides=[parts.coloured("failed", RED), parts.coloured("timeout", ORANGE)],
        ),
        parts.query(queries.total(ended, ("outcome",)), "{{outcome}}"),
        stacked=True,
    )
    yield panels.lines(
        panels.About(
            title=say("Requests ended, by service", "完成的请求（按服务）"),
            description=say("A second, however they ended.", "每秒数量，不论结果。"),
            unit="reqps",
            width=8,
        ),
        parts.query(queries.total(ended), "{{service}}"),
        stacked=True,
    )
    prompts = queries.per_second(queries.of_engines(metrics.PROMPT_TOKENS.name))
    generated = queries.per_second(queries.of_engines(metrics.GENERATED_TOKENS.name))
    yield panels.lines(
        panels.About(
            title=say("Tokens", "token 吞吐"),
            description=say(
                "Tokens a second: of prompts that were accepted, and generated for clients.",
                "每秒 token：已接受的提示，以及为客户端生成的。",
            ),
            unit="short",
            width=8,
        ),
        parts.query(queries.total(prompts), say("{{service}} prompts", "{{service}} 提示")),
        parts.query(queries.total(generated), say("{{service}} generated", "{{service}} 生成")),
    )


def _waits(say: Say) -> Iterable[dashboard.Panel]:
    shown = (
        (
            metrics.FIRST_TOKEN,
            say("Time to the first token", "首 token 时间"),
            say(
                "Arrival to first token: the wait for a turn and the prompt. Dashed: what is promised.",
                "从到达到首个 token：排队加提示处理。虚线：承诺值。",
            ),
            parts.steps((_LIMITS.first_token_seconds, RED)),
        ),
        (
            metrics.INTER_TOKEN,
            say("Time between tokens", "token 间隔"),
            say(
                "Of one choice: how fast the text flows. Dashed: what is promised.",
                "同一回答中相邻 token 的间隔，即文字流出的速度。虚线：承诺值。",
            ),
            parts.steps((_LIMITS.inter_token_seconds, RED)),
        ),
        (
            metrics.REQUEST_DURATION,
            say("Whole request", "整个请求耗时"),
            say(
                "Arrival to last byte handed over; long answers take long, so look at the others first.",
                "从到达到交付最后一个字节。回答长则耗时长，先看另外两个指标。",
            ),
            parts.steps(),
        ),
    )
    for metric, title, text, limit in shown:
        buckets = queries.of_engines(f"{metric.name}_bucket")
        yield panels.lines(
            panels.About(title=title, description=text, unit="s", width=8, thresholds=limit),
            *(parts.query(queries.quantile(share, buckets), name) for share, name in _SHARES),
            limits=len(limit.steps) > 1,
        )
    first = queries.of_engines(f"{metrics.FIRST_TOKEN.name}_bucket")
    yield panels.heat(
        panels.About(
            title=say("How times to the first token are spread", "首 token 时间分布"),
            description=say(
                "How many requests waited how long for their first token. A second band above: queueing.",
                "各首 token 时间的请求数。上方出现第二条色带说明在排队。",
            ),
            unit="s",
            width=24,
        ),
        parts.buckets(queries.total(queries.rise(first), ("le",))),
    )


def _keys(say: Say) -> Iterable[dashboard.Panel]:
    ended = queries.per_second(queries.of_engines(metrics.KEY_REQUESTS.name))
    labels = (*queries.SERVICE, "key")
    bad = queries.per_second(queries.of_engines(metrics.KEY_REQUESTS.name, 'outcome!~"stop|length"'))
    yield panels.lines(
        panels.About(
            title=say("Requests ended, by API key", "完成的请求（按 API 密钥）"),
            description=say(
                "The ten keys with the most, a second, by their names; without a name: no key was needed.",
                "请求最多的十个密钥（按名称），每秒数量；无名称表示未使用密钥。",
            ),
            unit="reqps",
            width=12,
        ),
        parts.query(f"topk(10, {queries.total(ended, labels)})", "{{service}} {{key}}"),
        stacked=True,
    )
    yield _each_key(say, ended, bad)


def _each_key(say: Say, ended: str, bad: str) -> dashboard.Panel:
    labels = (*queries.SERVICE, "key")
    tokens = queries.per_second(queries.of_engines(metrics.KEY_TOKENS.name))
    return panels.rows(
        panels.About(
            title=say(
                "Each key: requests, tokens, and the share without a good end", "各密钥：请求、token 与非正常结束占比"
            ),
            description=say(
                "Now. A high share: this client goes away early, is refused, or sends what cannot be served.",
                "当前值。占比高说明该客户端提前断开、被拒绝，或发送了无法处理的请求。",
            ),
            unit="none",
            width=12,
            no_value=say("Nobody has asked yet.", "还没有请求。"),
        ),
        [
            Column(field="namespace", title=say("Namespace", "命名空间"), width=120),
            Column(field="service", title=say("Service", "服务"), width=120),
            Column(field="key", title=say("Key", "密钥")),
            Column(field="Value #A", title=say("Requests", "请求"), unit="reqps", width=110, decimals=3),
            Column(field="Value #B", title=say("Tokens/s", "每秒 token"), unit="short", width=100, decimals=1),
            Column(
                field="Value #C",
                title=say("No good end", "非正常结束"),
                unit="percentunit",
                width=120,
                decimals=1,
                thresholds=parts.steps((0.05, ORANGE), (0.5, RED)),
            ),
        ],
        parts.rows(queries.total(ended, labels)),
        parts.rows(queries.total(tokens, labels)),
        parts.rows(queries.share_of(queries.total(bad, labels), queries.total(ended, labels))),
    )
