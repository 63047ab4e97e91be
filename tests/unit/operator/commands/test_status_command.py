"""Exit codes of `tidemark status`, and how long it waits."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import cli, errors
from tidemark_operator.cluster.local import control_client, files
from tidemark_operator.commands import status


def overview(*, ready: bool = True, degraded: bool = False) -> dict[str, Any]:
    conditions = [
        {
            "type": kind,
            "status": str(value),
            "reason": "R",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, value in (("Ready", ready), ("Degraded", degraded))
    ]
    return {
        "name": "base",
        "ready": ready,
        "phase": "whatever",
        "url": "http://127.0.0.1:1",
        "generation": 1,
        "status": {"conditions": conditions},
        "spec": {},
        "pods": [],
        "events": [],
    }


class Service:
    """What `control_client.overview` answers, one after the other; the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[dict[str, Any] | errors.OperatorError] = [overview()]
        self.now = 0.0
        monkeypatch.setattr(control_client, "overview", self.overview)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def overview(self, _name: str, _root: Path) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, errors.OperatorError):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(monkeypatch)


@pytest.mark.parametrize(
    ("ready", "degraded", "code"), [(True, False, 0), (True, True, 1), (False, False, 1), (False, True, 1)]
)
@pytest.mark.parametrize("form", [(), ("--url",), ("-o", "json")], ids=" ".join)
def test_the_exit_code_says_whether_it_is_fine(
    service: Service, ready: bool, degraded: bool, code: int, form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = [overview(ready=ready, degraded=degraded)]
    assert cli.run(["status", "base", *form]) == code
    shown = capsys.readouterr()
    assert shown.out
    assert shown.err == ""


def test_a_service_that_does_not_run_is_not_fine(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.answers = [control_client.NotRunning("no `tidemark up` runs 'base'")]
    said = "no `tidemark up` runs 'base'. A cluster is asked with `kubectl tidemark status base`"
    assert cli.run(["status", "base"]) == 1
    assert capsys.readouterr().err == f"tidemark: {said}\n"
    assert cli.run(["status", "base", "--output=json"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.err) == {"error": {"message": said, "problems": []}}
    assert shown.out == ""


def test_it_waits_until_it_is_fine(service: Service) -> None:
    starting = control_client.NotRunning("just starting")
    service.answers = [starting, errors.Unavailable("busy"), overview(ready=False), overview()]
    assert cli.run(["status", "base", "--wait", "60"]) == 0
    assert service.now == pytest.approx(1.5)


def test_it_waits_no_longer_than_told_and_shows_what_is_then(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answers = [overview(ready=False)]
    assert cli.run(["status", "base", "--wait", "2.2"]) == 1
    assert service.now == pytest.approx(2.2)
    assert capsys.readouterr().out.startswith("local: `tidemark up` on this machine\nbase: whatever\n")
    service.answers = [control_client.NotRunning("gone")]
    assert cli.run(["status", "base", "--wait", "1"]) == 1


@pytest.mark.parametrize("wrong", ["soon", "-1", "inf", "nan"])
def test_a_wrong_wait_is_wrong_usage(service: Service, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "base", f"--wait={wrong}", "-o", "json"]) == 2
    shown = capsys.readouterr()
    assert "--wait" in json.loads(shown.err)["error"]["message"]
    assert cli.run(["status", "base", f"--wait={wrong}"]) == 2
    assert capsys.readouterr().err.startswith("usage: tidemark status")


def test_a_state_folder_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(root: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(root))

    monkeypatch.setattr(files, "running", unreadable)
    assert cli.run(["status"]) == 1
    assert f"{files.root()}: Permission denied. `tidemark status` must run as the user" in capsys.readouterr().err


def test_help_names_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status", "--help"]) == 0
    shown = capsys.readouterr().out
    for line in status._EXIT_CODES.splitlines():
        assert line in shown


def test_a_local_service_is_asked_without_what_a_cluster_needs(tmp_path: Path) -> None:
    """It answers at once: these take longer to import than everything else together."""
    code = (
        "import sys; from tidemark_operator import cli; cli.run(['status', 'base']);"
        "print([name for name in ('aiohttp', 'httpx', 'kubernetes', 'msgspec', 'pydantic', 'typer', 'torch', 'yaml')"
        " if name in sys.modules])"
    )
    environment = {**os.environ, "TIDEMARK_STATE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "no `tidemark up` runs 'base'" in done.stderr
    assert done.stdout == "[]\n"
