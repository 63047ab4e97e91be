"""Results as one HTML file that needs nothing else: tables, and pictures within."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark_runtime.evaluation import drawing, figures, items, results, sensitivity, tables

_STYLE = """body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#222}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}
pre{background:#f4f4f4;padding:1em;overflow:auto}.bad{color:#a00}"""


def of_result(result: results.Result, over: Sequence[str], compared: Sequence[results.Change]) -> str:
    """`over`: sentences about limits that are broken."""
    about = result.about
    parts = [_verdict(over)]
    for title, table in tables.of_result(result):
        parts.append(_table(title, table))
    texts = {entry.name: entry.text for entry in result.configurations if entry.text is not None}
    if texts:
        by_position = {name: [(float(at), kl) for at, kl in one.kl_by_position] for name, one in texts.items()}
        parts.append(drawing.curves("mean KL (nats) by position in the context", "tokens before", by_position))
        costs = {
            entry.name: [(entry.kv_token_bytes, entry.text.mean_kl)]
            for entry in result.configurations
            if entry.text is not None
        }
        parts.append(drawing.curves("mean KL (nats) by bytes of a token", "KV bytes a token", costs, marks=True))
    parts += _grids(result)
    if compared:
        parts.append(_table("Beside the other run", tables.of_changes(compared)))
    return _document(f"{about['model']}: accuracy of quantized KV memory", parts, about)


def of_sensitivity(found: sensitivity.Found, map_text: str | None, about: Mapping[str, Any]) -> str:
    """`map_text`: what the map file holds; None where none was found."""
    parts = [_table(title, table) for title, table in tables.of_sensitivity(found)]
    by_kind: dict[str, list[float]] = {"K": [], "V": []}
    for cost in found.ranking:
        losses = by_kind[cost.unit.kind.upper()]
        losses.extend([0.0] * (cost.unit.layer + 1 - len(losses)))
        losses[cost.unit.layer] += max(0.0, cost.kl)
    parts.insert(0, drawing.bars("KL (nats) that quantizing one layer costs", "layer", by_kind))
    curve = {
        "maps": sorted(
            (point.kv_token_bytes / found.plain.kv_token_bytes * 100 - 100, point.kl) for point in found.points
        )
    }
    parts.insert(1, drawing.curves("KL (nats) of maps by more bytes a token", "per cent more", curve, marks=True))
    if map_text is not None:
        parts.append(f"<h2>The map</h2><pre>{html.escape(map_text)}</pre>")
    return _document(f"{about['model']}: what {found.dtype} costs, by layer and head", parts, about)


def _grids(result: results.Result) -> Iterable[str]:
    for entry in result.configurations:
        for part, title in ((items.RETRIEVAL, "facts found in long text"), (items.EXTRACTION, "fields of contracts")):
            asked: figures.AskedFigures | None = getattr(entry, part)
            if asked is None:
                continue
            rows: dict[str, dict[str, tuple[float, str]]] = {}
            for group in sorted(asked.groups, key=_by_depth) if part == items.RETRIEVAL else asked.groups:
                *row, column = group.label.split("/")
                words = f"{group.right}/{group.questions} ({group.base_right})"
                rows.setdefault(" ".join(row), {})[column] = (group.same / group.questions, words)
            yield drawing.grid(f"{entry.name}: {title}, and (unquantized); blue: same answer", rows)


def _by_depth(group: figures.AnswerFigures) -> tuple[str, int, float]:
    language, length, depth = group.label.split("/")
    return language, int(length), float(depth)


def _verdict(over: Sequence[str]) -> str:
    if not over:
        return ""
    return "".join(f'<p class="bad">{html.escape(sentence)}</p>' for sentence in over)


def _table(title: str, table: tables.Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>{html.escape(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _document(title: str, parts: Iterable[str], about: Mapping[str, Any]) -> str:
    facts = "".join(f"<tr><td>{html.escape(str(k))}</td><td>{html.escape(str(v))}</td></tr>" for k, v in about.items())
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
            f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1>",
            *parts,
            f"<h2>What was measured</h2><table>{facts}</table></body></html>",
            "",
        ]
    )
