"""Errors for scripts: one JSON object, whatever went wrong."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import cli, errors
from tidemark_operator.commands import error_json
from tidemark_runtime import errors as runtime_errors


def shown(error: BaseException | str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(error_json.text(error))["error"]
    return found


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], False),
        (["f.yaml", "-o", "json"], True),
        (["f.yaml", "-ojson"], True),
        (["f.yaml", "--output", "json"], True),
        (["--output=json", "f.yaml"], True),
        (["--output=text"], False),
        (["-o", "json", "-o", "text"], False),
        (["-o"], False),
        (["--", "-o", "json"], False),
        (["json"], False),
    ],
)
def test_when_json_is_wanted(arguments: Sequence[str], wanted: bool) -> None:
    assert error_json.wanted(arguments) is wanted


def test_the_problems_of_a_manifest() -> None:
    problem = errors.Problem("spec.hardware.count", 0, "a whole number", "Write 1.", 7)
    missing = errors.Problem("spec.model", errors.Seen("nothing"), "a mapping")
    error = errors.ManifestError([problem, missing], "a.yaml")
    assert shown(error) == {
        "message": str(error),
        "problems": [
            {"path": "spec.hardware.count", "seen": 0, "expected": "a whole number", "remedy": "Write 1.", "line": 7},
            {"path": "spec.model", "seen": "nothing", "expected": "a mapping", "remedy": "", "line": None},
        ],
    }


def test_the_problems_of_settings() -> None:
    error = runtime_errors.ConfigError([runtime_errors.Problem("server.port", "x", "a number")])
    assert shown(error)["problems"][0]["path"] == "server.port"


@pytest.mark.parametrize("seen", [datetime.date(2026, 1, 2), float("nan"), {1, 2}, b"x", {(1, 2): 3}], ids=repr)
def test_values_that_json_does_not_know_become_text(seen: object) -> None:
    problem = errors.Problem("spec", seen, "something else")
    assert shown(errors.ManifestError([problem]))["problems"][0]["seen"] == str(seen)


WRONG = "apiVersion: tidemark.dev/v1alpha1\nkind: InferenceService\nmetadata: {name: a}\nspec: {replicas: -1}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["render", "wrong.yaml"], 2, "spec.replicas"),
        (["apply", "wrong.yaml"], 2, "spec.replicas"),
        (["render", "gone.yaml"], 2, "there is no such file"),
        (["render"], 2, "FILE"),
        (["render", "wrong.yaml", "--nonsense"], 2, "--nonsense"),
        (["apply"], 2, "FILE"),
        (["status", "a", "--nonsense"], 2, "--nonsense"),
        (["status", "nobody"], 1, "no `tidemark up` runs 'nobody'"),
        (["models", "nonsense"], 2, "nonsense"),
        (["models", "fetch"], 2, "name"),
        (["models", "verify", "nope"], 1, "no model 'nope'"),
        (["nonsense"], 2, "nonsense"),
    ],
    ids=str,
)
def test_every_verb_with_output_json_tells_errors_in_json(
    arguments: list[str],
    code: int,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMARK_STATE", str(tmp_path / "state"))
    (tmp_path / "wrong.yaml").write_text(WRONG)
    plain = cli.run(arguments)
    as_text = capsys.readouterr()
    assert (plain, as_text.out) == (code, "")
    assert cli.run([*arguments, "--output", "json"]) == code
    as_json = capsys.readouterr()
    assert as_json.out == ""
    assert len(as_json.err.splitlines()) == 1
    assert part in json.loads(as_json.err)["error"]["message"]
