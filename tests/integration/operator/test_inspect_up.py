"""`tidemark inspect` of a running `tidemark up`: its manifest, its pods, its conditions, without any cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def test_a_running_up_is_inspected(running: Any) -> None:
    done = running.tidemark("inspect", "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    (service,) = found["services"]
    assert (service["name"], service["origin"], service["answered"]) == ("default/base", "local", 1)
    fine = {check["name"] for check in found["checks"] if check["state"] == "fine"}
    assert {"conditions", "engines-answer", "restarts", "held-back", "evaluation"} <= fine
    assert running.tidemark("inspect", "base").stdout.startswith("Inspection 20")


def test_nothing_runs_here(workplace: Any) -> None:
    done = workplace.tidemark("inspect")
    assert done.returncode == 2
    assert "nothing runs here now" in done.stderr
    assert "tidemark inspect --url URL" in done.stderr
