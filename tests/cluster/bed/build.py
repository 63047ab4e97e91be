"""Builds every program of the bed with Go into the cache folder; a second call finds them there.

A program is rebuilt when its module's version or its flags change: they are written beside it. Two builds at once
wait for each other. Go checks each module against its public checksum database.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bed import errors, machine, versions

Say = Callable[[str], None]

POD_SOURCE = Path(__file__).with_name("pod") / "main.go"
UNREACHABLE = re.compile(r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect|TLS handshake|lookup ")


@dataclass(frozen=True)
class Program:
    name: str
    folder: Path
    """Where the go.mod lies that it is built from."""
    package: str
    ldflags: str
    stamp: str
    """Changes with everything that decides the program's content."""
    module: versions.Module | None = None


def programs() -> list[Program]:
    """All programs, in the order they are built."""
    sources = machine.cache_folder() / "modules"
    found = [
        Program(
            name,
            sources / re.sub(r"\W+", "-", module.path),
            module.path + package,
            f"-s -w {module.ldflags}".strip(),
            f"{module.path}{package} {module.version} {module.ldflags}",
            module,
        )
        for module in versions.MODULES
        for name, package in module.programs
    ]
    content = hashlib.sha256(POD_SOURCE.read_bytes()).hexdigest()
    return [*found, Program(versions.POD_PROGRAM, sources / "pod", ".", "-s -w", content)]


def missing() -> list[Program]:
    """Programs that are not built yet, or in another version."""
    return [program for program in programs() if not _is_built(program)]


def build(say: Say) -> None:
    """Builds what is missing; `say` gets one line a program. Raises `BuildError`."""
    machine.programs_folder().mkdir(parents=True, exist_ok=True)
    with _lock():
        todo = missing()
        if todo and (obstacle := machine.go_obstacle()):
            raise errors.BuildError(f"the test bed's programs cannot be built: {obstacle}")
        for number, program in enumerate(todo, 1):
            started = time.monotonic()
            _build(program)
            say(f"built {program.name} ({number} of {len(todo)}, {time.monotonic() - started:.0f} s)")


def definition_files(found: versions.Definitions) -> list[Path]:
    """Where they lie, fetched where they are not there yet. Raises `BuildError`."""
    if obstacle := machine.go_obstacle():
        raise errors.BuildError(f"{found.path} cannot be fetched: {obstacle}")
    with _lock():
        told = _go(machine.cache_folder(), "mod", "download", "-json", f"{found.path}@{found.version}")
    folder = Path(json.loads(told)["Dir"])
    return [folder / name for name in found.files]


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    with (machine.cache_folder() / "build.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _paths(program: Program) -> tuple[Path, Path]:
    folder = machine.programs_folder()
    return folder / program.name, folder / f".{program.name}.stamp"


def _is_built(program: Program) -> bool:
    target, stamp = _paths(program)
    return target.exists() and stamp.exists() and stamp.read_text() == program.stamp


def _build(program: Program) -> None:
    program.folder.mkdir(parents=True, exist_ok=True)
    if program.module is None:
        shutil.copy(POD_SOURCE, program.folder)
        (program.folder / "go.mod").write_text(f"module bed/pod\n\ngo {versions.GO}\n")
    else:
        _write_go_mod(program.module, program.folder)
    target, stamp = _paths(program)
    stamp.unlink(missing_ok=True)
    made = target.with_name(f".{program.name}.new")
    # -mod=mod lets go complete go.mod and go.sum: the versions still all follow from the one module named there.
    _go(program.folder, "build", "-mod=mod", f"-ldflags={program.ldflags}", "-o", str(made), program.package)
    os.replace(made, target)
    stamp.write_text(program.stamp)


def _write_go_mod(module: versions.Module, folder: Path) -> None:
    """Only for another version than before: else what go has added is kept."""
    stamp = folder / "version"
    if stamp.exists() and stamp.read_text() == module.version:
        return
    lines = [f"module bed/{folder.name}", f"go {versions.GO}", f"require {module.path} {module.version}"]
    if module.path == "k8s.io/kubernetes":
        lines += _published_staging(module)
    (folder / "go.sum").unlink(missing_ok=True)
    (folder / "go.mod").write_text("\n\n".join(lines) + "\n")
    stamp.write_text(module.version)


def _published_staging(module: versions.Module) -> list[str]:
    """Kubernetes' own go.mod replaces `k8s.io/api` and others by folders; outside its tree they are v0.MINOR.PATCH."""
    told = json.loads(_go(machine.cache_folder(), "mod", "download", "-json", f"{module.path}@{module.version}"))
    own = Path(told["GoMod"]).read_text()
    published = module.version.replace("v1.", "v0.", 1)
    return [f"replace {path} => {path} {published}" for path in re.findall(r"^\s*(\S+) => \./staging/", own, re.M)]


def _go(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": os.environ.get("GOTOOLCHAIN", "auto")}
    environment["GOWORK"] = "off"
    done = subprocess.run(["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-8:])
        hint = ""
        if UNREACHABLE.search(said):
            hint = "\nThe modules come from Go's module proxy; behind a mirror set GOPROXY, behind a proxy HTTPS_PROXY."
        raise errors.BuildError(f"`go {' '.join(arguments)}` in {folder} failed:\n{said}{hint}")
    return done.stdout
