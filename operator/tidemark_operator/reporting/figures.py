"""What a report is made of: figures, each with the formula and the inputs that it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidemark_operator.reporting import period as period_


class Group(StrEnum):
    """Parts of the report, in its order."""

    TRAFFIC = "traffic"
    DEVICES = "devices"
    UTILIZATION = "utilization"
    COMPARISON = "comparison"
    COST = "cost"
    SAVED = "saved"


class From(StrEnum):
    """Where an input comes from."""

    PROMETHEUS = "prometheus"
    COST_FILE = "cost_file"
    BASELINE = "baseline"
    FIGURE = "figure"
    PERIOD = "period"


@dataclass(frozen=True, slots=True)
class Input:
    """One number of a formula."""

    name: str
    """As the formula calls it."""
    value: float
    origin: From
    source: str
    """The PromQL that was sent, the key of the cost file, the key of another figure, or the text of the baseline."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A reason, a note or a warning: a key of `words`, and what its sentence is filled in with."""

    key: str
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a figure before its value."""

    key: str
    group: Group
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the report."""

    key: str
    """What `words` knows it by."""
    group: Group
    unit: str
    """tokens, requests, hours, devices, ratio, times, currency, currency_per_million ..."""
    formula: str
    inputs: tuple[Input, ...] = ()
    value: float | None = None
    reason: Remark | None = None
    """Why there is no value; None where there is one."""
    of_kind: str = ""
    """`service`, `key`, `outcome`, `device`; empty for a figure of everything."""
    of: str = ""
    """Which one."""

    def as_input(self, name: str = "") -> Input:
        """Of another figure's formula. It must have a value."""
        if self.value is None:
            raise ValueError(f"{self.key} has no value")
        source = f"{self.key}[{self.of}]" if self.of_kind else self.key
        return Input(name or self.key, self.value, From.FIGURE, source)


@dataclass(frozen=True, slots=True)
class Gap:
    """A span without samples, `[start, end)`."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over time, for a picture. None: nothing there."""

    name: str
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it."""

    period: period_.Period
    prometheus: str
    made_at: float
    currency: str
    figures: tuple[Figure, ...]
    warnings: tuple[Remark, ...]
    notes: tuple[Remark, ...]
    coverage: float
    """Share of the period for which samples exist."""
    gaps: tuple[Gap, ...]
    curves: Mapping[str, tuple[Curve, ...]]
    """`tokens`, `devices`, `utilization`."""
    baseline_source: str

    def find(self, key: str, of: str = "") -> Figure:
        """Raises `KeyError`."""
        for figure in self.figures:
            if figure.key == key and figure.of == of:
                return figure
        raise KeyError(key, of)

    def parts(self, key: str) -> list[Figure]:
        """Rows of one figure: of each service, key, outcome or device."""
        return [figure for figure in self.figures if figure.key == key and figure.of_kind]


def finite(value: float | None) -> float | None:
    """None for what is no number."""
    return value if value is not None and math.isfinite(value) else None
