"""Children of a service: brought in order where they are not, deleted where they are no longer wanted.

What is there is read first and compared, so a pass over a service that is as it should be writes nothing. Secrets are
the exception: the operator may not read them. They are written again once in a while, and at its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.plan import drift, watching

KINDS = (
    "ServiceAccount",
    "ConfigMap",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Service",
    "Deployment",
    "ControllerRevision",
    "CronJob",
    *watching.KINDS,
)
"""Kinds that a plan may hold and that may be read."""
LASTING_KINDS = ("Service", "Deployment")
"""Of those: there is one of each as long as there is the service, always of the same name, so the operator never
deletes any and may not. A child of another kind that is no longer wanted is deleted."""
WRITE_ONLY_KINDS = ("Secret",)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the children in one pass."""

    deployment: interface.Object | None
    failures: tuple[errors.ClusterError, ...]


class Children:
    """Applies and deletes. Knows what it last wrote of each Secret, and nothing else between two passes."""

    def __init__(self, cluster: interface.Cluster, settings: settings_.ReconcileSettings, clock: clock_.Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._written: dict[interface.Key, tuple[str, float]] = {}

    async def bring_in_order(
        self, document: interface.Object, wanted: Sequence[Mapping[str, Any]], keep: Iterable[interface.Key] = ()
    ) -> Outcome:
        """Apply every wanted child that differs and delete every other one that is not in `keep`. One that fails does
        not keep back the rest (B067)."""
        failures: list[errors.ClusterError] = []
        deployment = None
        sealed = [drift.sealed(manifest) for manifest in wanted]
        for manifest in sealed:
            try:
                applied = await self.apply(document, manifest)
            except errors.ClusterError as error:
                failures.append(error)
                await self._cluster.record_event(
                    document, "Warning", f"Apply{manifest['kind']}Failed", f"{manifest['metadata']['name']}: {error}"
                )
            else:
                deployment = applied if manifest["kind"] == "Deployment" else deployment
        try:
            await self._delete_others(document, {*map(interface.key_of, sealed), *keep})
        except errors.ClusterError as error:
            failures.append(error)
        return Outcome(deployment, tuple(failures))

    def forget(self, own: interface.Key) -> None:
        """The service is gone."""
        self._written.pop(interface.Key("Secret", own.namespace, names.admin_secret(own.name)), None)

    async def apply(self, document: interface.Object, manifest: interface.Object) -> interface.Object | None:
        """A sealed manifest, where the object differs from it; the object as it is now, None where nobody may read it.
        Raises `errors.ClusterError`."""
        key = interface.key_of(manifest)
        if key.kind in WRITE_ONLY_KINDS:
            await self._write_unread(key, manifest)
            return None
        live = await self._cluster.get(key)
        if live is not None:
            _check_owner(key, live, document)
        if drift.first(manifest, live) is None:
            return live
        return await self._cluster.apply(manifest)

    async def _write_unread(self, key: interface.Key, manifest: interface.Object) -> None:
        hash_ = manifest["metadata"]["annotations"][names.MANIFEST_HASH_ANNOTATION]
        now = self._clock.monotonic()
        before, when = self._written.get(key, ("", 0.0))
        if before == hash_ and now - when < self._settings.rewrite_secrets_seconds:
            return
        await self._cluster.apply(manifest)
        self._written[key] = (hash_, now)

    async def _delete_others(self, document: interface.Object, keep: set[interface.Key]) -> None:
        own = interface.key_of(document)
        for kind in (kind for kind in KINDS if kind not in LASTING_KINDS):
            for child in await self._cluster.list(kind, own.namespace, names.selector(own.name)):
                if is_ours(child, document) and interface.key_of(child) not in keep:
                    await self._cluster.delete(interface.key_of(child))


def is_ours(child: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Whether this very service made the child; not one of its name before it, nor whoever set the same labels."""
    controller = interface.controller_of(child) or {}
    return bool(controller.get("uid") == document["metadata"]["uid"])


def _check_owner(key: interface.Key, live: Mapping[str, Any], document: Mapping[str, Any]) -> None:
    """Never take over what somebody else made, only because it has the name that ours would have."""
    if is_ours(live, document):
        return
    controller = interface.controller_of(live)
    if controller is None:
        raise errors.Conflict(
            f"{key} exists and was not made by this service; it is left as it is. Delete or rename it, or give the "
            f"{names.KIND} another name"
        )
    raise errors.Conflict(
        f"{key} belongs to {controller.get('kind')} {controller.get('name')} (uid {controller.get('uid')}). If that is "
        "an earlier service of this name, it is being cleaned up and this passes by itself"
    )
