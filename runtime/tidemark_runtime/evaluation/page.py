"""Results as one HTML file that needs nothing else: tables, and pictures within."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark_runtime.evaluation import document, drawing, figures, items, results, sensitivity, tables


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
        if any(entry.weights is not None for entry in result.configurations):
            parts.append(_weights(result))
    parts += _grids(result)
    if compared:
        parts.append(_table("Beside the other run", tables.of_changes(compared)))
    what = "weights" if all(entry.weights is not None for entry in result.configurations) else "KV memory"
    return document.whole(f"{about['model']}: accuracy of quantized {what}", parts, about)


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
    return document.whole(f"{about['model']}: what {found.dtype} costs, by layer and head", parts, about)


def _weights(result: results.Result) -> str:
    costs = {
        entry.name: [(entry.weights_bytes / 1e6, entry.text.mean_kl)]
        for entry in result.configurations
        if entry.text is not None
    }
    return drawing.curves("mean KL (nats) by bytes of the weights", "MB of weights", costs, marks=True)


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
    return document.table(title, table.head, table.rows)
