"""`interface.Cluster` on an API server. Reads are answered from the cache; writes go to the server, and their answers
into the cache at once, so that the next pass sees them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import msgspec

from tidemark_operator import names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import engines, interface
from tidemark_operator.cluster.kubernetes import activity as activity_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import cache as cache_
from tidemark_operator.cluster.kubernetes import (
    kinds,
    metrics,
    nodes,
    optional_kinds,
    pod_events,
    recorder,
    resync,
    service_counts,
    service_series,
    subscription,
)
from tidemark_operator.monitoring import operator_metrics
from tidemark_runtime.contract import status as contract

_PORTS = {"http": 80, "https": 443}

_JOB_LABEL = "batch.kubernetes.io/job-name"
"""On every pod of a Job, since Kubernetes 1.27."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class KubernetesCluster:
    """`feed` is told by watches; `recorder.run`, `resync.run` and `optional.run` are to run beside the reconcile
    loop."""

    def __init__(
        self,
        api: api_.Api,
        http: httpx.AsyncClient,
        identity: str,
        namespaces: Sequence[str],
        *,
        settings: settings_.KubernetesSettings,
        engine_settings: settings_.EngineSettings,
        recorder_settings: settings_.RecorderSettings,
        clock: clock_.Clock,
        metrics_: metrics.Metrics,
    ) -> None:
        """`namespaces`: those that are watched; `("",)`: all. `http` must not verify certificates."""
        self._api = api
        self._engines = engines.Engines(http, engine_settings)
        self._nodes = nodes.Nodes(api, settings, clock)
        self._pod_events = pod_events.PodEvents(api, settings, clock)
        self.cache = cache_.Cache()
        self.activity = activity_.Activity([kind.name for kind in kinds.WATCHED], namespaces, clock)
        self.resync = resync.Resync(
            api, self.cache, self.activity, namespaces, settings=settings, clock=clock, rng=random.Random()
        )
        self.optional = optional_kinds.OptionalKinds(
            api, self.cache, self.resync, namespaces, settings=settings, clock=clock
        )
        self.recorder = recorder.Recorder(
            api, identity, settings=recorder_settings, clock=clock, dropped=metrics_.event_dropped
        )
        self.counts = service_counts.ServiceCounts(self.cache)
        metrics_.services_at_scrape(service_series.ServiceSeries(self.cache, self.counts).samples)
        metrics_.read_at_scrape(
            operator_metrics.WATCH_AGE, lambda: (((kind,), age) for kind, age in self.activity.ages().items())
        )
        metrics_.read_at_scrape(
            operator_metrics.CACHED_OBJECTS,
            lambda: (((kind,), float(count)) for kind, count in self.cache.counts().items()),
        )

    def feed(self, change: str | None, document: interface.Object) -> None:
        """What a watch tells. `change`: None for an object that was there before the watch began."""
        self.activity.worked(document["kind"], document["metadata"]["namespace"])
        if change == interface.Change.DELETED:
            self.cache.remove(interface.key_of(document), cache_.version_of(document))
        else:
            self.cache.put(document)

    async def get(self, key: interface.Key) -> interface.Object | None:
        """Only a name that the cache does not have is asked for: an object without our label is not streamed to us, and
        we must not take for free a name that somebody else's object has."""
        found = self.cache.get(key)
        if found is not None or not kinds.TABLE[key.kind].labelled:
            return found
        body = await self._api.get(key)
        if body is None:
            return None
        document: interface.Object = _decode(body)
        return self._keep(document)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[interface.Object]:
        return self.cache.list(kind, namespace, labels)

    async def apply(self, manifest: interface.Object) -> interface.Object:
        """What others have put into a list stays there, and may contradict what we put back: two ports of one name.
        Then our lists take the place of theirs first."""
        try:
            body = await self._api.apply(manifest)
        except api_.Invalid:
            if self.cache.entry(interface.key_of(manifest)) is None:
                raise  # there is nothing of others in it
            await self._replace_lists(manifest)
            body = await self._api.apply(manifest)
        return self._keep(_decode(body))

    async def delete(self, key: interface.Key) -> None:
        await self._api.delete(key)

    async def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> interface.Object | None:
        body = await self._api.patch_status(key, status)
        return self._keep(_decode(body)) if body is not None else None

    async def lacks(self, kind: str, namespace: str) -> interface.Lack | None:
        return self.optional.lacks(kind, namespace)

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[interface.WatchEvent]:
        """`namespace` empty: all that are watched."""
        async for event in subscription.Subscription(self.cache, kind, namespace).events():
            yield event

    async def record_event(self, about: interface.Object, type_: str, reason: str, message: str) -> None:
        self.recorder.record(about, type_, reason, message)

    async def pods_of_job(self, job: interface.Key) -> Sequence[interface.Object]:
        page = await self._api.page(
            kinds.TABLE["Pod"], job.namespace, selector=f"{_JOB_LABEL}={job.name}", cached=False
        )
        found = [_decode(bytes(raw)) for raw in page.items]
        return sorted(found, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))

    async def complaints(self, pod: interface.Object) -> Sequence[interface.Complaint]:
        return await self._pod_events.complaints(pod)

    async def engine_status(self, pod: interface.Object) -> contract.EngineStatus | None:
        where = address(pod)
        return await self._engines.ask(where) if where is not None else None

    async def configure_engine(
        self, pod: interface.Object, document: Mapping[str, Any], token: str
    ) -> interface.ConfigAnswer | None:
        where = address(pod)
        return await self._engines.configure(where, document, token) if where is not None else None

    async def has_spare_device(self, resource: str, count: int, node_selector: Mapping[str, str]) -> bool | None:
        return await self._nodes.has_spare_device(resource, count, node_selector)

    async def endpoint(self, namespace: str, name: str) -> str | None:
        service = self.cache.get(interface.Key("Service", namespace, name))
        if service is None:
            return None
        port = (service["spec"].get("ports") or [{}])[0]
        scheme = "https" if port.get("appProtocol") == "https" else "http"
        number = port.get("port", _PORTS[scheme])
        return f"{scheme}://{name}.{namespace}.svc" + ("" if number == _PORTS[scheme] else f":{number}")

    async def _replace_lists(self, manifest: interface.Object) -> None:
        key = interface.key_of(manifest)
        content = {name: value for name, value in manifest.items() if name not in ("apiVersion", "kind", "metadata")}
        await self._api.merge(kinds.TABLE[key.kind], key.namespace, key.name, content)

    def _keep(self, document: interface.Object) -> interface.Object:
        """Into the cache, if that would be told of the object anyway. The caller gets what the cache would give."""
        kind = kinds.TABLE[document["kind"]]
        document["metadata"].pop("managedFields", None)
        labelled = names.SERVICE_LABEL in (document["metadata"].get("labels") or {})
        if kind.watched and (labelled or not kind.labelled):
            self.cache.put(document)
        return document


def address(pod: Mapping[str, Any]) -> engines.Address | None:
    """Where the pod's engine can be asked; None when there is nobody to ask yet, or any more."""
    status = pod.get("status") or {}
    if not status.get("podIP") or status.get("phase") != "Running":
        return None
    for container in pod["spec"]["containers"]:
        if container["name"] == names.CONTAINER:
            ports = container.get("ports") or ()
            port = next((item["containerPort"] for item in ports if item.get("name") == names.PORT_NAME), None)
            if port is not None:
                return engines.Address(status["podIP"], port, engines.scheme_of(container))
    return None
