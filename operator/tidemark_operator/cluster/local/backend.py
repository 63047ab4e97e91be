"""The local cluster behind the cluster interface: store, controllers, kubelet and proxies in one event loop."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import engines, interface
from tidemark_operator.cluster.local import (
    deployments,
    event_log,
    files,
    kubelet,
    pod_runner,
    pod_status,
    probes,
    process,
    proxy,
    store,
    translate,
)
from tidemark_runtime.contract import status as contract

NAMESPACE = "default"
"""The namespace of a manifest that names none."""


class LocalCluster:
    """Use as an async context manager: leaving it ends every process, at once if `drain` was not awaited before."""

    def __init__(
        self,
        folder: files.ServiceFolder,
        service_port: int,
        *,
        settings: settings_.LocalSettings | None = None,
        engine_settings: settings_.EngineSettings | None = None,
        clock: clock_.Clock | None = None,
        programs: Mapping[str, tuple[str, ...]] = translate.PROGRAMS,
    ) -> None:
        self._settings = settings or settings_.LocalSettings()
        self._clock = clock or clock_.SystemClock()
        self.objects = store.Store(now=self._clock.now)
        self._events = event_log.EventLog(self.objects, self._settings.max_events, self._clock)
        self._client = httpx.AsyncClient(trust_env=False, verify=False)
        self._engines = engines.Engines(self._client, engine_settings or settings_.EngineSettings())
        self._service_port = service_port
        self._folder = folder
        self._proxy = proxy.ServiceProxy(self.objects, self._settings.connect_seconds)
        machine = pod_runner.Machine(
            launcher=process.SystemLauncher(self._settings.log_bytes),
            prober=probes.HttpProber(self._client),
            clock=self._clock,
            settings=self._settings,
            environment=dict(os.environ),
            programs=programs,
        )
        self._kubelet = kubelet.Kubelet(self.objects, folder, machine, self._events.record)
        self._controller = deployments.DeploymentController(self.objects, self._clock, lambda: secrets.token_hex(3))
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> LocalCluster:
        """Raises `proxy.PortTaken` before anything is started."""
        await self._proxy.open(self._service_port)
        self._tasks = [
            asyncio.create_task(self._controller.run(), name="deployment controller"),
            asyncio.create_task(self._kubelet.run(), name="kubelet"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._proxy.close()
        await self._client.aclose()

    async def failed(self) -> None:
        """Return never; raise what a controller failed with. To be awaited beside the work; may be cancelled."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def drain(self) -> None:
        """Delete every InferenceService and wait until their pods are gone; pods have their own grace periods."""
        for service in self.objects.list(names.KIND):
            self.objects.delete(interface.key_of(service))
        watch = self.objects.watch("Pod")
        while self.objects.list("Pod"):
            await anext(watch)

    async def get(self, key: interface.Key) -> interface.Object | None:
        return self.objects.get(key)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[interface.Object]:
        return self.objects.list(kind, namespace, labels)

    async def apply(self, manifest: interface.Object) -> interface.Object:
        """The first Service gets our port. Raises `Refused` for a second one, `Conflict` for a dying object."""
        if manifest["kind"] == "Service":
            key = interface.key_of(manifest)
            if self._proxy.service not in (None, key):
                raise errors.Refused(f"{key}: one `tidemark up` has one port, and {self._proxy.service} has it")
            self._proxy.service = key
        return self.objects.apply(manifest, names.FIELD_MANAGER)

    async def delete(self, key: interface.Key) -> None:
        self.objects.delete(key)

    async def patch_status(self, key: interface.Key, status: Mapping[str, Any]) -> interface.Object | None:
        return self.objects.patch_status(key, status)

    async def lacks(self, kind: str, namespace: str) -> interface.Lack | None:
        """Nobody on this machine would act on such an object."""
        return interface.Lack("NotInstalled", f"`tidemark up` has no {kind}")

    async def watch(self, kind: str, namespace: str) -> AsyncIterator[interface.WatchEvent]:
        async for event in self.objects.watch(kind):
            if event.object["metadata"]["namespace"] == namespace:
                yield event

    async def record_event(self, about: interface.Object, type_: str, reason: str, message: str) -> None:
        self._events.record(about, type_, reason, message)

    async def pods_of_job(self, job: interface.Key) -> Sequence[interface.Object]:
        """Nobody runs Jobs here."""
        return []

    async def complaints(self, pod: interface.Object) -> Sequence[interface.Complaint]:
        return self._events.complaints(str(pod["metadata"]["uid"]))

    async def engine_status(self, pod: interface.Object) -> contract.EngineStatus | None:
        where = _address(pod)
        return await self._engines.ask(where) if where is not None else None

    async def configure_engine(
        self, pod: interface.Object, document: Mapping[str, Any], token: str
    ) -> interface.ConfigAnswer | None:
        where = _address(pod)
        if where is None:
            return None
        mounted = translate.mounts(pod, pod["spec"]["containers"][0], self._folder.pods / pod["metadata"]["name"])
        return await self._engines.configure(where, translate.config_document(document, mounted, where.port), token)

    async def has_spare_device(self, resource: str, count: int, node_selector: Mapping[str, str]) -> bool | None:
        """Not known: nobody counts what this machine's processes may use."""
        return None

    async def endpoint(self, namespace: str, name: str) -> str | None:
        known = self._proxy.service == interface.Key("Service", namespace, name)
        if not known:
            return None
        service = self.objects.get(interface.Key("Service", namespace, name)) or {}
        ports = service.get("spec", {}).get("ports") or [{}]
        scheme = "https" if ports[0].get("appProtocol") == "https" else "http"
        return f"{scheme}://{translate.HOST}:{self._proxy.port}"


def _address(pod: Mapping[str, Any]) -> engines.Address | None:
    container = pod["spec"]["containers"][0]
    port = translate.container_port(container)
    where = pod_status.address(pod, port) if port is not None else None
    return engines.Address(*where, engines.scheme_of(container)) if where is not None else None
