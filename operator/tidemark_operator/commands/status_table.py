"""The services of a namespace or a cluster as a table, with the columns of `kubectl get tide`. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator.commands import status_text

_GAP = "   "


def render(overview: Mapping[str, Any], now: datetime.datetime | None = None) -> str:
    """The source, the table, and how many are not ready."""
    now = now or datetime.datetime.now(datetime.UTC)
    source, services = overview["source"], overview["services"]
    lines = [status_text.source(source)]
    if not services:
        lines.append("no InferenceService there" if not source["namespace"] else "none there; -A lists all namespaces")
        return "\n".join(lines) + "\n"
    everywhere = not source["namespace"]
    rows = [_heading(everywhere), *(_row(service, everywhere, now) for service in services)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += [_GAP.join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"


def _heading(everywhere: bool) -> Sequence[str]:
    columns = ("NAME", "READY", "REASON", "MODEL", "REPLICAS", "DEVICES", "KV", "URL", "AGE")
    return ("NAMESPACE", *columns) if everywhere else columns


def _row(service: Mapping[str, Any], everywhere: bool, now: datetime.datetime) -> Sequence[str]:
    told = service["status"]
    ready: Mapping[str, Any] = next((item for item in told.get("conditions") or () if item["type"] == "Ready"), {})
    reason = ready.get("reason", "NoStatus")
    behind = ready.get("status") == "True" and not service["ready"]
    cells = (
        service["name"],
        "Unknown" if behind else ready.get("status", "Unknown"),
        "NotActedOn" if behind else reason,
        told.get("model", ""),
        f"{told.get('readyReplicas', 0)}/{service['spec'].get('replicas', 1)}",
        told.get("devices", ""),
        told.get("kv", ""),
        service["url"] or "",
        status_text.age(service["createdAt"], now) if service["createdAt"] else "",
    )
    return (service["namespace"], *cells) if everywhere else cells
