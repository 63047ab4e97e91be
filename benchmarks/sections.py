"""A results file whose sections are measured one by one: a new one replaces its own, and leaves the others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Results:
    """`titles`: name -> title, in the order of the file; a section that is not in it is dropped."""

    path: Path
    head: str
    titles: Mapping[str, str]

    def write(self, name: str, met: bool, lines: Sequence[str]) -> str:
        """Put a section into the file; returns its text."""
        sections = self._read()
        sections[name] = "\n".join([f"## {self.titles[name]}: {'met' if met else 'not met'}", "", *lines])
        parts = [self.head] + [f"<!-- {one} -->\n{sections[one]}\n" for one in self.titles if one in sections]
        self.path.write_text("\n".join(parts), encoding="utf-8")
        return sections[name]

    def _read(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        parts = re.split(r"^<!-- (\w+) -->\n", self.path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
