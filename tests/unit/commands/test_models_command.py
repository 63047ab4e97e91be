from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
from pathlib import Path

import pytest
import typer.testing

from tidemark_operator import cli
from tidemark_runtime import errors, model_store
from tidemark_runtime.commands import models
from tidemark_runtime.model import known

NAME = "smollm2-135m"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_MODELS", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(models.app, list(arguments))


def test_list_shows_what_can_be_fetched_and_what_is_there(store: Path) -> None:
    (store / "mine.gguf").write_bytes(b"x")
    result = run("list")
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines() if line.startswith(" ")}
    assert rows["mine"] == "yes"
    assert rows[NAME] == "no"
    assert str(store) in result.stdout


def test_list_as_json(store: Path) -> None:
    found = json.loads(run("list", "--output", "json").stdout)
    assert found["store"] == str(store)
    assert [(model["name"], model["fetched"]) for model in found["models"]] == [(NAME, False)]
    assert found["models"][0]["size_bytes"] == 98_362_432


def test_fetch_passes_the_file_on_and_reports(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, progress: model_store.Progress, *, store: Path, file: Path | None) -> Path:
        progress("unpacking", 1, 2)
        assert (name, file) == (NAME, Path("a.whl"))
        path = store / f"{name}.gguf"
        path.write_bytes(b"four")
        return path

    monkeypatch.setattr(model_store, "fetch", fetch)
    result = run("fetch", NAME, "--from", "a.whl", "--output", "json")
    assert json.loads(result.stdout) == {"name": NAME, "path": str(store / f"{NAME}.gguf"), "size_bytes": 4}


def test_another_store(tmp_path: Path) -> None:
    found = json.loads(run("list", "--store", str(tmp_path / "other"), "-o", "json").stdout)
    assert found["store"] == str(tmp_path / "other")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch", "nope"), f"tidemark: no model 'nope' can be fetched, expected one of {NAME}"),
        (("verify", "nope"), "tidemark: no model 'nope'"),
        (("verify", NAME), f"Fetch it: tidemark models fetch {NAME}"),
        (("fetch", NAME, "--from", "/gone.whl"), "tidemark: /gone.whl: no such file"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["models", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_an_error_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["models", "verify", NAME, "--output", "json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    error = json.loads(shown.err)["error"]
    assert f"Fetch it: tidemark models fetch {NAME}" in error["message"]
    assert error["problems"] == []


def test_verify_reports(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "verify", lambda name, *, store: store / f"{name}.gguf")
    assert "is as published" in run("verify", NAME).stdout
    assert json.loads(run("verify", NAME, "-o", "json").stdout)["ok"] is True


CONTENT = b"published" * 1000
MADE = known.KnownModel(
    name="made",
    package="llm-made",
    version="1.0",
    member="made.gguf",
    size_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    wheel_bytes=10,
    summary="made",
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is known, and a good copy of it on a stick."""
    models_known = {"made": MADE}
    monkeypatch.setattr(known, "KNOWN_MODELS", models_known)
    monkeypatch.setattr(model_store, "find_known", lambda name, _models=None: models_known[name])
    stick = tmp_path_factory.mktemp("stick") / "made.gguf"
    stick.write_bytes(CONTENT)
    return stick


@pytest.mark.parametrize("damaged", [b"X" + CONTENT[1:], CONTENT[:-1]], ids=["same size", "cut off"])
def test_fetch_replaces_a_damaged_file_and_says_so(
    store: Path, made: Path, damaged: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "made.gguf").write_bytes(damaged)
    assert cli.run(["models", "fetch", "made", "--from", str(made)]) == 0
    assert (store / "made.gguf").read_bytes() == CONTENT
    said = capsys.readouterr().err
    assert f"{store / 'made.gguf'}: has " in said
    assert "it is damaged and fetched again" in said


def test_fetch_does_not_keep_a_damaged_file_when_nothing_better_is_found(
    store: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "made.gguf").write_bytes(b"X" + CONTENT[1:])
    assert cli.run(["models", "fetch", "made", "--from", str(made.with_name("gone")), "-o", "json"]) == 1
    assert not (store / "made.gguf").exists()
    assert "gone: no such file" in json.loads(capsys.readouterr().err)["error"]["message"]


def test_fetch_leaves_a_good_file_as_it_is(store: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "made.gguf").write_bytes(CONTENT)
    before = (store / "made.gguf").stat()
    assert cli.run(["models", "fetch", "made", "--from", str(made.with_name("gone"))]) == 0
    assert (store / "made.gguf").stat().st_ino == before.st_ino
    assert capsys.readouterr().err == ""


def test_fetch_does_not_remove_what_another_fetch_has_put_there_meanwhile(
    store: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store / "made.gguf"
    path.write_bytes(b"X" + CONTENT[1:])

    def slow(name: str, *, store: Path) -> Path:
        made.replace(path)
        raise errors.CorruptModel("seen before it was replaced")

    monkeypatch.setattr(model_store, "verify", slow)
    assert cli.run(["models", "fetch", "made", "--from", "gone"]) == 0
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("verb", ["fetch", "verify"])
def test_a_file_that_cannot_be_read_is_named(
    verb: str, made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(name: str, *, store: Path) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(store / name))

    monkeypatch.setattr(model_store, "verify", unreadable)
    assert cli.run(["models", verb, "made"]) == 1
    assert "made: Permission denied. Check its permissions" in capsys.readouterr().err


def test_list_tells_a_cut_off_file_from_a_whole_one(store: Path) -> None:
    (store / f"{NAME}.gguf").write_bytes(b"x")
    assert f"{NAME}  damaged" in run("list").stdout
    (row,) = json.loads(run("list", "-o", "json").stdout)["models"]
    assert (row["fetched"], row["whole"]) == (True, False)


def test_sigterm_lets_a_fetch_clean_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []

    def fetch(*_: object, **__: object) -> Path:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            return store
        finally:
            cleaned.append(True)

    monkeypatch.setattr(model_store, "fetch", fetch)
    before = signal.getsignal(signal.SIGTERM)
    assert run("fetch", NAME).exit_code == 143
    assert cleaned == [True]
    assert signal.getsignal(signal.SIGTERM) is before
