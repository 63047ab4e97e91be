"""Services whose KV memory loses facts, accepted by name: a standing notice, not a fault."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator.inspection import check, text
from tidemark_operator.inspection.check import Check, Finding, Severity
from tidemark_operator.inspection.facts import Facts, Service
from tidemark_operator.inspection.text import Text, same
from tidemark_runtime.contract import settings

CONDITION = "LossyKV"


def find(service: Service, _facts: Facts) -> Iterator[Finding]:
    condition = service.condition(CONDITION)
    if condition.get("status") == "True":
        yield _finding(
            service, same(str(condition.get("message", ""))), (f"{CONDITION}=True {condition.get('reason')}",)
        )
        return
    if condition:
        return
    check.statuses(service)
    if not any(engine.status.memory.kv_bytes for engine in service.engines if engine.status is not None):
        raise check.NotChecked(Text("no engine has loaded yet", "引擎尚未加载"))
    for engine in service.engines:
        sizes = engine.status.memory.kv_bytes if engine.status is not None else {}
        lossy = {dtype: size for dtype, size in sizes.items() if dtype in settings.LOSSY_KV_DTYPES}
        if lossy:
            share, listed = sum(lossy.values()) / sum(sizes.values()), ", ".join(lossy)
            what = Text(
                f"{text.percent(share)} of KV memory is {listed}, which loses facts of long prompts.",
                f"{text.percent(share)} 的 KV 内存为 {listed}，会丢失长提示词中的信息。",
            )
            yield _finding(service, what, tuple(f"kvBytes.{dtype} = {size}" for dtype, size in sizes.items()))
            return


def _finding(service: Service, what: Text, evidence: tuple[str, ...]) -> Finding:
    return Finding(
        severity=Severity.INFO,
        service=service.title,
        what=what,
        evidence=evidence,
        advice=Text(
            "If that is no longer wanted: spec.kvCache.dtype auto or int8 (restart). Measure on your own text with "
            "tidemark eval.",
            "若不再接受：spec.kvCache.dtype 设为 auto 或 int8（重启）。可用 tidemark eval 在自己的文本上测量。",
        ),
    )


CHECK = Check(
    name="lossy-kv",
    title=Text("Lossy KV memory", "有损 KV 内存"),
    fine=Text("no KV memory is in a dtype that loses facts", "没有使用会丢失信息的 KV 类型"),
    of_service=find,
)
