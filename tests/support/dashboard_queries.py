"""The dashboards as they are checked in, and their queries as Grafana would send them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.monitoring import dashboard_files

EVERY = [(name, language) for name in dashboard_files.names() for language in dashboard_files.LANGUAGES]
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(__\w+|[a-z]\w*))")


@dataclass(frozen=True, slots=True)
class Query:
    """One query of one panel."""

    dashboard: str
    panel: str
    letter: str
    expr: str
    instant: bool

    def __str__(self) -> str:
        return f"{self.dashboard} / {self.panel} / {self.letter}"


@functools.cache
def load(name: str, language: str) -> dict[str, Any]:
    return dict(json.loads(dashboard_files.read(name, language)))


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Without the headings of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(language: str = "en") -> Iterator[Query]:
    """Of all panels of all dashboards."""
    for name in dashboard_files.names():
        for panel in panels(load(name, language)):
            for target in panel["targets"]:
                yield Query(name, panel["title"], target["refId"], target["expr"], target["instant"])


def variable_series() -> Iterator[tuple[str, str, str]]:
    """Dashboard, series and label of each variable that is filled by a query."""
    for name in dashboard_files.names():
        for variable in load(name, "en")["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert found, variable
                yield name, found[1], found[2]


def filled(expr: str, values: Mapping[str, str]) -> str:
    """As Grafana fills it in. Raises KeyError for a variable that has no value."""
    return _VARIABLE.sub(lambda found: values[found[1] or found[2]], expr)
