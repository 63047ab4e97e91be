"""Starting and stopping a bed.

There is one way to stop: kill every process that is inside the bed's network namespaces, unmount what lies below its
folders, remove namespaces, control groups and folders. It is the same after a clean end and after a crash, so the
crash is what every stop tests. Before anything is started, beds are removed whose owner (the test run that started
them) is no longer there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bed import (
    build,
    control_plane,
    errors,
    images,
    machine,
    network,
    node,
    parts,
    processes,
    running,
    traces,
    userland,
    versions,
)
from bed import layout as layout_

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?")
KEPT_LOGS = 6
"""Of so many beds the logs are kept after their end."""


def up(name: str, options: layout_.Options, *, owned: bool = False) -> running.Bed:
    """Starts a bed and waits until it works.

    `owned`: it must not outlive this process; if it does, the next start of any bed removes it.
    Raises `MachineError`, `NameTaken` when it runs already, `StartFailed`.
    """
    check_name(name)
    machine.require(node=options.size == "node")
    missing = [program.name for program in build.missing()]
    if options.size == "api":
        missing = [name for name in missing if name in versions.API_PROGRAMS]
    if missing:
        raise errors.MachineError(f"not built yet: {', '.join(missing)}; run `bed build`")
    remove_orphans()
    layout = layout_.Layout(name)
    with layout_.locked(name):
        _refuse_if_running(layout)
        _remove(layout)
        owner = processes.this_process() if owned else None
        layout_.save(layout, layout_.Record(options, owner=owner))
        try:
            return _start(layout, options, owner)
        except BaseException:  # Ctrl-C included: nothing half-started is left
            _remove(layout)
            raise


def check_name(name: str) -> None:
    """Raises `BedError`. The name becomes part of paths and of a network namespace."""
    if NAME.fullmatch(name) is None:
        raise errors.BedError(f"name of the bed: got {name!r}, expected at most 24 of a-z, 0-9 and - inside")


def down(name: str) -> bool:
    """Stops and removes a bed, running or crashed; whether there was one."""
    layout = layout_.Layout(name)
    with layout_.locked(name):
        existed = layout_.load(layout) is not None
        _remove(layout)
    return existed


def find(name: str) -> running.Bed:
    """A bed that is up, started by this process or another. Raises `BedError`."""
    layout = layout_.Layout(name)
    record = layout_.load(layout)
    if record is None or not record.is_up:
        raise errors.BedError(f"there is no bed {name!r}; `bed up --name {name}` starts it")
    return running.Bed(layout.kubeconfig, layout)


def remove_orphans() -> None:
    """Removes beds whose owner has ended without stopping them."""
    for name in layout_.names():
        record = layout_.load(layout_.Layout(name))
        if record and record.owner and not record.owner.is_alive:
            with contextlib.suppress(errors.NameTaken):  # somebody else is removing it
                down(name)


def leftovers(name: str) -> list[str]:
    """What is there of a bed on this machine: folders, network namespace, containers' traces, mounts.

    Empty after `down`.
    """
    layout = layout_.Layout(name)
    paths = [layout.state, layout.run, network.NAMESPACES / network.Network(name, 0).namespace]
    paths += traces.paths(layout, traces.container_ids(layout))
    return [str(path) for path in paths if path.exists()] + [path for path, _ in _mounted_below(layout)]


def _refuse_if_running(layout: layout_.Layout) -> None:
    record = layout_.load(layout)
    if record and record.is_up and any(process.is_alive for process in record.parts.values()):
        dead = [part for part, process in record.parts.items() if not process.is_alive]
        if not dead:
            raise errors.NameTaken(f"the bed {layout.name!r} runs already; `bed down --name {layout.name}` stops it")


def _start(layout: layout_.Layout, options: layout_.Options, owner: processes.Process | None) -> running.Bed:
    net = network.create(layout.name)
    record = layout_.Record(options, net, owner=owner)
    layout_.save(layout, record)
    control_plane.write_files(layout, record, net)
    if options.size == "node":
        node.write_files(layout, net, userland.mounts(_models()))
    bed = running.Bed(layout.kubeconfig, layout)
    for name in parts.names(options):
        bed.start(name)
        if name == "containerd":
            bed.load(images.pause())
    if options.size == "node":
        bed.wait_for_node()
        bed.set_devices(options.devices)
    record = layout_.load(layout) or record
    layout_.save(layout, dataclasses.replace(record, is_up=True))
    return bed


def _models() -> Path | None:
    """The store of fetched models, where the engine looks for it."""
    base = os.environ.get("XDG_CACHE_HOME")
    usual = (Path(base) if base else Path.home() / ".cache") / "tidemark" / "models"
    folder = Path(os.environ.get("TIDEMARK_MODELS", usual))
    return folder if folder.is_dir() else None


def _remove(layout: layout_.Layout) -> None:
    record = layout_.load(layout)
    if record is not None:
        for process in record.parts.values():
            processes.stop(process, signal.SIGKILL)
    processes.kill_inside(lambda: _namespaces(layout))
    _unmount(layout)
    network.remove(layout.name)
    traces.remove(traces.paths(layout, traces.container_ids(layout)))
    shutil.rmtree(layout.run, ignore_errors=True)
    if layout.state.exists():
        _keep_logs(layout)
        shutil.rmtree(layout.state)


def _namespaces(layout: layout_.Layout) -> set[int]:
    """The bed's own and those of its pods, which containerd keeps as mounts."""
    own = network.inode(layout.name)
    pods = [path for path, kind in _mounted_below(layout) if kind == "nsfs"]
    found = {own} if own is not None else set()
    for path in pods:
        with contextlib.suppress(OSError):
            found.add(os.stat(path).st_ino)
    return found


def _mounted_below(layout: layout_.Layout) -> Iterator[tuple[str, str]]:
    """Mount points below the bed's folders and their file systems' kinds."""
    folders = (f"{layout.state}/", f"{layout.run}/")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        path = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), before.split()[4])
        if path.startswith(folders):
            yield path, after.split()[0]


def _unmount(layout: layout_.Layout) -> None:
    """The inner ones first; lazily, as the kernel may still be busy with the end of a process."""
    paths = sorted((path for path, _ in _mounted_below(layout)), key=len, reverse=True)
    if paths:
        subprocess.run(["umount", "-l", *paths], capture_output=True, check=False)
    if left := [path for path, _ in _mounted_below(layout)]:
        raise errors.BedError(f"cannot unmount {', '.join(left)}; nothing was deleted")


def _keep_logs(layout: layout_.Layout) -> None:
    """Moves the logs to `logs/NAME` of the cache folder; the oldest go."""
    kept = machine.cache_folder() / "logs"
    kept.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(kept / layout.name, ignore_errors=True)
    if layout.logs.is_dir():
        shutil.move(layout.logs, kept / layout.name)
        os.utime(kept / layout.name, (time.time(), time.time()))
    by_age = sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in by_age[KEPT_LOGS:]:
        shutil.rmtree(old, ignore_errors=True)
