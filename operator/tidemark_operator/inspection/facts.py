"""What is known of a site at one moment, as plain values. Whoever reads it lives in `commands`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidemark_operator.inspection.text import NOTHING, Text
from tidemark_runtime.contract.status import EngineStatus


class Origin(StrEnum):
    """Where a service was found."""

    CLUSTER = "cluster"
    LOCAL = "local"
    """A `tidemark up` of this machine."""
    URL = "url"
    """An address and nothing else: no manifest, no pods."""


@dataclass(frozen=True, slots=True)
class Series:
    """One number with its labels: of a scrape, or of a query."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of one `/metrics`, by name."""

    values: Mapping[str, Sequence[Series]] = field(default_factory=dict)

    def of(self, name: str, **labels: str) -> list[Series]:
        """Samples of `name` that have these labels."""
        wanted = labels.items()
        return [series for series in self.values.get(name, ()) if wanted <= series.labels.items()]

    def total(self, name: str, **labels: str) -> float | None:
        """Their sum; None where there is none: absent is not 0."""
        found = self.of(name, **labels)
        return sum(series.value for series in found) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine."""

    name: str
    """Of its pod, or its address."""
    status: EngineStatus | None = None
    scrape: Scrape | None = None
    why_not: str = ""
    """Why there is no status or no scrape, in the words of whoever asked."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """As `tidemark status --output json` has it: ready, restarts, lastState, finding, terminating. Empty: it is an
    address."""

    @property
    def runs(self) -> bool:
        """Whether it should answer: an address always, a pod while its container runs."""
        return not self.pod or ("running" in (self.pod.get("state") or {}) and not self.pod.get("terminating"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a TLS handshake with an address showed."""

    where: str
    not_after: datetime.datetime | None = None
    problem: str = ""
    """Why there is no date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One service and its engines."""

    origin: Origin
    namespace: str = ""
    name: str = ""
    url: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """As it was written; empty for an address."""
    status: Mapping[str, Any] = field(default_factory=dict)
    """As the operator wrote it."""
    generation: int | None = None
    created: str = ""
    """When, as the API server writes it; empty: not known."""
    paused: bool = False
    wanted_hash: str = ""
    """Of the configuration that pods are given; empty: not known."""
    engines: Sequence[Engine] = ()
    certificate: Certificate | None = None
    """None: it speaks plain HTTP, or was not asked."""
    not_read: Sequence[str] = ()
    """What could not be read, with the reason."""
    labels: tuple[str, str] | None = None
    """`namespace` and `service` of its series in Prometheus; None: not known."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.name else self.url

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend")) or self.spec.get("replicas") == 0

    def condition(self, type_: str) -> Mapping[str, Any]:
        """Empty where there is none."""
        found: Mapping[str, Any] = {}
        for item in self.status.get("conditions") or ():
            if item.get("type") == type_:
                found = item
        return found

    def set(self, path: str) -> Any:
        """What the manifest says at a path below `spec`; None: it says nothing."""
        value: Any = self.spec
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert of Prometheus."""

    name: str
    severity: str
    state: str
    """pending or firing."""
    labels: Mapping[str, str]
    description: str
    runbook: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a Prometheus answered; `url` empty: none was given."""

    url: str = ""
    answers: Mapping[str, Sequence[Series] | Text] = field(default_factory=dict)
    """By query: series, or why there are none."""
    alerts: Sequence[Alert] | Text = NOTHING
    """Those of Tidemark, pending and firing; a text: why they are not known."""

    @property
    def why_none(self) -> Text | None:
        """Why not a single query was answered, by a Prometheus that was given; None where one was."""
        refused = [answer for answer in self.answers.values() if isinstance(answer, Text)]
        return refused[0] if refused and len(refused) == len(self.answers) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One process of the operator."""

    name: str
    scrape: Scrape | None = None
    ready: str = ""
    """What `/health/ready` says against it; empty: nothing."""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that checks may look at."""

    now: datetime.datetime
    services: Sequence[Service] = ()
    history: History = field(default_factory=History)
    everything: bool = False
    """Whether `services` are all that the site has: then an alert about another one is told as well."""
    operators: Sequence[Operator] = ()
    why_no_operators: Text = NOTHING
    """Why `operators` is empty."""

    def service_of(self, labels: Mapping[str, str]) -> Service | None:
        """Whose series carry these labels."""
        wanted = (labels.get("namespace", ""), labels.get("service", ""))
        return next((service for service in self.services if service.labels == wanted), None)
