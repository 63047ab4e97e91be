"""An HTML page of ours: one file that needs nothing else. Tables and pictures come as parts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_STYLE = """body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#222}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}
pre{background:#f4f4f4;padding:1em;overflow:auto}.bad{color:#a00}"""


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Plain words in, escaped here."""
    names = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<h2>{html.escape(title)}</h2><table><tr>{names}</tr>{body}</table>"


def whole(title: str, parts: Iterable[str], about: Mapping[str, Any]) -> str:
    """`parts`: HTML. `about`: facts that stand at the end."""
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
