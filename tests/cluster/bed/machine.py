"""What this machine offers: root, tools, Go, the kind of cgroups; and where the bed keeps its things."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from bed import errors, versions

CACHE_VARIABLE = "TIDEMARK_TEST_BED"
CHECKOUT = Path(__file__).resolve().parents[3]
CGROUPS = Path("/sys/fs/cgroup")
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
PROXY_VARIABLES = tuple(name for upper in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (upper, upper.lower()))
"""No proxy is reachable from inside a bed, and none is needed to reach it from outside."""


def cache_folder() -> Path:
    """`$TIDEMARK_TEST_BED`, else `tidemark/test-bed` below the user's cache: outside every checkout."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidemark" / "test-bed"


def programs_folder() -> Path:
    return cache_folder() / "bin"


def environment() -> dict[str, str]:
    """For programs of the bed: no proxy, and the system's programs found though PATH is an ordinary user's."""
    kept = {key: value for key, value in os.environ.items() if key not in PROXY_VARIABLES}
    return {**kept, "PATH": f"{kept.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}"}


def tools(*, node: bool) -> dict[str, str]:
    """Programs of the machine that a bed of this size needs -> their Debian packages."""
    return {**versions.TOOLS, **(versions.NODE_TOOLS if node else {})}


def missing_packages(*, node: bool = True) -> list[str]:
    """Debian packages whose programs are not on this machine."""
    return sorted(
        {
            package
            for tool, package in tools(node=node).items()
            if shutil.which(tool, path=environment()["PATH"]) is None
        }
    )


def obstacles(*, node: bool) -> list[str]:
    """Why no bed can run here, one sentence each; empty when one can."""
    found = []
    if sys.platform != "linux":
        found.append(f"it needs Linux, this is {sys.platform}")
    elif os.geteuid() != 0:
        found.append(f"it needs root (network namespaces, mounts), this is user id {os.geteuid()}")
    if missing := missing_packages(node=node):
        found.append(f"programs are missing: apt-get install {' '.join(missing)}")
    if node and (text := _cgroup_obstacle()):
        found.append(text)
    if node and CHECKOUT.is_relative_to("/tmp"):
        found.append(f"the checkout {CHECKOUT} lies in /tmp, where pods see a volume of their own; clone it elsewhere")
    return found


def require(*, node: bool) -> None:
    """Raises `MachineError` with every obstacle."""
    if found := obstacles(node=node):
        raise errors.MachineError("this machine cannot run the test bed: " + "; ".join(found))


def has_cgroup_v2() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def _cgroup_obstacle() -> str | None:
    """In a container with cgroup v2 the processes at its root forbid child groups with limits."""
    is_namespace_root = has_cgroup_v2() and (CGROUPS / "cgroup.type").exists()
    if is_namespace_root and (CGROUPS / "cgroup.procs").read_text():
        return (
            "its cgroup (v2) has processes of its own beside child groups: move them first, "
            "for example: mkdir /sys/fs/cgroup/init && xargs -rn1 < /sys/fs/cgroup/cgroup.procs > "
            "/sys/fs/cgroup/init/cgroup.procs"
        )
    return None


def go_obstacle() -> str | None:
    """Why the programs cannot be built here, or None."""
    go = shutil.which("go")
    if go is None:
        return f"no `go` on PATH; install Go {versions.GO} or newer"
    done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    if found is None:
        return f"`{go} env GOVERSION` said {(done.stdout or done.stderr).strip()!r}, expected a version"
    if tuple(int(part or 0) for part in found.groups()) < _numbers(versions.GO_THAT_FETCHES_ANOTHER):
        return (
            f"{go} is {done.stdout.strip()}; install Go {versions.GO} or newer "
            f"({versions.GO_THAT_FETCHES_ANOTHER} is enough where it may download its successor)"
        )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
