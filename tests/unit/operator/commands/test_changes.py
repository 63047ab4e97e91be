"""What a new manifest does to a running engine, field by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tidemark_operator import names, plan
from tidemark_operator.commands import changes

FACTS = plan.Facts(image="local")
BASE: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": names.KIND,
    "metadata": {"name": "base", "namespace": "default"},
    "spec": {
        "model": {"source": {"package": {"name": "smollm2-135m"}}},
        "hardware": {"resourceName": "cpu", "count": 2, "memory": "2Gi"},
        "scheduler": {"maxNumSeqs": 16},
    },
    "status": {"phase": "whatever it was"},
}


def after(**spec: Any) -> dict[str, Any]:
    document = copy.deepcopy(BASE)
    document["spec"].update(spec)
    return document


def effects_of(**spec: Any) -> dict[str, str]:
    return {change.path: change.effect for change in changes.between(BASE, after(**spec), FACTS)}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"scheduler": {"maxNumSeqs": 16}}, {}),
        ({"scheduler": {"maxNumSeqs": 32}}, {"spec.scheduler.maxNumSeqs": changes.RESTART}),
        ({"scheduler": None}, {"spec.scheduler": changes.RESTART}),
        ({"replicas": 3}, {"spec.replicas": changes.AT_ONCE}),
        ({"speculative": {"method": "ngram"}}, {"spec.speculative": changes.NOTHING}),
        (
            {"replicas": 2, "overload": {"maxQueuedRequests": 7}},
            {"spec.overload": changes.RESTART, "spec.replicas": changes.AT_ONCE},
        ),
        (
            {"model": {"source": {"hostPath": {"path": "/m"}}}},
            {"spec.model.source.hostPath": changes.RESTART, "spec.model.source.package": changes.RESTART},
        ),
    ],
)
def test_effects(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert effects_of(**spec) == expected


def test_values_before_and_after() -> None:
    [change] = changes.between(BASE, after(scheduler={"maxNumSeqs": 16, "maxNumBatchedTokens": 64}), FACTS)
    assert (change.path, change.before, change.after) == ("spec.scheduler.maxNumBatchedTokens", None, 64)


def test_the_documents_stay_as_they_are() -> None:
    before, new = copy.deepcopy(BASE), after(replicas=2)
    unchanged = copy.deepcopy(new)
    changes.between(before, new, FACTS)
    assert (before, new) == (BASE, unchanged)
