"""What `tidemark up` says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import rich.console

from tidemark_operator.commands import up_view


@pytest.fixture
def said() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def view(said: io.StringIO) -> up_view.View:
    return up_view.View(rich.console.Console(file=said, width=80), "base")


def service(status: str, reason: str, message: str, degraded: bool = False, **more: Any) -> dict[str, Any]:
    conditions = [
        {"type": "Ready", "status": status, "reason": reason, "message": message},
        {"type": "Degraded", "status": str(degraded), "reason": reason, "message": message},
    ]
    return {"status": {"conditions": conditions, "url": "http://127.0.0.1:8000", "model": "m", **more}}


def test_each_turn_is_told_once(view: up_view.View, said: io.StringIO) -> None:
    with view:
        view.status({"status": {}}, None)
        for percent in (10, 50, 90):
            view.status(service("False", "Loading", f"The model is loading ({percent} %)."), None)
        for _ in range(3):
            view.status(service("True", "Ready", "fine"), None)
    lines = said.getvalue().splitlines()
    assert lines[:2] == ["base: Loading: The model is loading (10 %).", "base: Ready at http://127.0.0.1:8000"]
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in lines[2]
    assert '"model": "m"' in lines[2]
    assert lines[3] == "  watch:  http://127.0.0.1:8000/ in a browser"
    assert "tidemark status base" in said.getvalue()
    assert len(lines) == 7


def test_the_second_ready_is_one_line(view: up_view.View, said: io.StringIO) -> None:
    view.status(service("True", "Ready", "fine"), None)
    view.status(service("False", "RollingOut", "0 of 1"), None)
    view.status(service("True", "Ready", "fine"), None)
    assert said.getvalue().count("curl") == 1
    assert said.getvalue().splitlines()[-1] == "base: Ready"


def test_a_problem_is_told_whole_with_its_log_and_again_when_it_changes(view: up_view.View, said: io.StringIO) -> None:
    log = Path("/state/log")
    view.status(service("False", "InvalidSpec", "two\nlines"), log)
    view.status(service("False", "ModelNotFound", "exit code 1", degraded=True), log)
    view.status(service("False", "ModelNotFound", "exit code 1", degraded=True), log)
    view.status(service("False", "ModelNotFound", "exit code 1, 2 restarts", degraded=True), log)
    shown = said.getvalue()
    assert "InvalidSpec: two\nlines" in shown
    assert shown.count("exit code 1\n") == 1
    assert "2 restarts" in shown
    assert shown.count("its log: /state/log") == 3


def test_the_next_try_is_no_new_problem(view: up_view.View, said: io.StringIO) -> None:
    for message in ("exit code 1.", "exit code 1. It was started again.", "exit code 1."):
        view.status(service("False", "ModelNotFound", message, degraded=True), None)
    assert said.getvalue() == "base: ModelNotFound: exit code 1.\n"


def test_a_section_that_comes_is_told_as_in_a_manifest(view: up_view.View, said: io.StringIO) -> None:
    change = {
        "path": "spec.hardware.tolerations",
        "before": None,
        "after": [{"key": "gpu"}],
        "effect": "has no effect yet",
    }
    view.submitted("f.yaml", {"result": "configured", "changes": [change]})
    assert said.getvalue().splitlines()[1] == (
        "base:   spec.hardware.tolerations: not set -> [{key: gpu}] (has no effect yet)"
    )


def test_warnings_are_told_once(view: up_view.View, said: io.StringIO) -> None:
    for _ in range(3):
        view.status(service("True", "Ready", "fine", warnings=["spec.x has no effect yet"]), None)
    assert said.getvalue().count("warning: spec.x has no effect yet") == 1


def test_brackets_in_messages_are_no_markup(view: up_view.View, said: io.StringIO) -> None:
    view.problem("spec.tolerations[2]: got [bold]")
    assert said.getvalue() == "base: spec.tolerations[2]: got [bold]\n"


def test_what_was_taken_over(view: up_view.View, said: io.StringIO) -> None:
    view.submitted("f.yaml", {"result": "unchanged", "changes": []})
    assert said.getvalue() == ""
    change = {"path": "spec.replicas", "before": None, "after": 2, "effect": "takes effect without a restart"}
    view.submitted("f.yaml", {"result": "configured", "changes": [change]})
    assert said.getvalue().splitlines() == [
        "base: f.yaml: configured",
        "base:   spec.replicas: not set -> 2 (takes effect without a restart)",
    ]
