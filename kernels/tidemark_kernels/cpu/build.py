"""Compiles the C kernels with the machine's own compiler and keeps the result outside the checkout.

The file's name is a hash of everything that decides its content: sources, flags, the compiler's version and the
instruction sets it sees. Two processes may build at once: each writes a file of its own and renames it into place.

The library is linked without an OpenMP runtime on purpose: torch has already loaded its own, and a second one in the
process would mean a second pool of threads fighting for the same cores.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent import futures

SOURCES = ("linear.c", "linear_int8.c", "attention.c", "elementwise.c")
HEADERS = ("simd.h", "panels.h", "cache.h", "quantized.h")
COMPILERS = ("cc", "gcc", "clang")
TIMEOUT_SECONDS = 120.0

# Without contraction a product and a sum are fused only where the source says so: results are the same bit for bit
# whichever kernel computed them. Nothing of -ffast-math is used; only errno is given up.
BASE_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fopenmp", "-ffp-contract=off", "-fno-math-errno")

FindCompiler = Callable[[], str | None]


class BuildError(Exception):
    """Why there is no compiled library; the message is one line that names what to do."""


def find_compiler() -> str | None:
    """Path of the machine's C compiler, or None."""
    return next((path for path in map(shutil.which, COMPILERS) if path), None)


def native_flags() -> tuple[str, ...]:
    """Flags that let the compiler use every instruction of this machine."""
    return ("-mcpu=native",) if platform.machine() == "aarch64" else ("-march=native",)


def cache_folder() -> pathlib.Path:
    """`$XDG_CACHE_HOME/tidemark/kernels`, else below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "tidemark" / "kernels"


def build(
    find: FindCompiler = find_compiler,
    folder: pathlib.Path | None = None,
    target_flags: Sequence[str] | None = None,
    source_folder: pathlib.Path | None = None,
) -> pathlib.Path:
    """Path of the compiled library; compiles it unless an earlier run has.

    Raises `BuildError` where there is no compiler, where it fails, or where the result cannot be kept.
    """
    compiler = find()
    if compiler is None:
        raise BuildError(f"no C compiler found (looked for {', '.join(COMPILERS)}); install gcc")
    folder = folder or cache_folder()
    source_folder = source_folder or pathlib.Path(__file__).parent
    flags = [*BASE_FLAGS, *(native_flags() if target_flags is None else target_flags)]
    library = folder / f"{_fingerprint(compiler, flags, source_folder)}.so"
    if not library.exists():
        try:
            _compile(compiler, flags, source_folder, library)
        except OSError as cause:
            raise BuildError(f"cannot write {library}: {cause}; set XDG_CACHE_HOME to a writable folder") from cause
    return library


def _fingerprint(compiler: str, flags: Sequence[str], source_folder: pathlib.Path) -> str:
    digest = hashlib.sha256("\0".join(flags).encode())
    for name in (*SOURCES, *HEADERS):
        digest.update((source_folder / name).read_bytes())
    # The predefined macros hold the compiler's version and every instruction set that `native` stands for here.
    digest.update(_run([compiler, *flags, "-dM", "-E", "-x", "c", os.devnull]).encode())
    return digest.hexdigest()[:24]


def _compile(compiler: str, flags: Sequence[str], source_folder: pathlib.Path, library: pathlib.Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as room:
        objects = [f"{room}/{name}.o" for name in SOURCES]
        with futures.ThreadPoolExecutor(len(SOURCES)) as pool:
            commands = [
                [compiler, *flags, "-c", str(source_folder / name), "-o", target]
                for name, target in zip(SOURCES, objects, strict=True)
            ]
            list(pool.map(_run, commands))
        made = f"{room}/library.so"
        _run([compiler, "-shared", *objects, "-lm", "-o", made])
        os.replace(made, library)


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise BuildError(f"{command[0]} did not run: {cause}") from cause
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or [""]
        raise BuildError(f"{command[0]} failed with {done.returncode}: {lines[0].strip()}")
    return done.stdout
