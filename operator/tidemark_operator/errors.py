"""Every exception the operator raises on purpose.

    OperatorError
    ├── ManifestError          an InferenceService is wrong; carries every problem found, not only the first
    ├── ManifestFileError      the file cannot be read at all: missing, a folder, binary, not YAML
    ├── PrometheusError        a Prometheus that was asked gave no figures
    │   ├── PrometheusUnreachable  no such address, no answer, not trusted
    │   │   └── PrometheusMistaken what was given for it cannot be used: no address, no such file
    │   └── PrometheusRefused      it answers, but not this; `kind` says whether a shorter period would help
    └── ClusterError           the API server, or the local cluster, did not do what was asked
        ├── NotFound           no such object
        ├── Conflict           somebody else changed or owns it
        ├── Refused            the object is invalid or not allowed; trying again does not help
        └── Unavailable        no answer in time; trying again may help

They are translated at the edges only: exit code in `commands`, condition and back-off in `reconcile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class OperatorError(Exception):
    """Base of everything raised on purpose; `str(error)` is fit for a user to read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong value of a manifest: where, what was seen, what was expected, what to do."""

    path: str
    """`spec.watermarks.queue`, `spec.podTemplate.env[2].value`."""
    seen: object
    expected: str
    remedy: str = ""
    line: int | None = None
    """In the file, counted from 1; None where the document did not come from a file."""

    def __str__(self) -> str:
        seen = self.seen if isinstance(self.seen, Seen) else _short(self.seen)
        where = f"line {self.line}: " if self.line else ""
        sentence = f"{where}{self.path}: got {seen}, expected {self.expected}."
        return f"{sentence} {self.remedy}" if self.remedy else sentence


class Seen(str):
    """Words instead of a value: `nothing`, `the unknown key`. Printed without quotes."""

    __slots__ = ()


class ManifestError(OperatorError):
    """One or more values of a manifest are wrong; `problems` holds all of them, in the order of the document."""

    def __init__(self, problems: Sequence[Problem], source: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        heading = f"{source}: {count}" if source else count
        super().__init__("\n".join([heading, *(f"  {problem}" for problem in self.problems)]))


class ManifestFileError(OperatorError):
    """The file gives no document to look at; the message says why and what to do."""


class PrometheusError(OperatorError):
    """A Prometheus that was asked gave no figures."""


class PrometheusUnreachable(PrometheusError):
    """Nobody answers there, or what would be sent cannot be: the message says why and what to do."""


class PrometheusMistaken(PrometheusUnreachable):
    """What was given for it cannot be used: a text that is no address, a file that cannot be read."""


class PrometheusRefused(PrometheusError):
    """It answers, but not what was asked."""

    TOO_MUCH = "too_much"
    OTHER = "other"

    def __init__(self, message: str, kind: str = OTHER) -> None:
        """`kind`: `TOO_MUCH` where a shorter period would have been answered."""
        self.kind = kind
        super().__init__(message)


class ClusterError(OperatorError):
    """The cluster did not do what was asked."""


class NotFound(ClusterError):
    """No such object."""


class Conflict(ClusterError):
    """The object was changed meanwhile, or belongs to somebody else."""


class Refused(ClusterError):
    """Invalid or not permitted: the same request will be refused again."""


class Unavailable(ClusterError):
    """No answer in time, or a server error."""


def _short(value: object, limit: int = 80) -> str:
    """As it stands in YAML, where Python spells it differently."""
    text = (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else repr(value)
    )
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
