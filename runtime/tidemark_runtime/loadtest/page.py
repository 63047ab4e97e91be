"""Results as one HTML file that needs nothing else: tables, and pictures within."""

from __future__ import annotations

import html
from collections.abc import Sequence

from tidemark_runtime.evaluation import document, drawing
from tidemark_runtime.loadtest import figures, levels, results, tables

_X_NAMES = {
    levels.Kind.USERS: "users at once",
    levels.Kind.RATE: "requests a second",
    levels.Kind.SCALE: "times the workload",
}


def of_result(result: results.Result, broken: Sequence[str]) -> str:
    """`broken`: sentences about limits."""
    parts = [f'<p class="bad">{html.escape(sentence)}</p>' for sentence in broken]
    if result.interrupted:
        parts.append('<p class="bad">Stopped before its end.</p>')
    parts += _pictures([level for level in result.levels if level.whole])
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in tables.sentences(result)]
    parts += [document.table(table.title, table.head, table.rows) for table in tables.of_result(result)]
    about = result.about
    facts = {
        "url": about.url,
        "model": about.model,
        "server": f"tidemark {about.server_version}" if about.server_version else "not ours",
        "endpoint": about.endpoint,
        "workload": about.workload,
        "seed": about.seed,
    }
    return document.whole(f"{about.model}: load test", parts, facts)


def _pictures(found: Sequence[figures.LevelFigures]) -> list[str]:
    if len(found) < 2:
        return []
    x_name = _X_NAMES[levels.Kind(found[0].kind)]
    speed = {
        "output": [(level.amount, level.output_tokens_per_second) for level in found],
        "total": [(level.amount, level.total_tokens_per_second) for level in found],
    }
    first = {
        name: [(level.amount, getattr(level.total.time_to_first_token, name)) for level in found]
        for name in ("p50", "p90", "p95", "p99")
    }
    between = {
        name: [(level.amount, getattr(level.total.between_tokens, name)) for level in found]
        for name in ("p50", "p95", "p99")
    }
    trade = {"levels": [(level.output_tokens_per_second, level.total.time_to_first_token.p95) for level in found]}
    return [
        drawing.curves("tokens a second", x_name, speed, marks=True),
        drawing.curves("seconds to the first token", x_name, first, marks=True),
        drawing.curves("seconds between tokens", x_name, between, marks=True),
        drawing.curves("seconds to the first token (p95) by speed", "output tokens a second", trade, marks=True),
    ]
