"""What a new manifest does to a running engine, field by field."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

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


SCALING = ("spec.autoscaling.max", "spec.autoscaling.min")


def effects_of(**spec: Any) -> dict[str, str]:
    return {change.path: change.effect for change in changes.between(BASE, after(**spec), FACTS)}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"scheduler": {"maxNumSeqs": 16}}, {}),
        ({"scheduler": {"maxNumSeqs": 32}}, {"spec.scheduler.maxNumSeqs": changes.RESTART}),
        ({"scheduler": None}, {"spec.scheduler.maxNumSeqs": changes.RESTART}),
        ({"replicas": 3}, {"spec.replicas": changes.AT_ONCE}),
        ({"speculative": {"method": "ngram"}}, {"spec.speculative.method": changes.RESTART}),
        (
            {"replicas": 2, "overload": {"maxQueuedRequests": 7}},
            {"spec.overload.maxQueuedRequests": changes.AT_ONCE, "spec.replicas": changes.AT_ONCE},
        ),
        ({"autoscaling": {"min": 1, "max": 2}}, dict.fromkeys(SCALING, changes.NOTHING)),
        ({"evaluation": {}}, {"spec.evaluation": changes.AT_ONCE}),
        ({"overload": {}}, {"spec.overload": changes.AT_ONCE}),
        (
            {"model": {"source": {"hostPath": {"path": "/m"}}}},
            {"spec.model.source.hostPath.path": changes.RESTART, "spec.model.source.package.name": changes.RESTART},
        ),
    ],
)
def test_effects(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert effects_of(**spec) == expected


def test_values_before_and_after() -> None:
    [change] = changes.between(BASE, after(scheduler={"maxNumSeqs": 16, "maxNumBatchedTokens": 64}), FACTS)
    assert (change.path, change.before, change.after) == ("spec.scheduler.maxNumBatchedTokens", None, 64)


def test_a_section_is_told_value_by_value_when_it_comes_and_when_it_goes() -> None:
    new = after(autoscaling={"min": 1, "max": 2}, podTemplate={"labels": {"a/b": "c"}})
    told = [("spec.autoscaling.max", 2), ("spec.autoscaling.min", 1), ("spec.podTemplate.labels.a/b", "c")]
    come = changes.between(BASE, new, FACTS)
    assert [(item.path, item.before, item.after) for item in come] == [(path, None, value) for path, value in told]
    gone = changes.between(new, BASE, FACTS)
    assert [(item.path, item.before, item.after) for item in gone] == [(path, value, None) for path, value in told]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "not set"),
        (True, "true"),
        (16, "16"),
        (0.9, "0.9"),
        ("8Gi", "8Gi"),
        ("true", "'true'"),
        ("", "''"),
        ("a\nb", '"a\\nb"'),
        ("模型", "模型"),
        ([], "[]"),
        ({}, "{}"),
        (["a", 1], "[a, 1]"),
        ([{"key": "gpu", "operator": "Exists"}], "[{key: gpu, operator: Exists}]"),
        ("word " * 60, f"'{'word ' * 60}'"),
    ],
)
def test_values_are_written_as_in_a_manifest(value: Any, text: str) -> None:
    assert changes.written(value) == text
    assert value is None or yaml.safe_load(text) == value


def test_the_documents_stay_as_they_are() -> None:
    before, new = copy.deepcopy(BASE), after(replicas=2)
    unchanged = copy.deepcopy(new)
    changes.between(before, new, FACTS)
    assert (before, new) == (BASE, unchanged)
