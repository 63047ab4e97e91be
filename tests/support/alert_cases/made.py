"""What the cases of alerts are made of: series as lists of values, one a step, with the labels of a real site.

Every series of an engine carries labels that no rule knows (`region`, `container`, `endpoint`), and there are three
engines, so an expression whose sides carry different labels never fires here (B089).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Values = Sequence[float | None]
"""One a step; None: no sample."""
Series = dict[str, Values]
"""Selector -> values."""

REPLICAS = 3
PLACE = {"cluster": "c1", "region": "eu"}
SERVICE = {"cluster": "c1", "namespace": "team", "service": "chat"}
OPERATOR = {"cluster": "c1", "namespace": "tidemark-system", "job": "tidemark-operator"}
CONDITIONS = {
    "Ready": "True",
    "Available": "True",
    "Progressing": "False",
    "Degraded": "False",
    "ModelReady": "True",
    "CapacityFit": "True",
    "ConfigApplied": "True",
    "MonitoringReady": "True",
}
SUSPENDED = {"Ready": "False", "Available": "False"}


@dataclass(frozen=True)
class Firing:
    """One alert that is sent: its labels without `severity`, and `$value` as its description shows it."""

    labels: Mapping[str, str]
    shown: str = ""


@dataclass(frozen=True)
class Case:
    """At step `at`, exactly `firing` fire. No firing: the alert must be silent."""

    what: str
    series: Series
    at: int
    firing: tuple[Firing, ...] = ()
    step: str = "1m"


def fires(what: str, series: Series, at: int, labels: Mapping[str, str], shown: str = "", step: str = "1m") -> Case:
    return Case(what, series, at, (Firing(labels, shown),), step)


def flat(value: float, count: int = 61) -> list[float]:
    return [float(value)] * count


def ramp(step: float, count: int = 61, start: float = 0.0) -> list[float]:
    return [start + step * index for index in range(count)]


def selector(name: str, labels: Mapping[str, str]) -> str:
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in sorted(labels.items())) + "}"


def engine(index: int, service: str = "chat") -> dict[str, str]:
    """Labels of one engine's target."""
    return {
        **PLACE,
        "container": "engine",
        "endpoint": "http",
        "instance": f"10.0.0.{index}:8000",
        "job": "tidemark-engine",
        "namespace": "team",
        "pod": f"{service}-{index}",
        "service": service,
    }


def engine_labels(index: int = 0) -> dict[str, str]:
    """What an alert about one engine carries."""
    kept = ("cluster", "namespace", "service", "pod", "instance")
    return {label: value for label, value in engine(index).items() if label in kept}


def engines(name: str, *values: Values, **labels: str) -> Series:
    """A series for each of three engines. One list of values is for all; otherwise one for each."""
    each = values * REPLICAS if len(values) == 1 else values
    assert len(each) == REPLICAS
    return {selector(name, {**engine(index), **labels}): each[index] for index in range(REPLICAS)}


def operators(name: str, *values: Values, **labels: str) -> Series:
    """A series for each process of the operator."""
    return {
        selector(
            name,
            {
                **PLACE,
                **OPERATOR,
                "container": "operator",
                "instance": f"10.1.0.{index}:8080",
                "pod": f"operator-{index}",
                **labels,
            },
        ): each
        for index, each in enumerate(values)
    }


def conditions(
    count: int = 61, service: str = "chat", prefix: Literal["", "exported_"] = "", **statuses: str
) -> Series:
    """What the operator exports about a service. `prefix`: as a scrape that does not honor labels leaves them."""
    found: Series = {}
    for condition, wanted in {**CONDITIONS, **statuses}.items():
        for status in ("True", "False", "Unknown"):
            labels = {f"{prefix}namespace": "team", f"{prefix}service": service}
            own = {"condition": condition, "status": status}
            found |= operators("tidemark_operator_service_condition", flat(status == wanted, count), **labels, **own)
    return found


def told(
    name: str, *values: Values, prefix: Literal["", "exported_"] = "", service: str = "chat", **own: str
) -> Series:
    """What each process of the operator exports about a service, beside its conditions."""
    labels = {f"{prefix}namespace": "team", f"{prefix}service": service}
    return operators(f"tidemark_operator_{name}", *values, **labels, **own)


def vanished(series: Series, at: int) -> Series:
    """The same series, which end at a step."""
    return {name: [*values[:at], *([None] * (len(values) - at))] for name, values in series.items()}


def merged(*parts: Series) -> Series:
    found: Series = {}
    for part in parts:
        assert not found.keys() & part.keys()
        found |= part
    return found


def written(values: Values) -> Iterator[str]:
    """As promtool reads them. After the last sample comes the mark of a series that has ended."""
    before: float | None = None
    for value in values:
        if value is None:
            yield "stale" if before is not None else "_"
        else:
            yield f"{value:.10g}"
        before = value
