"""Cores and memory as a container sees them, from made /proc and /sys trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_runtime.worker import cpu

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    meminfo = "MemTotal: 33554432 kB\nMemFree: 1 kB\nMemAvailable: 16777216 kB\n"
    for name, text in {"proc/meminfo": meminfo, "proc/self/status": "VmRSS:\t1024 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/cpu.max": "150000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/pod/box\n", "sys/fs/cgroup/pod/cpu.max": "300000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/pod\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/pod\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert cpu.usable_cores(tree(tmp_path, files), affinity=8) == cores


@pytest.mark.parametrize(
    ("files", "num_bytes", "source"),
    [
        ({}, 16 * GIB + (1 << 20), "memory available on this machine"),
        ({"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n"}, 2 * GIB, "cgroup limit"),
        (
            {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": "max\n"},
            16 * GIB + (1 << 20),
            "memory available on this machine",
        ),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/memory.max": f"{3 * GIB}\n",
                "sys/fs/cgroup/pod/box/memory.max": f"{5 * GIB}\n",
            },
            3 * GIB,
            "cgroup limit",
        ),
        (
            {"proc/self/cgroup": "9:memory:/pod\n", "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{GIB}\n"},
            GIB,
            "cgroup limit",
        ),
        (
            {
                "proc/self/cgroup": "9:memory:/pod\n",
                "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "9223372036854771712\n",
            },
            16 * GIB + (1 << 20),
            "memory available on this machine",
        ),
        (
            {"proc/self/cgroup": "0::/pod\n", "sys/fs/cgroup/pod/memory.max": f"{64 * GIB}\n"},
            16 * GIB + (1 << 20),
            "memory available on this machine",
        ),
    ],
)
def test_memory(tmp_path: Path, files: dict[str, str], num_bytes: int, source: str) -> None:
    assert cpu.memory_limit(tree(tmp_path, files)) == cpu.MemoryLimit(num_bytes, source)


def test_this_machine() -> None:
    assert cpu.usable_cores() >= 1
    assert cpu.memory_limit().num_bytes > cpu.resident_bytes() > 1 << 20
