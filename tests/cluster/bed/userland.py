"""This machine's Python, packages and compiler for pods, without an image that carries gigabytes of them.

containerd mounts what is listed here read-only below `MOUNT` into every container of the bed, as a GPU's runtime does
with its driver: the pod's own spec says nothing of it, so the pod stays within the restricted Pod Security level,
which forbids hostPath volumes. An image of `images.host_python` is nothing but links into these folders, at the
paths they have on this machine; all other images are untouched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bed import errors, machine

MOUNT = PurePosixPath("/opt/tidemark-bed")
NOBODY = 65532
"""User and group of restricted pods."""
MERGED = ("bin", "sbin", "lib", "lib64")
"""Links into /usr on every distribution of today."""


@dataclass(frozen=True)
class Mount:
    name: str
    source: Path

    @property
    def target(self) -> PurePosixPath:
        return MOUNT / self.name


def mounts(models: Path | None) -> list[Mount]:
    """What containers see. `models`: the store of fetched models, if there is one.

    Raises `MachineError` when the user of restricted pods could not read it.
    """
    found = [
        Mount("usr", Path("/usr")),
        Mount("alternatives", Path("/etc/alternatives")),
        Mount("checkout", machine.CHECKOUT),
        Mount("python", python_prefix()),
    ]
    if models is not None:
        found.append(Mount("models", models))
    existing = [mount for mount in found if mount.source.is_dir()]
    for mount in existing:
        if mount.source.stat().st_mode & 0o005 != 0o005:
            raise errors.MachineError(
                f"{mount.source} is mounted into pods and must be readable for every user: chmod -R o+rX {mount.source}"
            )
    return existing


def virtual_environment() -> Path:
    return machine.CHECKOUT / ".venv"


def python_prefix() -> Path:
    """Where the interpreter is installed that the checkout's virtual environment was made from."""
    configuration = virtual_environment() / "pyvenv.cfg"
    if not configuration.exists():
        raise errors.MachineError(f"{virtual_environment()} does not exist; run `make setup`")
    home = re.search(r"^home\s*=\s*(.+)$", configuration.read_text(), re.M)
    if home is None:
        raise errors.MachineError(f"{configuration} has no line `home = ...`; run `make clean setup`")
    return Path(home[1].strip()).resolve().parent


def links() -> dict[str, str]:
    """Path in the image -> where it points: everything at the place it has on this machine."""
    found = {"/usr": f"{MOUNT}/usr", "/etc/alternatives": f"{MOUNT}/alternatives"}
    found.update({f"/{name}": f"usr/{name}" for name in MERGED})
    found[str(machine.CHECKOUT)] = f"{MOUNT}/checkout"
    prefix = python_prefix()
    if not prefix.is_relative_to("/usr") or prefix == Path("/usr/local"):
        found[str(prefix)] = f"{MOUNT}/python"
    return {path: target for path, target in found.items() if not _has_parent_in(path, found)}


def _has_parent_in(path: str, paths: dict[str, str]) -> bool:
    return any(str(parent) in paths for parent in PurePosixPath(path).parents)
