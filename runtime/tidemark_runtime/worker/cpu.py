"""What this process may use of the machine: cores (affinity and cgroup quota) and memory (cgroup limit or machine)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes a huge number where there is no limit."""

_KIB_BYTES = 1024


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """Bytes this process may use, and where that number comes from."""

    num_bytes: int
    source: str


def usable_cores(root: Path = Path("/"), affinity: int | None = None) -> int:
    """At least 1: cores of the affinity mask, less where a cgroup quota allows fewer (a fraction rounds up)."""
    cores = len(os.sched_getaffinity(0)) if affinity is None else affinity
    quotas = [quota for group in _groups(root, "cpu") if (quota := _quota(group)) is not None]
    return max(1, min([cores, *(math.ceil(quota) for quota in quotas)]))


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """The tightest cgroup limit above this process, else what the machine has available now."""
    available = _available_bytes(root)
    limits = [limit for group in _groups(root, "memory") if (limit := _limit(group)) is not None]
    if limits and min(limits) <= available:
        return MemoryLimit(min(limits), "cgroup limit")
    return MemoryLimit(available, "memory available on this machine")


def _groups(root: Path, controller: str) -> list[Path]:
    """Folders of this process's cgroups, v2 and v1, from its own up to the root (limits of parents hold, too)."""
    found: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controllers
            base = base if base.is_dir() else root / "sys/fs/cgroup" / controller
        else:
            continue
        relative = Path(path.lstrip("/"))
        found += [base / parent for parent in (relative, *relative.parents)]
    return found


def _quota(group: Path) -> float | None:
    """Cores a group may use, from `cpu.max` (v2) or `cpu.cfs_quota_us` (v1)."""
    fields = _read(group / "cpu.max").split()
    if len(fields) == 2 and fields[0] != "max":
        return int(fields[0]) / int(fields[1])
    quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def _limit(group: Path) -> int | None:
    """Bytes a group may use, from `memory.max` (v2) or `memory.limit_in_bytes` (v1)."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = _read(group / name)
        if text and text != "max" and int(text) < _UNLIMITED_BYTES:
            return int(text)
    return None


def _available_bytes(root: Path) -> int:
    """MemAvailable plus what this process holds already: weights loaded so far count in the sum as weights."""
    return _field(_read(root / "proc/meminfo"), "MemAvailable:") * _KIB_BYTES + resident_bytes(root)


def num_killed_for_memory(root: Path = Path("/")) -> int:
    """Processes of this one's cgroup, and of those below it, that the system has killed for memory so far; 0 where it
    does not say. From `memory.events` (v2) or `memory.oom_control` (v1)."""
    for group in _groups(root, "memory")[:1]:
        for name in ("memory.events", "memory.oom_control"):
            for line in _read(group / name).splitlines():
                word, _, number = line.partition(" ")
                if word == "oom_kill":
                    return int(number)
    return 0


def resident_bytes(root: Path = Path("/")) -> int:
    """Memory this process holds now."""
    return _field(_read(root / "proc/self/status"), "VmRSS:") * _KIB_BYTES


def peak_resident_bytes(root: Path = Path("/")) -> int:
    """The most it has held, since its start or since that was reset."""
    return _field(_read(root / "proc/self/status"), "VmHWM:") * _KIB_BYTES


def _field(text: str, name: str) -> int:
    for line in text.splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _read(path: Path) -> str:
    """A small kernel file's text; empty where it does not exist (other cgroup version, other controller)."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
