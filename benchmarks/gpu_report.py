"""The report of `gpu.py`: JSON and Markdown, written after every section."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]
"""Of a section: name, title, seconds, rows, error, note (`gpu_frame.run_section`)."""


@dataclass(slots=True)
class Report:
    folder: Path
    head: dict[str, str]
    """Machine, versions, command."""
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Sections for which there was no time."""

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.write()

    @property
    def failed(self) -> list[str]:
        """Sections that raised, or have a row whose `ok` is False."""
        return [one["name"] for one in self.outcomes if is_failed(one)]

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        data = {**self.head, "sections": self.outcomes, "skipped": self.skipped}
        (self.folder / "gpu.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        (self.folder / "gpu.md").write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        lines = ["# On a card", "", *(f"- {name}: {value}" for name, value in self.head.items()), ""]
        for one in self.outcomes:
            lines += [f"## {one['title']}", "", *_as_table(one["rows"])]
            lines += [one["note"], ""] if one["note"] else []
            lines += ["It failed:", "", "```", one["error"].rstrip(), "```", ""] if one["error"] else []
            lines += [f"Section `{one['name']}`, {one['seconds']:.0f} s.", ""]
        lines += [f"Not run, the time was up: {', '.join(self.skipped)}.", ""] if self.skipped else []
        return "\n".join(lines)


def is_failed(outcome: Outcome) -> bool:
    return bool(outcome["error"]) or any(row.get("ok") is False for row in outcome["rows"])


def _as_table(rows: list[dict[str, Any]]) -> list[str]:
    """Columns in the order in which rows bring them; a row may lack some."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return []
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return [*lines, *(f"| {' | '.join(_cell(row.get(name, '')) for name in columns)} |" for row in rows), ""]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).replace("|", "\\|").replace("\n", " ")
