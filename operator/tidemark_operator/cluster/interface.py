"""What the reconcile loop may ask of a cluster. Objects are plain dictionaries in Kubernetes' own shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:  # msgspec would be half of the start of `tidemark status`
    from tidemark_runtime.contract import status as contract

Object = dict[str, Any]
"""apiVersion, kind, metadata, and whatever the kind has."""


class Key(NamedTuple):
    """Names one object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Change(StrEnum):
    """What a watch tells; the words of Kubernetes' watch API."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change; `object` is the state after it, or the last state of a deleted object."""

    change: Change
    object: Object


@dataclass(frozen=True, slots=True)
class ConfigAnswer:
    """What an engine said to a configuration."""

    accepted: bool
    hash: str
    """Of the configuration in force now, whichever it is."""
    message: str = ""
    """Why it was refused, in the engine's words."""


class Complaint(NamedTuple):
    """A Warning that the cluster recorded about an object."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Lack:
    """Why the cluster takes no objects of a kind."""

    reason: str
    """`NotInstalled`, `NotPermitted`, or `NotKnownYet`."""
    message: str


class Cluster(Protocol):
    """An API server, or the local backend.

    Every method may raise `errors.ClusterError`. What is returned is the caller's own copy. `resourceVersion` changes
    with every write, `metadata.generation` only when the spec does (B069).
    """

    async def get(self, key: Key) -> Object | None:
        """The object, or None."""
        ...

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Objects of a kind that carry all `labels`, ordered by name."""
        ...

    async def apply(self, manifest: Object) -> Object:
        """Server-side apply with our field manager, forced: what we set before and leave out now is removed, what
        others set stays. The same manifest again writes nothing. Returns the object as it is now."""
        ...

    async def delete(self, key: Key) -> None:
        """Begin to delete the object; its dependents follow. An object that is gone is no error (B065)."""
        ...

    async def patch_status(self, key: Key, status: Mapping[str, Any]) -> Object | None:
        """Replace the status. None: the object is gone."""
        ...

    async def lacks(self, kind: str, namespace: str) -> Lack | None:
        """Why a kind that is not part of Kubernetes cannot be used in the namespace; None: it can. Costs no request."""
        ...

    def watch(self, kind: str, namespace: str) -> AsyncIterator[WatchEvent]:
        """Every object of the kind as ADDED, then every change, until the caller stops."""
        ...

    async def record_event(self, about: Object, type_: str, reason: str, message: str) -> None:
        """Record something worth knowing; the same event again raises its count. `type_`: Normal or Warning."""
        ...

    async def pods_of_job(self, job: Key) -> Sequence[Object]:
        """Pods that a Job made and that are still there, the oldest first; asked for once, when it has ended."""
        ...

    async def complaints(self, pod: Object) -> Sequence[Complaint]:
        """What the cluster's own parts warn of about the pod, the latest first; a kubelet says there, and nowhere else,
        what a volume lacks. Empty, too, where events may not be read."""
        ...

    async def engine_status(self, pod: Object) -> contract.EngineStatus | None:
        """The pod's own `/status`; None when it does not answer in time or not sensibly."""
        ...

    async def configure_engine(self, pod: Object, document: Mapping[str, Any], token: str) -> ConfigAnswer | None:
        """Give the engine a whole configuration (`PUT /admin/config`); only hot settings may differ from what it runs
        with. None: no sensible answer in time."""
        ...

    async def has_spare_device(self, resource: str, count: int, node_selector: Mapping[str, str]) -> bool | None:
        """Whether one pod more that asks for `count` of `resource` would find a node; None: not allowed to know.

        True also where no node could ever hold so many: to end another pod would not help.
        """
        ...

    async def endpoint(self, namespace: str, name: str) -> str | None:
        """URL at which clients reach the Service, without a trailing slash; None when there is no such Service."""
        ...


def key_of(obj: Mapping[str, Any]) -> Key:
    """The key of an object as it came from a cluster or goes to one."""
    metadata = obj["metadata"]
    return Key(obj["kind"], metadata.get("namespace", "default"), metadata["name"])


def controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference of the controller, or None."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)
