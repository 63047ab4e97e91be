"""A manifest that asks for more than this machine has."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.commands import up_machine


def spec(count: int | None, **more: Any) -> dict[str, Any]:
    return {"hardware": {"resourceName": "cpu", "count": count}, **more}


@pytest.mark.parametrize(
    "quiet",
    [
        spec(4),
        spec(None),
        spec(2, replicas=2),
        spec(64, replicas=0),
        spec(64, suspend=True),
        {"hardware": {"count": 64}},
        {"hardware": {"resourceName": "nvidia.com/gpu", "count": 64}},
        {"hardware": None},
        {},
    ],
)
def test_what_fits_is_not_spoken_of(quiet: dict[str, Any]) -> None:
    assert up_machine.warnings(quiet, 4) == []


def test_more_cores_than_there_are() -> None:
    [warning] = up_machine.warnings(spec(64), 4)
    assert warning.startswith("spec.hardware.count: asks for 64, but this machine has 4 cores to run on")
    assert warning.endswith("Set it to at most 4.")
    [single] = up_machine.warnings(spec(2), 1)
    assert "1 core to run on" in single


@pytest.mark.parametrize(("replicas", "most"), [(2, 2), (8, 1)])
def test_more_cores_than_there_are_because_of_the_replicas(replicas: int, most: int) -> None:
    [warning] = up_machine.warnings(spec(3, replicas=replicas), 4)
    assert f"asks for 3 for each of {replicas} replicas, {3 * replicas} in all" in warning
    assert warning.endswith(f"Set it to at most {most}, or use fewer replicas.")


def test_there_are_cores() -> None:
    assert up_machine.num_cores() >= 1
