"""Where a bed keeps its things, what it was asked to be, and what is remembered on disk about it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bed import errors, machine, network, processes

Size = Literal["api", "node"]


@dataclass(frozen=True)
class Options:
    size: Size = "node"
    """api: etcd and API server. node: the rest too, with pods."""
    controllers: bool = False
    """With size api: the controllers too (Deployments, garbage collection); a node has them anyway."""
    audit_policy: Mapping[str, Any] | None = None
    """An `audit.k8s.io/v1` Policy: what it selects is written as JSON lines."""
    devices: Mapping[str, int] = field(default_factory=lambda: {"nvidia.com/gpu": 2})
    """Devices that the node pretends to have."""


@dataclass(frozen=True)
class Layout:
    """Paths of one bed. Sockets lie under /run, as their paths may have 107 characters only."""

    name: str

    @property
    def state(self) -> Path:
        return beds_folder() / self.name

    @property
    def run(self) -> Path:
        return Path("/run") / f"tidemark-bed-{self.name}"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def parts_kubeconfig(self) -> Path:
        """Of the cluster's own parts."""
        return self.state / "parts.kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.state / "audit.jsonl"

    @property
    def socket(self) -> Path:
        """Of containerd."""
        return self.run / "containerd.sock"

    def pki(self, name: str) -> Path:
        return self.state / "pki" / name

    def log(self, part: str) -> Path:
        return self.logs / f"{part}.log"


@dataclass(frozen=True)
class Record:
    """state.json: enough to clean up after a crash, and to go on from another process."""

    options: Options
    network: network.Network | None = None
    parts: Mapping[str, processes.Process] = field(default_factory=dict)
    owner: processes.Process | None = None
    """Who the bed must not outlive; None: it stays until it is stopped."""
    is_up: bool = False


def beds_folder() -> Path:
    return machine.cache_folder() / "beds"


def names() -> list[str]:
    """All beds that left something on disk."""
    folder = beds_folder()
    return sorted(path.parent.name for path in folder.glob("*/state.json")) if folder.is_dir() else []


def load(layout: Layout) -> Record | None:
    """None when there is no such bed."""
    try:
        data = json.loads((layout.state / "state.json").read_text())
    except FileNotFoundError:
        return None
    return Record(
        options=Options(**data["options"]),
        network=network.Network(**data["network"]) if data["network"] else None,
        parts={name: processes.Process(**item) for name, item in data["parts"].items()},
        owner=processes.Process(**data["owner"]) if data["owner"] else None,
        is_up=data["is_up"],
    )


def save(layout: Layout, record: Record) -> None:
    layout.state.mkdir(parents=True, exist_ok=True)
    new = layout.state / "state.json.new"
    new.write_text(json.dumps(dataclasses.asdict(record), indent=1))
    os.replace(new, layout.state / "state.json")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One at a time starts or stops a bed of this name. Raises `NameTaken` when somebody else is at it."""
    beds_folder().mkdir(parents=True, exist_ok=True)
    path = beds_folder() / f"{name}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_current = path.exists() and path.samefile(f"/proc/self/fd/{file.fileno()}")
        except BlockingIOError:
            is_current = False
        if not is_current:  # held, or just removed by the one who held it
            raise errors.NameTaken(f"another process is starting or stopping the bed {name!r} right now")
        try:
            yield
        finally:
            if not Layout(name).state.exists():
                path.unlink()
