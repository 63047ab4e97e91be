"""What the containers of a bed leave outside its folders: control groups, sockets, small files, links to logs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bed import layout as layout_
from bed import machine, network, node, processes

BUSY_SECONDS = 30.0
"""A control group whose processes were just killed is busy for a moment."""
TASKS = "io.containerd.runtime.v2.task"
KEPT_BY_CNI = Path("/var/lib/cni/results")
LINKS_OF_KUBELET = Path("/var/log/containers")


def container_ids(layout: layout_.Layout) -> list[str]:
    """Of containers and sandboxes that containerd knows, from its state folder: it need not run."""
    state = layout.run / "containerd"
    folders = (state / TASKS / node.NAMESPACE, *(state / "io.containerd.grpc.v1.cri").glob("*s"))
    ids = {path.name for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return sorted(identifier for identifier in ids if len(identifier) == 64)


def paths(layout: layout_.Layout, ids: list[str]) -> list[Path]:
    """All that exist of these containers' traces."""
    found = [*cgroups(ids), *_sockets(layout)]
    for kept in KEPT_BY_CNI.glob("*"):
        if kept.name.startswith(f"{network.Network(layout.name, 0).namespace}-") or any(i in kept.name for i in ids):
            found.append(kept)
    links = (path for path in LINKS_OF_KUBELET.glob("*.log") if path.is_symlink())
    found += [path for path in links if str(path.readlink()).startswith(f"{layout.state}/")]
    return found


def remove(found: list[Path]) -> None:
    """Control groups once they are empty; the rest at once."""
    groups = [path for path in found if path.is_dir() and not path.is_symlink()]
    for path in found:
        if path not in groups:
            path.unlink(missing_ok=True)

    def is_gone() -> bool:
        folders = [Path(path) for top in groups for path, _, _ in os.walk(top, topdown=False)]
        removed = [_rmdir(folder) for folder in folders]  # all of them, not up to the first that is busy
        return all(removed)

    processes.eventually(is_gone, BUSY_SECONDS)


def cgroups(ids: list[str]) -> list[Path]:
    """Groups of these containers: one below each controller (cgroup v1), or one (v2)."""
    roots = [machine.CGROUPS] if machine.has_cgroup_v2() else list(machine.CGROUPS.iterdir())
    folders = [root / node.NAMESPACE / identifier for root in roots for identifier in ids]
    return [folder for folder in folders if folder.is_dir()]


def _sockets(layout: layout_.Layout) -> list[Path]:
    """Of the shims, whose place containerd has built in."""
    found = []
    for file in (layout.run / "containerd" / TASKS / node.NAMESPACE).glob("*/bootstrap.json"):
        address = str(json.loads(file.read_text() or "{}").get("address", ""))
        if address.startswith("unix://"):
            found.append(Path(address.removeprefix("unix://")))
    return [path for path in set(found) if path.exists()]


def _rmdir(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
