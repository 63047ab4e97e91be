"""Small pieces of text that the screen and the table are made of. Pure."""

from __future__ import annotations

import datetime
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

_BAR_CELLS = 24


class Line(NamedTuple):
    """One line of a screen, before it is broken to fit."""

    text: str
    style: str = ""
    hang: int = 4
    """Columns that its further pieces are indented by."""
    whole: bool = False
    """Never broken: an address or a command that is to be copied."""


def row(key: str, value: str, style: str = "") -> Line:
    """`  key       value`."""
    return Line(f"  {key:<9} {value}", style, hang=12)


def source(asked: Mapping[str, Any]) -> str:
    """Who was asked: never to be guessed from what is shown."""
    if asked.get("kind") != "cluster":
        return "local: `tidemark up` on this machine"
    namespace = f"namespace {asked['namespace']}" if asked["namespace"] else "all namespaces"
    return f"cluster: context {asked['context'] or '?'}, {namespace} ({asked['server']})"


def bar(ratio: float) -> str:
    full = min(_BAR_CELLS, round(ratio * _BAR_CELLS))
    return f"{'█' * full}{'░' * (_BAR_CELLS - full)} {ratio:4.0%}"


def num_bytes(size: int) -> str:
    """`90.0 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit in ("B", "KiB") or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def age(timestamp: str, now: datetime.datetime) -> str:
    """`12s`, `5m`, `3h`, `2d`."""
    seconds = int((now - datetime.datetime.fromisoformat(timestamp)).total_seconds())
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{max(0, seconds)}s"


def wrapped(line: str, columns: int | None, hang: int) -> list[str]:
    """Pieces of a line that fit; from the second on they begin `hang` columns further right. None: as it is."""
    if columns is None or len(line) <= columns:
        return [line]
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * hang,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shortened(text: str, limit: int | None) -> str:
    """The first line, cut where it is longer."""
    first = (text.splitlines() or [""])[0]
    return first if limit is None or len(first) <= limit else f"{first[: max(1, limit - 1)]}…"
