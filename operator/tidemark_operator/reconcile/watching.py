"""What Prometheus and Grafana watch a service with, brought in order like all its children.

The rules of a service are 50 KB, and to make and compare them takes milliseconds. So it is remembered in which version
each object was found as it should be, and for what: as long as both are the same there is nothing to make or compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, errors, plan, status
from tidemark_operator.cluster import interface
from tidemark_operator.plan import drift
from tidemark_operator.plan import watching as plan_watching
from tidemark_operator.reconcile import children
from tidemark_operator.status import monitoring as status_monitoring

_Versions = Mapping[interface.Key, str]


@dataclass(frozen=True, slots=True)
class Watched:
    """What became of the objects in one pass."""

    keys: frozenset[interface.Key] = frozenset()
    """Those that should exist."""
    condition: status.Condition | None = None
    failures: tuple[errors.OperatorError, ...] = ()


class Watching:
    """Makes the objects that the cluster has kinds for. What is no longer wanted is deleted with other children."""

    def __init__(self, cluster: interface.Cluster, children_: children.Children) -> None:
        self._cluster = cluster
        self._children = children_
        self._settled: dict[interface.Key, tuple[str, _Versions]] = {}
        """Of each service: what its objects were made from, and the version of each."""

    async def bring_in_order(
        self, document: interface.Object, service: api.InferenceService, facts: plan.Facts
    ) -> Watched:
        """One that fails does not keep back the rest (B067)."""
        own = interface.key_of(document)
        lacks = {kind: await self._cluster.lacks(kind, own.namespace) for kind in plan_watching.KINDS}
        kinds = frozenset(kind for kind, lack in lacks.items() if lack is None)
        made_from = _made_from(document, service, facts, kinds)
        versions = await self._still_settled(own, made_from)
        failures: list[errors.OperatorError] = []
        if versions is None:
            versions, failures = await self._make(document, service, facts, kinds)
            if failures:
                self._settled.pop(own, None)
            else:
                self._settled[own] = (made_from, versions)
        found = status_monitoring.Found(
            lacks=[
                status_monitoring.Lack(kind=kind, reason=lack.reason, message=lack.message)
                for kind in plan_watching.SCRAPE_KINDS
                if (lack := lacks[kind]) is not None
            ],
            failures=[str(failure) for failure in failures],
            is_let_in=bool(facts.monitoring_namespaces),
        )
        return Watched(frozenset(versions), status_monitoring.condition(service, found), tuple(failures))

    def forget(self, own: interface.Key) -> None:
        """The service is gone."""
        self._settled.pop(own, None)

    async def _still_settled(self, own: interface.Key, made_from: str) -> _Versions | None:
        before, versions = self._settled.get(own, ("", {}))
        if before != made_from:
            return None
        for key, version in versions.items():
            live = await self._cluster.get(key)
            if live is None or live["metadata"].get("resourceVersion") != version:
                return None
        return versions

    async def _make(
        self, document: interface.Object, service: api.InferenceService, facts: plan.Facts, kinds: frozenset[str]
    ) -> tuple[_Versions, list[errors.OperatorError]]:
        versions: dict[interface.Key, str] = {}
        failures: list[errors.OperatorError] = []
        try:
            wanted = [drift.sealed(manifest) for manifest in plan.monitoring(service, facts, kinds)]
        except errors.OperatorError as error:  # a file of the package is missing
            return {}, [error]
        for manifest in wanted:
            key = interface.key_of(manifest)
            versions[key] = ""
            try:
                applied = await self._children.apply(document, manifest)
            except errors.NotFound:
                continue  # its kind is being taken away: the next pass knows
            except errors.ClusterError as error:
                failures.append(error)
                reason = f"Apply{key.kind}Failed"
                await self._cluster.record_event(document, "Warning", reason, f"{key.name}: {error}")
            else:
                versions[key] = applied["metadata"].get("resourceVersion", "") if applied else ""
        return versions, failures


def _made_from(
    document: interface.Object, service: api.InferenceService, facts: plan.Facts, kinds: frozenset[str]
) -> str:
    """Everything that the objects are made from."""
    parts: tuple[Any, ...] = (
        document["metadata"]["uid"],
        service.spec.monitoring.model_dump_json(),
        service.spec.access.tls_secret_ref is not None,
        facts.monitoring_labels,
        facts.runbook_base_url,
        sorted(kinds),
    )
    return repr(parts)
