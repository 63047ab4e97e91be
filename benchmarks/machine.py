"""What machine a table was made on: the part of every result that makes it comparable."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """Processor, cores, the vector extensions that matter here, memory, Python."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", "").split())
    wanted = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{fields.get('model name', platform.machine())}, {len(os.sched_getaffinity(0))} cores, "
        f"{' '.join(name for name in wanted if name in flags)}, {memory:.0f} GiB, Python {platform.python_version()}"
    )
