"""Addresses inside Grafana."""

from __future__ import annotations

from grafana.words import Say
from tidemark_operator.monitoring import dashboard_files


def to(say: Say, dashboard: str) -> tuple[str, str]:
    """Title and address of another dashboard, for the service of a table's row and for the same time."""
    uid = dashboard_files.uid(dashboard, say.language.value)
    chosen = "var-namespace=${__data.fields.namespace}&var-service=${__data.fields.service}"
    title = say(f"Open: {dashboard}", f"打开：{TITLES_ZH[dashboard]}")
    return title, f"/d/{uid}?${{datasource:queryparam}}&{chosen}&${{__url_time_range}}"


TITLES_ZH = {"memory": "内存", "scheduling": "调度", "requests": "请求", "compute": "计算", "operator": "Operator"}
