"""What computes: ops and the paths they run on, and the cards below them."""

from __future__ import annotations

from collections.abc import Iterable

from grafana_foundation_sdk.models import dashboard

from grafana import frame, panels, parts, queries
from grafana.parts import ORANGE, RED, Column
from grafana.words import Say
from tidemark_runtime.contract import metrics


def content(say: Say) -> frame.Content:
    return frame.Content(
        title=say("Compute", "计算"),
        description=say(
            "How long ops take and on which path they run, how much of the devices' time is used, and how the cards "
            "are.",
            "各算子耗时与执行路径、设备时间的利用率，以及显卡状态。",
        ),
        rows=[
            frame.Row(say("Ops", "算子"), list(_ops(say))),
            frame.Row(say("Device time", "设备时间"), list(_time(say))),
            frame.Row(say("Cards (NVML; empty without one)", "显卡（NVML；无卡时为空）"), list(_cards(say))),
        ],
    )


def _ops(say: Say) -> Iterable[dashboard.Panel]:
    spent = queries.per_second(queries.of_engines(f"{metrics.OP_DURATION.name}_sum"))
    by_op = queries.total(spent, ("op",))
    yield panels.lines(
        panels.About(
            title=say("Share of computing time by op", "各算子的计算时间占比"),
            description=say(
                "Of the steps that were timed, one in 64. `other` is what is left of a step; much of it is overhead.",
                "取自被计时的步（每 64 步一次）。other 为其余部分，过多说明开销大。",
            ),
            unit="percentunit",
            width=12,
            maximum=1,
        ),
        parts.query(f"{by_op} / on () group_left () ({queries.total(spent, ())} > 0)", "{{op}}"),
        stacked=True,
    )
    buckets = queries.of_engines(f"{metrics.OP_DURATION.name}_bucket")
    yield panels.lines(
        panels.About(
            title=say("Time in an op within one step", "一步内各算子耗时"),
            description=say(
                "All its calls of the step together; 95 of 100 steps take less.",
                "该步内所有调用之和；95 % 的步低于此值。",
            ),
            unit="s",
            width=12,
        ),
        parts.query(queries.quantile(0.95, buckets, ("op",)), "{{op}}"),
    )
    yield from _paths(say)


def _paths(say: Say) -> Iterable[dashboard.Panel]:
    paths = queries.of_engines(metrics.KERNEL_PATH.name)
    yield panels.rows(
        panels.About(
            title=say("The path each op runs on", "各算子的执行路径"),
            description=say(
                "reference is slow: right, and for tests. It is an alert where it was not planned.",
                "reference 为慢速参考实现，用于测试；若非计划内会触发告警。",
            ),
            unit="none",
            width=16,
            height=9,
            no_value=say("No engine has loaded a model.", "没有已加载模型的引擎。"),
        ),
        [
            Column(field="service", title=say("Service", "服务"), width=150),
            Column(field="op", title=say("Op", "算子")),
            Column(field="dtype", title=say("Dtype", "数据类型"), width=130),
            Column(field="path", title=say("Path", "路径"), width=160, words={"reference": ("reference", ORANGE)}),
            Column(field="Value", title=say("Engines", "引擎数"), width=100),
        ],
        parts.rows(queries.total(paths, (*queries.SERVICE, "op", "dtype", "path"))),
    )
    yield panels.number(
        panels.About(
            title=say("Ops on a path that was not planned", "未按计划路径执行的算子"),
            description=say(
                "0 is as it should be. Otherwise an image, driver or processor lacks what the plan counts on.",
                "0 为正常。否则说明镜像、驱动或处理器缺少计划所需能力。",
            ),
            unit="none",
            width=8,
            height=9,
            thresholds=parts.steps((1, ORANGE)),
        ),
        parts.now(queries.largest(queries.of_engines(metrics.KERNEL_PATHS_UNPLANNED.name)), "{{service}}"),
    )


