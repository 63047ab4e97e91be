"""Where KV memory stands against its lines, what lies in it, and whether the plan was right."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import frame, panels, parts, queries
from grafana.parts import BLUE, GREEN, GREY, ORANGE, RED, Column
from grafana.words import Say
from tidemark_operator.monitoring.rules import promql, recording
from tidemark_operator.monitoring.rules.thresholds import Thresholds
from tidemark_runtime.contract import metrics

_LIMITS = Thresholds()
_SLAB = 'state=~"used|cached|free"'
_AN_ENGINE = promql.by(promql.ENGINE)


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Memory", "内存"),
        description=say(
            "How full the pages of keys and values are, against both lines; what happens under pressure; what memory "
            "was planned and what was measured.",
            "KV 页相对两条水位线的用量、压力之下发生了什么、计划内存与实测内存。",
        ),
        rows=[
            frame.Row(say("How full it is", "用量"), list(_usage(say))),
            frame.Row(say("Under pressure", "压力之下"), list(_pressure(say))),
            frame.Row(say("Prefix cache and waste", "前缀缓存与浪费"), list(_cache(say))),
            frame.Row(say("Planned and measured", "计划与实测"), list(_plan(say))),
        ],
    )


def _usage(say: Say) -> Iterable[dashboard.Panel]:
    drawn = (("queue", say("queue line", "排队线")), ("preempt", say("preempt line", "抢占线")))
    colours = [parts.dashed("B", ORANGE), parts.dashed("C", RED)]
    slab = f"sum by {_AN_ENGINE} ({queries.of_engines(metrics.KV_PAGES.name, _SLAB)})"
    yield panels.lines(
        panels.About(
            title=say("Pages by state", "各状态的页数"),
            description=say(
                "Pages of all engines shown. used: held by sequences; cached: held by nobody, given away when needed; "
                "free. Dashed: where the lines lie. Only used pages count against them.",
                "所示引擎的页数。used：序列占用；cached：无人占用，需要时让出；free：空闲。"
                "虚线：水位线位置，只与 used 相比。",
            ),
            unit="short",
            width=12,
            height=9,
            overrides=[
                *colours,
                *(parts.coloured(name, colour) for name, colour in (("used", BLUE), ("cached", GREEN), ("free", GREY))),
            ],
        ),
        parts.query(queries.total(queries.of_engines(metrics.KV_PAGES.name, _SLAB), ("state",)), "{{state}}"),
        *(parts.query(f"sum({_level(level)} * on {_AN_ENGINE} {slab})", legend) for level, legend in drawn),
        stacked=True,
    )
    yield panels.lines(
        panels.About(
            title=say("KV use of each engine", "各引擎的 KV 用量"),
            description=say(
                "Used pages over all pages. Above the queue line new requests wait although pages remain; above the "
                "preempt line nobody starts, and sequences may lose their pages. Lines: the lowest of these engines.",
                "已用页占全部页的比例。越过排队线，仍有空页但新请求等待；越过抢占线，无新请求开始，序列可能失去页。"
                "虚线取所示引擎的最低值。",
            ),
            unit="percentunit",
            width=12,
            height=9,
            maximum=1,
            overrides=colours,
        ),
        parts.query(queries.by_engine(queries.of_engines(metrics.KV_USAGE.name)), "{{engine}}"),
        *(parts.query(f"min({_level(level)})", legend) for level, legend in drawn),
    )
    yield _by_dtype(say)
    yield _token_cost(say)
    yield _crossed(say)


def _level(level: str) -> str:
    """Without its label, so that it can be multiplied with what has none."""
    return f"max by {_AN_ENGINE} ({queries.line(level)})"


def _by_dtype(say: Say) -> dashboard.Panel:
    return panels.lines(
        panels.About(
            title=say("KV memory by dtype", "KV 内存（按数据类型）"),
            description=say(
                "Size of the slab, by the dtype of what lies there. Several at once: a precision map keeps some layers "
                "or heads in another one.",
                "KV 内存池大小，按所存数据类型。同时出现多种，说明精度映射让部分层或头使用另一种类型。",
            ),
            unit="bytes",
            width=8,
        ),
        parts.query(queries.total(queries.of_engines(metrics.KV_BYTES.name), ("dtype",)), "{{dtype}}"),
        stacked=True,
    )


def _token_cost(say: Say) -> dashboard.Panel:
    cost = queries.largest(queries.of_engines(metrics.KV_TOKEN_BYTES.name), (*queries.SERVICE, "precision"))
    return panels.lines(
        panels.About(
            title=say("What a token costs", "每个 token 的 KV 内存"),
            description=say(
                "stored: as it is kept, scales included; 16bit: what it would cost with two bytes for each element. "
                "The difference is what quantized KV memory saves.",
                "stored：实际存储（含缩放系数）；16bit：每元素两字节时的开销。差值即量化 KV 节省的内存。",
            ),
            unit="bytes",
            width=8,
        ),
        parts.query(cost, "{{service}} {{precision}}"),
    )


def _crossed(say: Say) -> dashboard.Panel:
    return panels.lines(
        panels.About(
            title=say("Share of the time above a line", "越线时间占比"),
            description=say(
                "Of the last five minutes, for each engine. Alerts begin at the dashed share: what flickers is no "
                "pressure.",
                "最近五分钟内每个引擎越线的时间占比。达到虚线处才会告警：偶尔越线不算压力。",
            ),
            unit="percentunit",
            width=8,
            maximum=1,
            thresholds=parts.steps((_LIMITS.crossed_ratio, ORANGE)),
        ),
        parts.query(f"{queries.with_engine(queries.of_engines(recording.LINE_CROSSED))}", "{{engine}} {{level}}"),
        limits=True,
    )


def _pressure(say: Say) -> Iterable[dashboard.Panel]:
    yield panels.lines(
        panels.About(
            title=say("Evictions", "缓存页驱逐"),
            description=say(
                "Cached pages given to others because no free ones were left, a second. Many: the prefix cache has no "
                "room to be of use.",
                "每秒因没有空闲页而让出的缓存页。很多说明前缀缓存没有发挥余地。",
            ),
            unit="ops",
            width=8,
        ),
        parts.query(
            queries.by_engine(queries.per_second(queries.of_engines(metrics.PAGE_EVICTIONS.name))), "{{engine}}"
        ),
    )
    copied = queries.per_second(queries.of_engines(metrics.SWAP_BYTES.name))
    yield panels.lines(
        panels.About(
            title=say("Copied to and from swap space", "换入换出流量"),
            description=say(
                "Bytes a second. out: sequences that lost their pages; in: those that run again.",
                "每秒字节数。out：被抢占序列的页换出；in：恢复运行时换入。",
            ),
            unit="Bps",
            width=8,
        ),
        parts.query(queries.total(copied, ("direction",)), "{{direction}}"),
    )
    swapped = queries.of_engines(metrics.KV_PAGES.name, 'state="swapped"')
    yield panels.lines(
        panels.About(
            title=say("Pages in swap space", "换出的页"),
            description=say("Of each engine; they lie in the host's memory.", "各引擎存放在主机内存中的页。"),
            unit="short",
            width=8,
        ),
        parts.query(queries.by_engine(swapped), "{{engine}}"),
    )


def _cache(say: Say) -> Iterable[dashboard.Panel]:
    yield panels.lines(
        panels.About(
            title=say("Found in the prefix cache", "前缀缓存命中率"),
            description=say(
                "Share of the prompts' tokens that were not computed again, of each service.",
                "各服务中无需重算的提示 token 占比。",
            ),
            unit="percentunit",
            width=8,
            maximum=1,
        ),
        parts.query(queries.of_services(recording.PREFIX_HIT), "{{service}}"),
    )
    tokens = queries.per_second(queries.of_engines(metrics.PREFIX_TOKENS.name))
    yield panels.lines(
        panels.About(
            title=say("Tokens found and computed", "命中与计算的 token"),
            description=say(
                "Known tokens of sequences that got a turn, a second: found in the cache, or computed.",
                "获得执行机会的序列每秒的已知 token：命中缓存（hit）或需计算（miss）。",
            ),
            unit="short",
            width=8,
            overrides=[parts.coloured("hit", GREEN), parts.coloured("miss", ORANGE)],
        ),
        parts.query(queries.total(tokens, ("result",)), "{{result}}"),
        stacked=True,
    )
    yield panels.lines(
        panels.About(
            title=say("Fragmentation", "碎片率"),
            description=say(
                "Share of the places in used pages that hold no token, of each service's worst engine. High with short "
                "requests; a smaller kvCache.blockSize lowers it (restart).",
                "已用页中没有 token 的位置占比（各服务最差的引擎）。短请求多时偏高；"
                "减小 kvCache.blockSize 可降低（需重启）。",
            ),
            unit="percentunit",
            width=8,
            maximum=1,
        ),
        parts.query(queries.of_services(recording.KV_FRAGMENTATION), "{{service}}"),
    )


def _plan(say: Say) -> Iterable[dashboard.Panel]:
    labels = (*queries.ENGINE, "part")
    planned = queries.total(queries.with_engine(queries.of_engines(metrics.MEMORY_PLANNED_BYTES.name)), labels)
    measured = queries.total(queries.with_engine(queries.of_engines(metrics.MEMORY_BYTES.name)), labels)
    over = parts.steps((_LIMITS.plan_excess_ratio, RED))
    yield panels.rows(
        panels.About(
            title=say(
                "Each engine's memory by part: planned, and measured at its start", "各引擎各部分内存：计划与启动时实测"
            ),
            description=say(
                "The plan comes from the model's files and the settings before anything is loaded. Red: measured more "
                "than 10 % above the plan.",
                "计划值在加载之前由模型文件与设置算出。红色：实测超出计划 10 % 以上。",
            ),
            unit="bytes",
            width=14,
            height=10,
            no_value=say("No engine has loaded a model.", "没有已加载模型的引擎。"),
        ),
        [
            Column(field="service", title=say("Service", "服务"), width=140),
            Column(field="engine", title=say("Engine", "引擎")),
            Column(field="part", title=say("Part", "部分"), width=110),
            Column(field="Value #A", title=say("Planned", "计划"), unit="bytes", width=110),
            Column(field="Value #B", title=say("Measured", "实测"), unit="bytes", width=110),
            Column(
                field="Value #C", title=say("Above plan", "超出计划"), unit="percentunit", width=110, thresholds=over
            ),
        ],
        parts.rows(planned),
        parts.rows(measured),
        parts.rows(f"{measured} / ({planned} > 0) - 1"),
    )
    yield panels.lines(
        panels.About(
            title=say("Times that memory ran out", "内存耗尽次数"),
            description=say(
                "Each one ended requests or the engine. By how often it happened between two points.",
                "每一次都会使请求或引擎结束。数值为相邻两点间发生的次数。",
            ),
            unit="short",
            width=10,
            height=10,
            thresholds=parts.steps((1, RED)),
        ),
        parts.query(queries.by_engine(queries.rise(queries.of_engines(metrics.OUT_OF_MEMORY.name))), "{{engine}}"),
    )
