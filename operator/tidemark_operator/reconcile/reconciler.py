"""One pass over one InferenceService: wanted against present, repaired; observed, told in status.

The same code for Kubernetes and for `tidemark up`: everything that differs is behind the cluster interface. A pass
starts from what is there now and remembers nothing of the pass before, so it may be repeated, interrupted or late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, effects, errors, names, plan, status
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.reconcile import queue

CHILD_KINDS = ("ServiceAccount", "ConfigMap", "Service", "Deployment")
"""Kinds that a plan may hold; a child of one of these that is no longer wanted is deleted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the children in one pass."""

    deployment: interface.Object | None
    failures: tuple[errors.ClusterError, ...]


class Reconciler:
    """`run` is the work of a `queue.WorkQueue` whose keys name InferenceServices."""

    def __init__(
        self,
        cluster: interface.Cluster,
        facts: plan.Facts,
        *,
        settings: settings_.ReconcileSettings,
        clock: clock_.Clock,
        local: bool = False,
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._settings = settings
        self._clock = clock
        self._local = local

    async def run(self, key: interface.Key) -> float | None:
        """One pass. Raises `ClusterError` when a child could not be brought in order; all others were tried (B067)."""
        document = await self._cluster.get(key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            return queue.GONE
        try:
            service = api.parse(document)
        except errors.ManifestError as error:  # what runs goes on: the last good children are left as they are
            await self._tell(document, status.invalid(document, error.problems, self._clock.now()))
            return None
        outcome = await self._bring_in_order(service, document)
        observed = await self._observe(service, document, outcome)
        computed = status.compute(service, observed, self._clock.now())
        await self._tell(document, computed)
        if outcome.failures:
            raise outcome.failures[0]
        return self._settings.ready_seconds if _is_ready(computed) else self._settings.unready_seconds

    async def _bring_in_order(self, service: api.InferenceService, document: interface.Object) -> Outcome:
        """Apply every wanted child and delete every other one. One that fails does not keep back the rest."""
        failures: list[errors.ClusterError] = []
        deployment = None
        wanted = [_new_process(child, plan.config_hash(service)) for child in plan.wanted(service, self._facts)]
        for manifest in wanted:
            try:
                applied = await self._cluster.apply(manifest)
            except errors.ClusterError as error:
                failures.append(error)
                await self._cluster.record_event(
                    document, "Warning", f"Apply{manifest['kind']}Failed", f"{manifest['metadata']['name']}: {error}"
                )
            else:
                deployment = applied if manifest["kind"] == "Deployment" else deployment
        try:
            await self._delete_unwanted(document, wanted)
        except errors.ClusterError as error:
            failures.append(error)
        return Outcome(deployment, tuple(failures))

    async def _delete_unwanted(self, document: interface.Object, wanted: Sequence[interface.Object]) -> None:
        own = interface.key_of(document)
        keep = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
        for kind in CHILD_KINDS:
            for child in await self._cluster.list(kind, own.namespace, names.selector(own.name)):
                controller = interface.controller_of(child) or {}
                ours = controller.get("uid") == document["metadata"]["uid"]
                if ours and (kind, child["metadata"]["name"]) not in keep:
                    await self._cluster.delete(interface.key_of(child))

    async def _observe(
        self, service: api.InferenceService, document: interface.Object, outcome: Outcome
    ) -> status.Observed:
        own = interface.key_of(document)
        pods = await self._cluster.list("Pod", own.namespace, names.selector(own.name))
        answers = await asyncio.gather(*(self._cluster.engine_status(pod) for pod in pods))
        problems = [str(warning) for warning in effects.unsupported(service, local=self._local)]
        return status.Observed(
            deployment=outcome.deployment,
            pods=pods,
            engines={pod["metadata"]["name"]: answer for pod, answer in zip(pods, answers, strict=True)},
            wanted_hash=plan.config_hash(service),
            url=await self._cluster.endpoint(own.namespace, names.service(own.name)),
            warnings=[*problems, *(str(failure) for failure in outcome.failures)],
        )

    async def _tell(self, document: interface.Object, computed: dict[str, Any]) -> None:
        """Write the status when it says something new, and an event when Ready changes its reason."""
        before = document.get("status") or {}
        if computed == before:
            return
        await self._cluster.patch_status(interface.key_of(document), computed)
        old, new = _ready_condition(before), _ready_condition(computed)
        if (old.get("status"), old.get("reason")) != (new.get("status"), new.get("reason")):
            type_ = "Normal" if new.get("status") != "False" or not old else "Warning"
            await self._cluster.record_event(document, type_, str(new.get("reason")), str(new.get("message", "")))


def _new_process(manifest: interface.Object, config_hash: str) -> interface.Object:
    """A Deployment whose pods are replaced with every change of a setting. Engines read their file only at their start
    so far; once hot settings are pushed to them, the plan's own restart hash is enough and this goes away."""
    if manifest["kind"] == "Deployment":
        annotations = manifest["spec"]["template"]["metadata"].setdefault("annotations", {})
        annotations[names.CONFIG_HASH_ANNOTATION] = config_hash
    return manifest


def _ready_condition(computed: dict[str, Any]) -> dict[str, Any]:
    conditions = computed.get("conditions") or ()
    return next((item for item in conditions if item["type"] == "Ready"), {})


def _is_ready(computed: dict[str, Any]) -> bool:
    return _ready_condition(computed).get("status") == "True"