def _time(say: Say) -> Iterable[dashboard.Panel]:
    held = queries.total(queries.per_second(queries.of_engines(metrics.DEVICE_SECONDS.name)))
    busy = queries.total(queries.per_second(queries.of_engines(metrics.DEVICE_BUSY_SECONDS.name)))
    yield panels.lines(
        panels.About(
            title=say("Devices held, and busy", "占用与忙碌的设备数"),
            description=say(
                "held: devices that the service's pods have; busy: the part of their time that went into steps. A "
                "processor counts as one.",
                "占用：服务的 pod 持有的设备；忙碌：其中用于计算的时间。处理器计为一个设备。",
            ),
            unit="short",
            width=12,
        ),
        parts.query(held, say("{{service}} held", "{{service}} 占用")),
        parts.query(busy, say("{{service}} busy", "{{service}} 忙碌")),
    )
    yield panels.lines(
        panels.About(
            title=say("Share of device time used", "设备时间利用率"),
            description=say(
                "Time that steps took over the time that devices were held. Low for weeks: fewer devices would do.",
                "步耗时与设备占用时间之比。长期偏低说明设备可以减少。",
            ),
            unit="percentunit",
            width=12,
            maximum=1,
        ),
        parts.query(queries.share_of(busy, held), "{{service}}"),
    )


def _cards(say: Say) -> Iterable[dashboard.Panel]:
    for metric, unit, title, text, limits in (
        (
            metrics.DEVICE_UTILIZATION,
            "percentunit",
            say("Utilization", "利用率"),
            say(
                "Share of the time in which any kernel ran; full does not mean fast.",
                "有内核在运行的时间占比；满载不等于高效。",
            ),
            parts.steps(),
        ),
        (
            metrics.DEVICE_TEMPERATURE,
            "celsius",
            say("Temperature", "温度"),
            say("Of the chip. Cards slow down from about 85 °C on.", "芯片温度。约 85 °C 起降频。"),
            parts.steps((85, ORANGE), (95, RED)),
        ),
        (
            metrics.DEVICE_POWER,
            "watt",
            say("Power", "功耗"),
            say(
                "As the card reports it. Far below the usual under load: it is slowed down.",
                "显卡上报值。负载下远低于平常说明在降频。",
            ),
            parts.steps(),
        ),
    ):
        yield panels.lines(
            panels.About(title=title, description=text, unit=unit, width=8, thresholds=limits),
            parts.query(queries.by_engine(queries.of_engines(metric.name), "device"), "{{engine}} {{device}}"),
            limits=len(limits.steps) > 1,
        )
    yield _memory(say)
    yield _errors(say)


def _memory(say: Say) -> dashboard.Panel:
    used = queries.by_engine(queries.of_engines(metrics.DEVICE_MEMORY_USED.name), "device")
    total = queries.by_engine(queries.of_engines(metrics.DEVICE_MEMORY_TOTAL.name), "device")
    return panels.lines(
        panels.About(
            title=say("Memory of the card in use", "显存用量"),
            description=say(
                "By all processes on the card, over its size. Others beside the engine take what was planned for it.",
                "卡上所有进程的用量占比。除引擎外的进程会占用计划内的显存。",
            ),
            unit="percentunit",
            width=12,
            maximum=1,
            thresholds=parts.steps((0.95, RED)),
        ),
        parts.query(queries.share_of(used, total), "{{engine}} {{device}}"),
        limits=True,
    )


def _errors(say: Say) -> dashboard.Panel:
    errors = queries.rise(queries.of_engines(metrics.DEVICE_XID_ERRORS.name))
    return panels.lines(
        panels.About(
            title=say("Xid errors", "Xid 错误"),
            description=say(
                "Errors that the driver reported between two points, by number: 48, 63, 64, 94, 95 are memory, 79 is a "
                "card that fell off the bus, 13 and 31 are programs.",
                "相邻两点间驱动上报的错误，按编号：48、63、64、94、95 为显存，79 为掉卡，13、31 为程序错误。",
            ),
            unit="short",
            width=12,
            thresholds=parts.steps((1, RED)),
        ),
        parts.query(queries.by_engine(errors, "device", "xid"), "{{engine}} {{device}} Xid {{xid}}"),
    )
