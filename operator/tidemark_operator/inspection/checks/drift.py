"""Engines that run another configuration than is wanted, or than each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tidemark_operator.inspection import check
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Origin, Service
from tidemark_operator.inspection.text import Text


def find(service: Service, _facts: Facts) -> Iterator[Finding]:
    check.statuses(service)
    hashes = {engine.name: engine.status.config.hash for engine in service.engines if engine.status is not None}
    rolling = service.condition("Progressing").get("status") == "True"
    counts = Counter(hashes.values())
    evidence = tuple(f"{name}: {value}" for name, value in sorted(hashes.items())[:12])
    if service.wanted_hash:
        others = sorted(name for name, value in hashes.items() if value != service.wanted_hash)
        if others:
            yield Finding(
                severity=Severity.INFO if rolling else Severity.WARNING,
                service=service.title,
                pod=others[0] if len(others) == 1 else "",
                what=Text(
                    f"{len(others)} of {len(hashes)} engines do not run the wanted configuration "
                    f"{service.wanted_hash}{'; a rollout goes on' if rolling else ''}.",
                    f"{len(hashes)} 个引擎中有 {len(others)} 个未运行目标配置 {service.wanted_hash}"
                    f"{'；正在滚动更新' if rolling else ''}。",
                ),
                evidence=evidence,
                advice=_advice(service),
                runbook="TidemarkConfigNotApplied",
            )
    elif len(counts) > 1:
        yield Finding(
            severity=Severity.INFO if rolling else Severity.WARNING,
            service=service.title,
            what=Text(
                f"Its {len(hashes)} engines run {len(counts)} configurations.",
                f"其 {len(hashes)} 个引擎运行着 {len(counts)} 种配置。",
            ),
            evidence=evidence,
            advice=_advice(service),
            runbook="TidemarkConfigDrift",
        )
    if not service.wanted_hash and service.origin is not Origin.CLUSTER and len(hashes) < 2:
        raise check.NotChecked(
            Text("one engine, and nothing says which configuration is wanted", "只有一个引擎，且没有目标配置可比较")
        )


def _advice(service: Service) -> Text:
    where = f"{service.name} -n {service.namespace}" if service.origin is Origin.CLUSTER else service.name
    return Text(
        f"kubectl tidemark status {where} says why each of them lags. A hot change arrives within seconds; a restart "
        "setting with the rollout.",
        f"kubectl tidemark status {where} 会说明每个引擎落后的原因。热更新几秒内生效；重启类设置随滚动更新生效。",
    )


CHECK = Check(
    name="configuration-drift",
    title=Text("Configuration of the engines", "引擎配置一致性"),
    fine=Text("all engines run what is wanted", "所有引擎运行目标配置"),
    of_service=find,
)
