"""Who runs, who waits, who gives way, and what a step costs."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import frame, panels, parts, queries
from grafana.parts import GREEN, ORANGE, RED
from grafana.words import Say
from tidemark_operator.monitoring.rules import recording, services
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

_LIMITS = Thresholds()


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Scheduling", "调度"),
        description=say(
            "How full the batches are, who waits how long for a turn, who loses pages, how long steps take, and who is "
            "refused.",
            "批次有多满、谁等待多久、谁被抢占、每步耗时，以及谁被拒绝。",
        ),
        rows=[
            frame.Row(say("The batch", "批次"), list(_batch(say))),
            frame.Row(say("The queue", "队列"), list(_queue(say))),
            frame.Row(say("Preemption", "抢占"), list(_preemption(say))),
            frame.Row(say("The step", "步"), list(_step(say))),
            frame.Row(say("Guessed tokens", "猜测的 token"), [*_guessed(say), *_guessing(say)]),
            frame.Row(say("Refused and tried again", "拒绝与重试"), list(_refused(say))),
        ],
    )


def _batch(say: Say) -> Iterable[dashboard.Panel]:
    sizes = queries.of_engines(f"{metrics.BATCH_SIZE.name}_bucket")
    yield panels.heat(
        panels.About(
            title=say("Sequences in a step", "每步的序列数"),
            description=say(
                "How many steps had how many sequences. A band at the top: the batch is full. At the bottom with "
                "requests waiting: memory or the soft limit holds them back.",
                "各批大小的步数分布。集中在顶部：批次已满；集中在底部而有请求等待：被内存或软上限限制。",
            ),
            unit="short",
            width=12,
        ),
        parts.buckets(queries.total(queries.rise(sizes), ("le",))),
    )
    yield panels.lines(
        panels.About(
            title=say("How full the batch is", "批次填充率"),
            description=say(
                "Sequences in a step over the most that may run at once (scheduler.maxNumSeqs), over five minutes, of "
                "each service.",
                "一步中的序列数与上限（scheduler.maxNumSeqs）之比，五分钟平均，按服务。",
            ),
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        parts.query(queries.of_services(recording.BATCH_FILL), "{{service}}"),
    )
    tokens = queries.per_second(queries.of_engines(f"{metrics.STEP_TOKENS.name}_sum"))
    yield panels.lines(
        panels.About(
            title=say("Tokens computed", "计算的 token"),
            description=say(
                "A second, by phase: prompts that are taken in, and tokens that are generated.",
                "每秒数量，按阶段：处理的提示与生成的 token。",
            ),
            unit="short",
            width=6,
        ),
        parts.query(queries.total(tokens, ("phase",)), "{{phase}}"),
        stacked=True,
    )


def _queue(say: Say) -> Iterable[dashboard.Panel]:
    yield panels.lines(
        panels.About(
            title=say("Requests that run, and that wait by lane", "运行与各车道等待的请求"),
            description=say(
                "Long prompts wait in the slow lane, so that they do not hold up the others. A lane that only grows "
                "starves: see the oldest wait.",
                "长提示在 slow 车道等待，不阻塞其他请求。只增不减的车道处于饥饿状态：看最久等待。",
            ),
            unit="short",
            width=8,
        ),
        parts.query(queries.total(queries.of_engines(metrics.RUNNING.name), ()), say("running", "运行")),
        parts.query(
            queries.total(queries.of_engines(metrics.WAITING.name), ("lane",)), say("{{lane}} waits", "{{lane}} 等待")
        ),
    )
    yield from _queue_waits(say)


def _queue_waits(say: Say) -> Iterable[dashboard.Panel]:
    buckets = queries.of_engines(f"{metrics.QUEUE_WAIT.name}_bucket")
    yield panels.lines(
        panels.About(
            title=say("Wait for a first turn, by lane", "首次执行前的等待（按车道）"),
            description=say(
                "From arrival to the first step, of those that got a turn: half of them wait less than p50, 95 of 100 "
                "less than p95. Dashed: where the alert begins.",
                "从到达到首次执行（仅统计已执行的）：一半低于 p50，95 % 低于 p95。虚线：告警阈值。",
            ),
            unit="s",
            width=8,
            thresholds=parts.steps((_LIMITS.queue_wait_seconds, ORANGE)),
        ),
        *(
            parts.query(queries.quantile(share, buckets, ("lane",)), f"{{{{lane}}}} {name}")
            for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
        ),
        limits=True,
    )
    yield panels.lines(
        panels.About(
            title=say("Longest wait now", "当前最久等待"),
            description=say(
                "Of those that wait this moment, of each engine. Dashed: where the alert begins.",
                "当前等待者中最久的，按引擎。虚线：告警阈值。",
            ),
            unit="s",
            width=8,
            thresholds=parts.steps((_LIMITS.oldest_wait_seconds, RED)),
        ),
        parts.query(queries.by_engine(queries.of_engines(metrics.OLDEST_WAIT.name)), "{{engine}}"),
        limits=True,
    )
    yield panels.heat(
        panels.About(
            title=say("How waits are spread", "等待时间分布"),
            description=say(
                "How many requests waited how long for their first turn. Two bands: two kinds of requests, often the "
                "two lanes.",
                "首次执行前各等待时长的请求数。两条色带说明有两类请求，通常是两条车道。",
            ),
            unit="s",
            width=24,
        ),
        parts.buckets(queries.total(queries.rise(buckets), ("le",))),
    )


def _preemption(say: Say) -> Iterable[dashboard.Panel]:
    for metric, title, text in (
        (
            metrics.PREEMPTIONS,
            say("Preemptions by mode", "抢占次数（按方式）"),
            say(
                "Sequences that lost their pages, a second: swap copies them to the host and back, recompute computes "
                "them again.",
                "每秒失去页的序列数：swap 换出到主机内存再换回，recompute 重新计算。",
            ),
        ),
        (
            metrics.RESUMES,
            say("Resumes by mode", "恢复次数（按方式）"),
            say(
                "Preempted sequences that run again, a second. Fewer than preemptions for long: they pile up.",
                "每秒恢复运行的被抢占序列。长期少于抢占数说明在积压。",
            ),
        ),
    ):
        rate = queries.per_second(queries.of_engines(metric.name))
        yield panels.lines(
            panels.About(title=title, description=text, unit="ops", width=8),
            parts.query(queries.total(rate, ("mode",)), "{{mode}}"),
        )
    yield panels.lines(
        panels.About(
            title=say("Preemptions for each request", "每个请求的抢占次数"),
            description=say(
                "Over 15 minutes, of each service. Above the dashed line it is a storm: work is thrown away. Lower "
                "scheduler.maxConcurrencySoft, it is hot.",
                "15 分钟内，按服务。高于虚线即为抢占风暴，计算被浪费。降低 scheduler.maxConcurrencySoft（热更新）。",
            ),
            unit="percentunit",
            width=8,
            thresholds=parts.steps((_LIMITS.storm_ratio, ORANGE)),
        ),
        parts.query(queries.of_services(recording.PREEMPTED), "{{service}}"),
        limits=True,
    )


def _step(say: Say) -> Iterable[dashboard.Panel]:
    buckets = queries.of_engines(f"{metrics.STEP_DURATION.name}_bucket")
    yield panels.lines(
        panels.About(
            title=say("Time of a step by phase", "每步各阶段耗时"),
            description=say(
                "schedule decides, execute computes, update hands out tokens. Everybody in the batch waits for the "
                "step: scheduler.targetStepSeconds limits it.",
                "schedule 决策、execute 计算、update 分发 token。批内所有请求都在等这一步：可用 "
                "scheduler.targetStepSeconds 限制。",
            ),
            unit="s",
            width=12,
        ),
        *(
            parts.query(queries.quantile(share, buckets, ("phase",)), f"{{{{phase}}}} {name}")
            for share, name in ((0.5, "p50"), (0.99, "p99"))
        ),
    )
    spent = queries.per_second(queries.of_engines(f"{metrics.STEP_DURATION.name}_sum"))
    yield panels.lines(
        panels.About(
            title=say("Share of the time spent in each phase", "各阶段时间占比"),
            description=say(
                "Of the engines' time, all together; what is left is waiting for work. schedule and update should be "
                "thin.",
                "占引擎总时间的比例，其余为空闲。schedule 与 update 应很小。",
            ),
            unit="percentunit",
            width=12,
            maximum=1,
        ),
        parts.query(f"avg by (phase) ({queries.by_engine(spent, 'phase')})", "{{phase}}"),
        stacked=True,
    )


def _guessed(say: Say) -> Iterable[dashboard.Panel]:
    accepted = _guesses('result="accepted"')
    yield panels.lines(
        panels.About(
            title=say("Tokens from guesses", "来自猜测的 token"),
            description=say(
                "Accepted guesses a second, of each service: so many steps of a request were not needed. 0: nobody "
                "guesses (speculative.method none), or guesses do not pay now.",
                "每秒被接受的猜测，按服务：即省去的步数。为 0：未开启猜测（speculative.method 为 none），"
                "或当前不划算。",
            ),
            unit="short",
            width=6,
        ),
        parts.query(accepted, "{{service}}"),
    )
    yield panels.lines(
        panels.About(
            title=say("Guesses that were right", "猜中率"),
            description=say(
                "Accepted over guessed, of each service. Low, and yet active: a guess costs next to nothing now. Low "
                "for long: this text repeats little, and method none loses nothing.",
                "被接受的与猜测的 token 之比，按服务。低但仍在猜：此时猜测几乎无成本。长期偏低：文本少有重复，"
                "可将 method 设为 none。",
            ),
            unit="percentunit",
            width=6,
            maximum=1,
            no_value=say("Nothing is guessed.", "没有猜测。"),
        ),
        parts.query(queries.share_of(accepted, _guesses('result="proposed"')), "{{service}}"),
    )


def _guesses(matcher: str) -> str:
    return queries.total(queries.per_second(queries.of_engines(metrics.SPECULATIVE_TOKENS.name, matcher)))


def _guessing(say: Say) -> Iterable[dashboard.Panel]:
    yield panels.lines(
        panels.About(
            title=say("Requests that guess", "正在猜测的请求占比"),
            description=say(
                "Share of the running requests whose guesses were checked, over about 50 steps, of each engine. It "
                "falls by itself as the batch fills: each guess then costs its full price.",
                "运行中的请求里有猜测被验证的占比（约 50 步），按引擎。批次变满时会自行下降：此时每个猜测都要付全价。",
            ),
            unit="percentunit",
            width=6,
            maximum=1,
        ),
        parts.query(queries.by_engine(queries.of_engines(metrics.SPECULATIVE_ACTIVE.name)), "{{engine}}"),
    )
    yield panels.lines(
        panels.About(
            title=say("What guesses gain", "猜测的收益"),
            description=say(
                "Tokens a second of the last steps with guesses, as a multiple of what they are predicted to bring "
                "without, of each engine. 1: nothing gained, or nothing guessed yet.",
                "最近有猜测的步的 token 速率，为预计无猜测时的倍数，按引擎。1：没有收益，或尚未猜测。",
            ),
            unit="suffix:x",
            width=6,
            thresholds=parts.steps((1.0, GREEN), base=ORANGE),
        ),
        parts.query(queries.by_engine(queries.of_engines(metrics.SPECULATIVE_GAIN.name)), "{{engine}}"),
        limits=True,
    )


def _refused(say: Say) -> Iterable[dashboard.Panel]:
    reasons = queries.per_second(queries.of_engines(metrics.REJECTED.name))
    yield panels.lines(
        panels.About(
            title=say("Refusals by reason", "拒绝（按原因）"),
            description=say(
                "A second. queue_… , retry_budget and shed are load; context_length_exceeded and the like are the "
                "request's own; unauthorized is a wrong key.",
                "每秒数量。queue_…、retry_budget、shed 属于过载；context_length_exceeded 等是请求自身问题；"
                "unauthorized 为密钥错误。",
            ),
            unit="reqps",
            width=12,
        ),
        parts.query(f"{queries.total(reasons, ('reason',))} > 0 or {_any_load(reasons)}", "{{reason}}"),
        stacked=True,
    )
    yield panels.lines(
        panels.About(
            title=say("Share refused for load, and share tried again", "因过载拒绝与重试的占比"),
            description=say(
                "Over ten minutes, of each service. Retries above the dashed line: clients hammer. They are told "
                "when to come back (Retry-After).",
                "十分钟内，按服务。重试高于虚线说明客户端在反复重试；响应中有 Retry-After 告知何时再来。",
            ),
            unit="percentunit",
            width=6,
            thresholds=parts.steps((_LIMITS.retried_ratio, ORANGE)),
        ),
        parts.query(queries.of_services(recording.REFUSED), say("{{service}} refused", "{{service}} 拒绝")),
        parts.query(queries.of_services(recording.RETRIED), say("{{service}} tried again", "{{service}} 重试")),
        limits=True,
    )
    yield _held_down(say)


def _any_load(reasons: str) -> str:
    """A line at 0 while nobody is refused: `No data` would say that nobody knows."""
    return f'label_replace(sum({reasons}), "reason", "none", "", "")'


def _held_down(say: Say) -> dashboard.Panel:
    shorter = queries.per_second(queries.of_engines(metrics.DEGRADED.name))
    return panels.lines(
        panels.About(
            title=say("Made smaller", "被降级的请求与软上限"),
            description=say(
                "Requests a second whose max_tokens a degrade rule made smaller; and 1 while the operator holds the "
                "limit of running requests down (watermarks.response: tighten).",
                "每秒被降级规则减小 max_tokens 的请求；operator 压低并发上限时为 1（watermarks.response: tighten）。",
            ),
            unit="short",
            width=6,
        ),
        parts.query(queries.total(shorter), say("{{service}} shortened", "{{service}} 缩短")),
        parts.query(queries.of_services(services.TIGHTENED), say("{{service}} held down", "{{service}} 压低")),
    )
