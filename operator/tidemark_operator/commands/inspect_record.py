"""Keeps the last result in a ConfigMap: what the inspection of last night said, without looking for its pod's log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemark_operator import errors
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.cluster.kubernetes import kinds
from tidemark_operator.commands import inspect_html, inspect_text
from tidemark_operator.commands import inspect_words as words
from tidemark_operator.monitoring.rules.model import Language

MANAGER = "tidemark-inspect"
"""Field manager of server-side apply: only what it writes is its own; labels of the chart stay."""
MOST_BYTES = 900_000
"""Of all entries: an API server takes objects of a mebibyte."""
_LEAST_FINDINGS = 20
TEXT, JSON, HTML, SUMMARY = "report.txt", "report.json", "report.html", "summary"


def parse(target: str) -> tuple[str, str]:
    """`NAMESPACE/NAME`. Raises `ManifestFileError`."""
    namespace, slash, name = target.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise errors.ManifestFileError(f"--record: got {target!r}, expected NAMESPACE/NAME of a ConfigMap")
    return namespace, name


def entries(document: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> dict[str, str]:
    """The entries. What does not fit is cut, the least important findings first, and it says so."""
    shown: dict[str, Any] = dict(document)
    while True:
        made = _entries(shown)
        if sum(len(text.encode()) for text in made.values()) <= most_bytes:
            return made
        keep = len(shown["findings"]) // 2
        if keep < _LEAST_FINDINGS:
            return _beginnings(shown, made, most_bytes)
        shown = _shortened(document, keep)


def _shortened(document: Mapping[str, Any], keep: int) -> dict[str, Any]:
    """With so many findings, and as many of what else there is of each service; the numbers of the summary stay."""
    return {
        **document,
        "findings": document["findings"][:keep],
        "services": document["services"][:keep],
        "checks": [
            {**check, "fine": check["fine"][:keep], "notChecked": check["notChecked"][:keep]}
            for check in document["checks"]
        ],
        "cut": _cut(document, keep),
    }


def _entries(document: Mapping[str, Any]) -> dict[str, str]:
    counts = document["summary"]
    summary = ", ".join(f"{counts[key]} {key}" for key in ("critical", "warning", "info"))
    note = f"{document['cut']}\n\n" if "cut" in document else ""
    report_html = inspect_html.render(document)
    if note:
        report_html = report_html.replace("<body>\n", f"<body>\n<p><strong>{document['cut']}</strong></p>\n", 1)
    return {
        SUMMARY: f"{document['at']} {summary}",
        TEXT: f"{note}{inspect_text.render(document).plain}\n",
        JSON: f"{json.dumps(document, ensure_ascii=False)}\n",
        HTML: report_html,
    }


def _cut(document: Mapping[str, Any], keep: int) -> str:
    return f"{words.CUT.of(Language(document['language']))} ({keep}/{len(document['findings'])})"


def _beginnings(document: Mapping[str, Any], made: Mapping[str, str], most_bytes: int) -> dict[str, str]:
    """With thousands of services even few findings are long: the summary and the beginning of the text."""
    note = words.CUT.of(Language(document["language"]))
    room = max(0, most_bytes - len(made[SUMMARY].encode()) - len(note.encode()) - 2)
    text = made[TEXT].encode()[:room].decode(errors="ignore")
    return {SUMMARY: made[SUMMARY], TEXT: f"{note}\n{text}"}


async def write(connection: connection_.Connection, namespace: str, name: str, data: Mapping[str, str]) -> None:
    """Server-side apply of `data`. Raises `errors.ClusterError`."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": dict(data),
    }
    status, answer = await connection.request(
        "PATCH",
        kinds.TABLE["ConfigMap"].path(namespace, name),
        query={"fieldManager": MANAGER, "force": "true"},
        body=body,
        content_type=connection_.APPLY,
    )
    if status >= 400:
        said = answer[:300].decode(errors="replace").strip()
        raise errors.Refused(
            f"--record: ConfigMap {name} in namespace {namespace} could not be written (HTTP {status}): {said}. "
            "It needs the verb patch there, and create where it does not exist"
        )
