"""Errors and heat of devices, where the driver tells of them."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, queries
from tidemark_operator.inspection.check import DAY, WEEK, Check, Finding, Query, Severity
from tidemark_operator.inspection.facts import Facts, Series, Service
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql, thresholds
from tidemark_operator.monitoring.rules.alerts import device as device_alerts
from tidemark_runtime.contract import metrics

_XID, _TEMPERATURE = metrics.DEVICE_XID_ERRORS.name, metrics.DEVICE_TEMPERATURE.name
HOT_CELSIUS = thresholds.Thresholds().device_celsius
"""Where the alert is, too."""

XIDS = Query("xid_week", queries.rise(_XID, WEEK, labels=(*promql.SERVICE, "pod", "device", "xid")))
HEAT = Query(
    "temperature_day",
    lambda scope: (
        f"max by {promql.by((*promql.SERVICE, 'pod', 'device'))} "
        f"(max_over_time({scope.select(_TEMPERATURE)}[{promql.duration(DAY)}]))"
    ),
)


def find(service: Service, facts: Facts) -> Iterator[Finding]:
    if check.has_history(facts, service):
        errors, heat = (check.of_service(facts, query, service) for query in (XIDS, HEAT))
        period, known = Text("in the last 7 days", "最近 7 天"), bool(errors or heat)
    else:
        check.statuses(service)
        errors, heat = _told(service)
        period, known = Text("since the engine started", "自引擎启动以来"), bool(errors or heat)
    for item in errors:
        yield _error(service, item, period)
    for item in heat:
        if item.value >= HOT_CELSIUS:
            yield _hot(service, item)
    if not known:
        kinds = sorted({engine.status.worker.get("device", "?") for engine in service.engines if engine.status})
        if kinds and all(kind.startswith("cpu") for kind in kinds):
            raise check.NotChecked(Text("it computes on a processor, without devices", "在处理器上计算，没有设备"))
        raise check.NotChecked(
            Text(
                f"nothing told of its devices: no {_TEMPERATURE} (the engine finds no NVML)",
                f"没有设备数据：缺少 {_TEMPERATURE}（引擎未找到 NVML）",
            )
        )


def _told(service: Service) -> tuple[list[Series], list[Series]]:
    """Errors and temperatures, as the engines' own statuses have them."""
    errors, heat = [], []
    for engine in service.engines:
        for card in engine.status.devices if engine.status is not None else ():
            labels = {"pod": engine.name, "device": card.device}
            if card.temperature_celsius is not None:
                heat.append(Series(labels, card.temperature_celsius))
            errors += [
                Series({**labels, "xid": xid}, float(times)) for xid, times in (card.xid_errors or {}).items() if times
            ]
    return errors, heat


def _error(service: Service, item: Series, period: Text) -> Finding:
    xid, device = item.labels.get("xid", "?"), item.labels.get("device", "?")
    return Finding(
        severity=Severity.CRITICAL if xid in device_alerts.BROKEN_XIDS else Severity.WARNING,
        service=service.title,
        pod=item.labels.get("pod", ""),
        what=Text(
            f"Device {device} reported Xid {xid} {item.value:.0f} times {period.en}.",
            f"{period.zh}，设备 {device} 报告了 {item.value:.0f} 次 Xid {xid}。",
        ),
        evidence=(f'{_XID}{{device="{device}",xid="{xid}"}} rose by {item.value:.0f}',),
        advice=Text(
            "Drain the node and let the vendor's diagnosis run (dcgmi diag -r 3); look Xid up in NVIDIA's catalogue.",
            "排空节点并运行厂商诊断（dcgmi diag -r 3）；在 NVIDIA 的 Xid 目录中查阅含义。",
        ),
    )


def _hot(service: Service, item: Series) -> Finding:
    device = item.labels.get("device", "?")
    return Finding(
        severity=Severity.WARNING,
        service=service.title,
        pod=item.labels.get("pod", ""),
        what=Text(
            f"Device {device} reached {item.value:.0f} °C (limit {HOT_CELSIUS:.0f}): it slows down a little above.",
            f"设备 {device} 达到 {item.value:.0f} °C（上限 {HOT_CELSIUS:.0f}）：再高就会降频。",
        ),
        evidence=(f'{_TEMPERATURE}{{device="{device}"}} = {item.value:.0f}',),
        advice=Text("Check fans, air and power limit of the node.", "检查节点的风扇、风道和功率上限。"),
    )


CHECK = Check(
    name="devices",
    title=Text("Device errors and heat", "设备错误与温度"),
    fine=Text("no Xid in the last 7 days, not hot in the last 24 hours", "最近 7 天无 Xid，最近 24 小时温度正常"),
    fine_now=Text("no Xid since the engines started, not hot now", "自引擎启动以来无 Xid，当前温度正常"),
    of_service=find,
    queries=(XIDS, HEAT),
)
