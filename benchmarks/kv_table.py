"""Tables with goals, for kv_memory.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Check:
    """A goal and whether it is met."""

    words: str
    met: bool


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    cells: Sequence[str]
    checks: Sequence[Check] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    head: Sequence[str]
    rows: Sequence[Row]

    @property
    def met(self) -> bool:
        return all(check.met for row in self.rows for check in row.checks)

    def lines(self) -> list[str]:
        """As Markdown; the last column says the goals, and names those that are not met."""
        judged = any(row.checks for row in self.rows)
        head = ["", *self.head, *(["goal"] if judged else [])]
        lines = [self.title, "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        for row in self.rows:
            cells = [row.name, *row.cells]
            if judged:
                cells.append(
                    "; ".join(f"{check.words}: {'met' if check.met else '**not met**'}" for check in row.checks)
                )
            lines.append(f"| {' | '.join(cells)} |")
        return lines


def at_most(words: str, value: float, most: float | None) -> Check | None:
    """None where there is no goal."""
    return None if most is None else Check(words, value <= most)


def at_least(words: str, value: float, least: float) -> Check:
    return Check(words, value >= least)
