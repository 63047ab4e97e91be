"""Gives every Pod of the store a runner, and takes the Pod out of the store when its process is gone."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import files, pod_runner, store

_NUM_LOGS = 20
"""Of pods that are gone; the latest."""


class Kubelet:
    """One for each `tidemark up`; its pods live under `folder`."""

    def __init__(
        self,
        objects: store.Store,
        folder: files.ServiceFolder,
        machine: pod_runner.Machine,
        report: pod_runner.Report,
    ) -> None:
        self._objects = objects
        self._folder = folder
        self._machine = machine
        self._report = report
        self._runners: dict[interface.Key, pod_runner.PodRunner] = {}

    async def run(self) -> None:
        """Until cancelled; then every process is killed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_pods(group))
            group.create_task(self._follow_files("ConfigMap"))
            group.create_task(self._follow_files("Secret"))

    async def _follow_pods(self, group: asyncio.TaskGroup) -> None:
        async for event in self._objects.watch("Pod"):
            key = interface.key_of(event.object)
            if event.change is interface.Change.DELETED:
                continue
            if key not in self._runners:
                self._start(key, event.object, group)
            if "deletionTimestamp" in event.object["metadata"]:
                self._runners[key].stop()

    async def _follow_files(self, kind: str) -> None:
        async for event in self._objects.watch(kind):
            key = interface.key_of(event.object)
            for pod_key, runner in self._runners.items():
                pod = self._objects.get(pod_key)
                if pod is not None and pod_key.namespace == key.namespace and _mounts(pod, kind, key.name):
                    runner.refresh()

    def _start(self, key: interface.Key, pod: interface.Object, group: asyncio.TaskGroup) -> None:
        def publish(status: dict[str, Any]) -> None:
            self._objects.patch_status(key, status)

        def lookup(kind: str, name: str) -> Mapping[str, Any] | None:
            return self._objects.get(interface.Key(kind, key.namespace, name))

        _forget_logs(self._folder.logs, keep={name for _, _, name in self._runners})
        folder, log = self._folder.pods / key.name, files.log_of(self._folder.logs, key.name)
        runner = pod_runner.PodRunner(pod, folder, log, self._machine, lookup, publish, self._report)
        self._runners[key] = runner
        group.create_task(self._live(key, runner, folder), name=f"pod {key.name}")

    async def _live(self, key: interface.Key, runner: pod_runner.PodRunner, folder: Path) -> None:
        try:
            await runner.run()
        finally:
            del self._runners[key]
            shutil.rmtree(folder, ignore_errors=True)
            self._objects.remove(key)


def _forget_logs(logs: Path, keep: set[str]) -> None:
    """A day of edits starts many pods, and each leaves a log."""
    if logs.is_dir():
        old = [log for log in logs.iterdir() if log.name.partition(".")[0] not in keep]
        for log in sorted(old, key=lambda log: log.stat().st_mtime)[: -_NUM_LOGS or None]:
            log.unlink(missing_ok=True)


def _mounts(pod: Mapping[str, Any], kind: str, name: str) -> bool:
    for volume in pod["spec"].get("volumes") or ():
        if kind == "ConfigMap" and volume.get("configMap", {}).get("name") == name:
            return True
        if kind == "Secret" and volume.get("secret", {}).get("secretName") == name:
            return True
    return False
