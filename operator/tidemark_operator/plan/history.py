"""The history of a service's spec, kept as ControllerRevisions: what was tried, what served, what failed.

A spec that failed is not tried again: the pods get the last one that served, and stay with it until the spec changes.
Everything that says so stands on the ControllerRevisions themselves, so an operator that starts anew decides the same.
How many pods there are (`replicas`, `autoscaling`, `suspend`) and how changes reach them (`rollout`) are no part of a
revision: going back must not scale anything, nor bring back an old deadline.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, errors, names
from tidemark_operator.plan import objects

LIMIT = 10
"""Revisions kept beside the current one and the last good one."""
_OF_NOW = ("replicas", "autoscaling", "suspend", "rollout")


@dataclass(frozen=True, slots=True)
class Revision:
    """One spec that was acted on."""

    hash: str
    number: int
    """Higher is later; going back to an old spec makes it the latest again."""
    spec: Mapping[str, Any]
    good: str = ""
    """When it served with all its replicas for the first time; empty: not yet."""
    failed: str = ""
    """Why its rollout failed; empty: it did not."""


@dataclass(frozen=True, slots=True)
class Acting:
    """The spec that the pods get."""

    service: api.InferenceService
    revision: Revision
    """Of `service`."""
    instead_of: Revision | None = None
    """The revision that the user's spec is, where it failed and an older one runs."""


def read(stored: Iterable[Mapping[str, Any]]) -> list[Revision]:
    """From ControllerRevisions, the oldest first. Objects that are not ours to read are left out."""
    found = []
    for obj in stored:
        data = obj.get("data")
        if not isinstance(data, Mapping) or not isinstance(data.get("spec"), Mapping):
            continue
        notes = obj["metadata"].get("annotations") or {}
        found.append(
            Revision(
                hash=_hash(data["spec"]),
                number=int(obj.get("revision") or 0),
                spec=data["spec"],
                good=notes.get(names.REVISION_GOOD_ANNOTATION, ""),
                failed=notes.get(names.REVISION_FAILED_ANNOTATION, ""),
            )
        )
    return sorted(found, key=lambda revision: (revision.number, revision.hash))


def choose(service: api.InferenceService, known: Sequence[Revision]) -> Acting:
    """What to act on: the spec as it is, or the last good one where that failed and `rollout.autoRollback` is set."""
    own = current(service, known)
    if not own.failed or not service.spec.rollout.auto_rollback:
        return Acting(service, own)
    for older in reversed(known):
        if older.good and older.hash != own.hash:
            back = _with_spec(service, older.spec)
            if back is not None:
                return Acting(back, older, instead_of=own)
    return Acting(service, own)


def current(service: api.InferenceService, known: Sequence[Revision]) -> Revision:
    """The revision that the spec is. One that comes again after others is the latest, and is tried again."""
    spec = _kept(service)
    latest = known[-1].number if known else 0
    own = next((revision for revision in known if revision.hash == _hash(spec)), None)
    if own is None:
        return Revision(_hash(spec), latest + 1, spec)
    if own.number < latest:
        return dataclasses.replace(own, number=latest + 1, failed="")
    return own


def build(service: api.InferenceService, revision: Revision) -> dict[str, Any]:
    """The ControllerRevision that keeps it."""
    notes = {names.REVISION_GOOD_ANNOTATION: revision.good, names.REVISION_FAILED_ANNOTATION: revision.failed}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": objects.metadata(
            service,
            names.revision(service.name, revision.hash),
            {key: value for key, value in notes.items() if value},
        ),
        "revision": revision.number,
        "data": {"spec": dict(revision.spec)},
    }


def surplus(known: Sequence[Revision], keep: Iterable[Revision]) -> list[Revision]:
    """Revisions to forget: the oldest beyond `LIMIT`, never one of `keep`."""
    kept = {revision.hash for revision in keep}
    others = [revision for revision in known if revision.hash not in kept]
    return others[: max(0, len(others) - LIMIT)]


def last_good(known: Sequence[Revision]) -> Revision | None:
    return next((revision for revision in reversed(known) if revision.good), None)


def _kept(service: api.InferenceService) -> dict[str, Any]:
    """What was set and is not the default: null, absent and the default are one and the same (B059)."""
    dumped: dict[str, Any] = service.spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    return {key: value for key, value in dumped.items() if key not in _OF_NOW}


def _with_spec(service: api.InferenceService, spec: Mapping[str, Any]) -> api.InferenceService | None:
    """The same service with an older spec; None where this version of the operator does not accept that any more."""
    now = service.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    metadata = service.metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
    document = {
        "apiVersion": service.api_version,
        "kind": service.kind,
        "metadata": metadata,
        "spec": {**spec, **{key: now[key] for key in _OF_NOW if key in now}},
        "status": service.status,
    }
    try:
        return api.parse(document)
    except errors.ManifestError:
        return None


def _hash(spec: Mapping[str, Any]) -> str:
    """The same for a spec and for what an API server gives back of it."""
    canonical = json.dumps(_plain(spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def _plain(value: Any) -> Any:
    """59.0 as 59, which is how an API server keeps it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
