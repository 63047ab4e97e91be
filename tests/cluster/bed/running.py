"""A bed that runs: a cluster, and the powers over its machine that no other cluster gives."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bed import cluster, control_plane, errors, images, machine, network, node, parts, processes
from bed import layout as layout_

START_SECONDS = 180.0
STOP_SECONDS = 5.0
"""Between SIGTERM and SIGKILL."""
POST = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], sys.stdin.buffer.read(), 30).read().decode())"


@dataclass(frozen=True)
class Bed(cluster.Cluster):
    layout: layout_.Layout

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def record(self) -> layout_.Record:
        record = layout_.load(self.layout)
        if record is None:
            raise errors.BedError(f"the bed {self.name!r} was removed")
        return record

    @property
    def net(self) -> network.Network:
        """Addresses: of the node, of pods and Services."""
        net = self.record.network
        if net is None:
            raise errors.BedError(f"the bed {self.name!r} has no network yet")
        return net

    @property
    def kubectl_program(self) -> str:
        return control_plane.program("kubectl")

    @property
    def has_controllers(self) -> bool:
        return "controllers" in parts.names(self.record.options)

    def environment(self) -> dict[str, str]:
        made = super().environment()
        made["PATH"] = f"{machine.programs_folder()}:{made['PATH']}"
        return made

    def wrap(self, command: Sequence[str]) -> list[str]:
        """Inside the bed's network, with kubectl and helm of the bed's versions first on PATH."""
        return self.net.enter(*command)

    # -- its parts: etcd, apiserver, controllers, scheduler, containerd, kubelet, proxy --

    def start(self, name: str) -> None:
        """Starts a part and waits until it works. Raises `StartFailed`."""
        part = parts.part(name, self.layout, self.record)
        log = self.layout.log(name)
        process = processes.start(self.wrap(part.command), log, self.environment())
        self._remember({**self.record.parts, name: process})
        self._wait(f"{name} is ready", part.is_ready, name)

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL when that is not enough."""
        if not processes.stop(self._process(name), signal.SIGTERM, STOP_SECONDS):
            self.kill(name)

    def kill(self, name: str) -> None:
        processes.stop(self._process(name), signal.SIGKILL)

    def restart(self, name: str) -> None:
        self.stop(name)
        self.start(name)

    def pid(self, name: str) -> int:
        return self._process(name).pid

    def log(self, name: str) -> str:
        """All that a part has written."""
        return self.layout.log(name).read_text(encoding="utf-8", errors="replace")

    def resident_bytes(self) -> dict[str, int]:
        """Resident memory of each part that runs, without the containers."""
        page = os.sysconf("SC_PAGE_SIZE")
        found = {name: process.pid for name, process in self.record.parts.items() if process.is_alive}
        return {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for name, pid in found.items()}

    def _process(self, name: str) -> processes.Process:
        try:
            return self.record.parts[name]
        except KeyError:
            known = ", ".join(self.record.parts)
            raise errors.BedError(f"got the part {name!r}, expected one of {known}") from None

    def _remember(self, made: Mapping[str, processes.Process]) -> None:
        layout_.save(self.layout, dataclasses.replace(self.record, parts=made))

    def _wait(self, what: str, is_true: Callable[[], bool], part: str) -> None:
        end = time.monotonic() + START_SECONDS
        while not is_true():
            if not self._process(part).is_alive or time.monotonic() > end:
                said = processes.tail(self.layout.log(part))
                raise errors.StartFailed(f"gave up waiting until {what}; the last lines of {part}:\n{said}")
            time.sleep(0.1)

    # -- the node --

    def wait_for_node(self) -> None:
        self._wait("the node is ready", self._node_is_ready, "kubelet")

    def _node_is_ready(self) -> bool:
        found = self.get("node", node.NODE)
        conditions = found["status"].get("conditions", []) if found else []
        return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)

    def set_devices(self, devices: Mapping[str, int]) -> None:
        """How many devices the node pretends to have, from now on; waits until kubelet and scheduler count them.

        Stays until the kubelet starts anew, which forgets resources that no plugin announces.
        """
        wanted = {name: str(count) for name, count in devices.items()}
        patch = json.dumps({"status": {"capacity": wanted}})
        self.kubectl("patch", "node", node.NODE, "--subresource=status", "--type=merge", "-p", patch)

        # The kubelet copies capacity to allocatable, which the scheduler reads. Setting both would be quicker, and the
        # kubelet would refuse a pod on a device that it has not heard of yet.
        def is_counted() -> bool:
            found = self.get("node", node.NODE) or {}
            return bool(wanted.items() <= found["status"]["allocatable"].items())

        self.eventually(f"the node counts {wanted}", is_counted)

    def load(self, image: images.Image) -> str:
        """Packs an image and gives it to the node; its name. Pods use it with `imagePullPolicy: Never`."""
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "image.tar"
            images.pack(image, archive)
            self.load_archive(archive)
        return image.name

    def load_archive(self, archive: Path) -> None:
        """A docker-archive or OCI archive that somebody else made. Raises `BedError`."""
        try:
            node.import_image(self.layout, str(archive))
        except subprocess.CalledProcessError as cause:
            raise errors.BedError(f"containerd does not take {archive}: {cause.stderr.strip()}") from cause

    # -- the API server's insides --

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """What the API server has written so far under `Options.audit_policy`, oldest first."""
        if not self.layout.audit_log.exists():
            return
        with self.layout.audit_log.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.endswith("\n"))

    def compact(self) -> int:
        """Forgets all history in etcd but the present; the revision. A watch from before it ends with 410 Gone,
        once the API server has lost its own memory of it too: `kill` and `start` it."""
        answer = self._etcd("kv/range", {"key": "AA=="})
        revision = int(answer["header"]["revision"])
        self._etcd("kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def _etcd(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """etcd's JSON door listens on the inner loopback only, so the request is made inside."""
        command = [sys.executable, "-c", POST, f"{control_plane.ETCD_URL}/v3/{path}"]
        done = self.run(command, stdin=json.dumps(body))
        return dict(json.loads(done.stdout))
