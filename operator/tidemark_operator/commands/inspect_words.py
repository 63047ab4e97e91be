"""The headings of an inspection, in both languages: one table, as the runbooks have theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules.model import Language

TITLE = Text("Inspection", "巡检报告")
SEVERITIES = {
    "critical": Text("Critical", "严重"),
    "warning": Text("Warning", "警告"),
    "info": Text("Good to know", "提示"),
}
COUNTED = {
    "critical": Text("critical", "严重"),
    "warning": Text("warning", "警告"),
    "info": Text("to know", "提示"),
}
FINE = Text("Checked and fine", "已检查，正常")
NOT_CHECKED = Text("Not checked", "未检查")
DO = Text("do", "处理")
SEEN = Text("seen", "依据")
RUNBOOK = Text("runbook", "运行手册")
SITE = Text("the whole site", "整个站点")
SERVICES = Text("services", "个服务")
SERVICE_ONE = Text("service", "个服务")
ENGINES = Text("engines answered", "个引擎应答")
CHECKS = Text("checks", "项检查")
FOUND = Text("found something", "有发现")
NO_FINDING = Text("Nothing was found.", "没有发现问题。")
NO_SERVICE = Text("There is no InferenceService there.", "那里没有 InferenceService。")
NO_PROMETHEUS = Text("no Prometheus", "未使用 Prometheus")
_SILENT = Text("gave no figures", "没有给出任何数据")


def history(document: Mapping[str, Any], language: Language) -> str:
    """Which Prometheus was asked, if any, and whether it answered at all."""
    if not document["prometheus"]:
        return NO_PROMETHEUS.of(language)
    silent = f" {_SILENT.of(language)}" if document.get("prometheusError") else ""
    return f"Prometheus {document['prometheus']}{silent}"


RUNBOOKS_AT = Text("Runbooks", "运行手册")
CUT = Text(
    "Cut: a ConfigMap holds no more. The whole report is printed by the job (kubectl logs), or by tidemark inspect.",
    "已截断：ConfigMap 容量有限。完整报告见任务日志（kubectl logs），或运行 tidemark inspect。",
)
