"""Small pieces of PromQL. Every selector is made by a `Scope`, so that rules of one service never see another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SERVICE = ("cluster", "namespace", "service")
"""One service. A label that a site does not have is empty and takes no part."""
ENGINE = (*SERVICE, "pod", "instance")
"""One engine: `pod` on Kubernetes, `instance` elsewhere."""
OPERATOR = ("cluster", "namespace", "job")
"""One operator, all its processes."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def duration(seconds: int) -> str:
    """In the largest unit that goes in evenly: 300 is `5m`."""
    size, unit = next((size, unit) for size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def number(value: float) -> str:
    """Without an exponent or needless zeros: 0.05, 2.5, 30."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


def percent(ratio: float) -> str:
    """`5 %`, for people."""
    return f"{number(ratio * 100)} %"


def bucket_edge(edge: float) -> str:
    """A matcher of `le`. Whole numbers are written `1` or `1.0`, depending on the format that was scraped."""
    text = number(edge)
    return f'le="{text}"' if "." in text else f'le=~"{text}|{text}\\\\.0"'


def by(labels: Sequence[str]) -> str:
    """`(cluster, namespace, service)`."""
    return f"({', '.join(labels)})"


def one_of(label: str, values: Sequence[str]) -> str:
    """A matcher. The values are words: letters, digits, `_`."""
    return f'{label}=~"{"|".join(values)}"' if len(values) > 1 else f'{label}="{values[0]}"'


def own_labels(expr: str) -> str:
    """The namespace and service that a series of the operator is about, not those of the operator's own pod: where the
    scrape does not honor labels, Prometheus renames them to `exported_...`; both are understood (B089)."""
    for label in ("namespace", "service"):
        expr = f'label_replace({expr}, "{label}", "$1", "exported_{label}", "(.+)")'
    return expr


def matches(label: str, regex: str) -> str:
    """A matcher by a regular expression that somebody set."""
    return f"{label}=~{_quoted(regex)}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which series a rule may look at."""

    matchers: tuple[tuple[str, str], ...] = ()
    """Label and value, for example `(("namespace", "team-a"), ("service", "contracts"))`; none: every series."""

    def select(self, name: str, *matchers: str) -> str:
        """The series `name` with the scope's matchers and these."""
        every = [*(f"{label}={_quoted(value)}" for label, value in self.matchers), *matchers]
        return f"{name}{{{','.join(every)}}}" if every else name

    def total_rate(self, name: str, seconds: int, *matchers: str, labels: Sequence[str] = SERVICE) -> str:
        """The rate of a counter, summed up, per second."""
        return f"sum by {by(labels)} (rate({self.select(name, *matchers)}[{duration(seconds)}]))"

    def total_rise(self, name: str, seconds: int, *matchers: str, labels: Sequence[str] = SERVICE) -> str:
        """By how much a counter rose, where it did, summed up."""
        return f"sum by {by(labels)} ({self.rise(name, seconds, *matchers)})"

    def rise(self, name: str, seconds: int, *matchers: str) -> str:
        """By how much each series rose, where it did. One that is born above 0 rose too: `increase` sees none, since
        there is nothing before (B087)."""
        series, window = self.select(name, *matchers), duration(seconds)
        return f"(increase({series}[{window}]) > 0) or ({series} > 0 unless {series} offset {window})"

    def quantile(self, quantile: float, histogram: str, seconds: int, labels: Sequence[str] = SERVICE) -> str:
        """Of a histogram's rate over all its series."""
        rate = self.total_rate(f"{histogram}_bucket", seconds, labels=(*labels, "le"))
        return f"histogram_quantile({number(quantile)}, {rate})"


EVERYTHING = Scope()
"""Every series."""


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
