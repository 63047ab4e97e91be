"""The screen of `tidemark status`."""

from __future__ import annotations

import copy
import datetime
from typing import Any

from tidemark_operator.commands import status_view

NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)


def condition(type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T11:55:00Z",
    }


ENGINE: dict[str, Any] = {
    "state": "ready",
    "message": "serving",
    "load": None,
    "memory": {
        "pagesTotal": 2000,
        "pagesUsed": 500,
        "pageBytes": 1_048_576,
        "blockSize": 16,
        "partsBytes": {"weights": 90 * 2**20},
    },
    "queue": {"running": 3, "waiting": 2, "oldestWaitSeconds": 1.25, "preemptionsTotal": 4},
    "config": {"hash": "abc123"},
    "worker": {"kind": "torch", "threads": "2"},
    "kernelPaths": {"attention": "cpu (built here, abc.so)"},
}
GOOD: dict[str, Any] = {
    "name": "base",
    "ready": True,
    "phase": "Ready",
    "url": "http://127.0.0.1:8000",
    "generation": 3,
    "spec": {"model": {"source": {"package": {"name": "smollm2-135m"}}}, "replicas": 1},
    "status": {
        "observedGeneration": 3,
        "readyReplicas": 1,
        "model": "base",
        "devices": "2 cores",
        "conditions": [
            condition("Ready", "True", "Ready", "1 of 1 replicas answer."),
            condition("Degraded", "False", "AsExpected", "Nothing is wrong."),
        ],
        "warnings": [],
    },
    "pods": [
        {
            "name": "base-1",
            "ready": True,
            "terminating": False,
            "restarts": 0,
            "state": {"running": {}},
            "lastState": {},
            "pid": 42,
            "log": "/state/base/pods/base-1/log",
            "engine": ENGINE,
        }
    ],
    "events": [],
}


def screen(overview: dict[str, Any]) -> str:
    return status_view.render(overview, NOW).plain


def broken() -> dict[str, Any]:
    made = copy.deepcopy(GOOD)
    made.update(ready=False, phase="ModelNotFound: The engine ended")
    made["status"]["conditions"] = [
        condition("Available", "True", "Available", "fine"),
        condition("Degraded", "True", "ModelNotFound", "The engine ended. Check spec.model.source."),
        condition("Ready", "False", "ModelNotFound", "The engine ended. Check spec.model.source."),
    ]
    made["status"]["warnings"] = ["spec.speculative has no effect yet."]
    made["pods"][0].update(
        ready=False,
        pid=None,
        engine=None,
        restarts=2,
        state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2 s"}},
        lastState={"terminated": {}},
    )
    made["events"] = [
        {
            "object": "Pod",
            "type": "Warning",
            "reason": "BackOff",
            "message": "it ended\nsecond line",
            "count": 2,
            "lastTimestamp": "2026-01-01T11:59:50Z",
        }
    ]
    return made


def test_a_good_service() -> None:
    shown = screen(GOOD)
    assert shown.startswith("base: Ready\n  url       http://127.0.0.1:8000\n")
    assert "base from package smollm2-135m" in shown
    assert "generation 3" in shown
    assert "500 of 2000 pages of 16 tokens, 2.0 GiB" in shown
    assert "██████░░░░░░░░░░░░░░░░░░  25%" in shown
    assert "3 running, 2 waiting, the oldest for 1.2 s; 4 preempted so far" in shown
    assert "weights 90.0 MiB" in shown
    assert "abc123" in shown
    assert "kernels   cpu" in shown
    assert "SLOW" not in shown
    assert "process 42" in shown
    assert "✗" not in shown
    assert "What to do" not in shown


def test_slow_kernels_are_said_with_the_reason() -> None:
    slow = copy.deepcopy(GOOD)
    slow["pods"][0]["engine"]["kernelPaths"] = {"attention": "torch"}
    slow["pods"][0]["engine"]["worker"] = {"device": "cpu", "kernels": "no C compiler found"}
    assert "SLOW      kernels run on plain torch: no C compiler found" in screen(slow)


def test_a_broken_service_says_first_what_is_wrong_and_what_to_do() -> None:
    shown = screen(broken())
    assert shown.index("What to do") < shown.index("Conditions")
    assert "Check spec.model.source." in shown[: shown.index("Conditions")]
    assert "read its log: /state/base/pods/base-1/log" in shown
    bad, good = shown.index("✗ Degraded"), shown.index("✓ Available")
    assert bad < good
    assert shown.index("✗ Ready") < good
    assert "2 restarts" in shown
    assert "CrashLoopBackOff: back-off 2 s" in shown
    assert "10s  Pod BackOff ×2: it ended\n" in shown + "\n"
    assert "spec.speculative has no effect yet." in shown


def test_before_the_first_status() -> None:
    made = {**GOOD, "ready": False, "phase": "Starting", "url": None, "status": {}, "pods": [], "events": []}
    shown = screen(made)
    assert "none yet" in shown
    assert "wait: it is starting" in shown


def test_an_old_generation_is_told() -> None:
    made = copy.deepcopy(GOOD)
    made["generation"] = 4
    assert "generation 4, 3 acted on" in screen(made)


def test_every_problem_of_a_wrong_spec_is_shown() -> None:
    made = broken()
    made["status"]["conditions"] = [condition("Ready", "False", "InvalidSpec", "spec.a: wrong\nspec.b: wrong, too")]
    shown = screen(made)
    assert "correct the values named below" in shown
    assert "spec.a: wrong" in shown
    assert "spec.b: wrong, too" in shown


def test_loading_shows_how_far() -> None:
    made = copy.deepcopy(GOOD)
    made["pods"][0]["engine"].update(state="loading", load={"phase": "weights", "fraction": 0.5})
    assert "████████████░░░░░░░░░░░░  50% weights" in screen(made)
