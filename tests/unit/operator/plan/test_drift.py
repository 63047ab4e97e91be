"""Whether an object of the cluster still says what we want."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tidemark_operator import names
from tidemark_operator.plan import drift

MANIFEST: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "a", "annotations": {"x": "1"}, "labels": {"spot": ""}},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "args": ["serve", "--config"],
                        "env": [{"name": "A", "value": ""}],
                        "resources": {"limits": {"cpu": "0.5", "memory": "1024Mi", "nvidia.com/gpu": "1"}},
                    }
                ],
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}


@pytest.fixture
def live() -> dict[str, Any]:
    """As an API server gives it back: with defaults, status, amounts in its own writing, without empty texts."""
    found = copy.deepcopy(drift.sealed(MANIFEST))
    found["metadata"].update(uid="u", resourceVersion="7", generation=1)
    found["spec"]["revisionHistoryLimit"] = 10
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolicy"] = "IfNotPresent"
    container["env"] = [{"name": "A"}]
    container["resources"]["limits"] = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    found["status"] = {"replicas": 2}
    return found


def test_what_the_server_added_is_no_difference(live: dict[str, Any]) -> None:
    assert drift.first(drift.sealed(MANIFEST), live) is None


def test_what_others_added_is_none_of_our_business(live: dict[str, Any]) -> None:
    spec = live["spec"]["template"]["spec"]
    spec["containers"].insert(0, {"name": "sidecar"})
    spec["containers"][1]["env"].append({"name": "B", "value": "2"})
    live["metadata"]["annotations"]["theirs"] = "yes"
    assert drift.first(drift.sealed(MANIFEST), live) is None


def test_a_missing_object() -> None:
    assert drift.first(drift.sealed(MANIFEST), None) == "it does not exist"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda spec: spec.update(replicas=3), "spec.replicas: 3 instead of 2"),
        (lambda spec: spec.pop("replicas"), "spec.replicas: nothing instead of 2"),
        (lambda spec: spec["template"]["spec"]["containers"][0]["args"].append("--evil"), "3 items instead of 2"),
        (lambda spec: spec["template"]["spec"]["containers"][0].update(args=["x", "y"]), "args[0]: x instead of serve"),
        (
            lambda spec: spec["template"]["spec"].update(containers=[]),
            "containers[engine]: nothing instead of a section",
        ),
        (lambda spec: spec["template"]["spec"].update(tolerations=[]), "tolerations[a]"),
        (
            lambda spec: spec["template"]["spec"]["containers"][0]["resources"]["limits"].update(memory="2Gi"),
            "memory: 2Gi instead of 1024Mi",
        ),
        (
            lambda spec: spec["template"]["spec"]["containers"][0]["resources"]["limits"].update(memory="much"),
            "memory: much instead of 1024Mi",
        ),
        (lambda spec: spec["template"]["spec"]["containers"][0].update(env="none"), "env: none instead of 1 items"),
    ],
)
def test_what_was_changed_is_named(live: dict[str, Any], change: Any, said: str) -> None:
    change(live["spec"])
    found = drift.first(drift.sealed(MANIFEST), live)
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"selector": {"app": "a"}}, ("selector",), "spec.selector.other: x instead of nothing"),
        ({"podSelector": {}}, ("podSelector",), "spec.podSelector.other: x instead of nothing"),
        (
            {"ingress": [{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}]},
            ("ingress", 0, "from", 0, "podSelector", "matchLabels"),
            "podSelector.matchLabels.other: x instead of nothing",
        ),
    ],
)
def test_one_more_label_in_a_selector_is_a_difference(spec: dict[str, Any], path: tuple[Any, ...], said: str) -> None:
    """A Service with it would send requests to nobody, a NetworkPolicy would let in others."""
    wanted = drift.sealed({"kind": "Service", "metadata": {"name": "a"}, "spec": spec})
    live = copy.deepcopy(wanted)
    assert drift.first(wanted, live) is None
    place: Any = live["spec"]
    for step in path:
        place = place[step]
    place["other"] = "x"
    assert said in (drift.first(wanted, live) or "")


def test_a_label_without_a_value_is_missed(live: dict[str, Any]) -> None:
    del live["metadata"]["labels"]["spot"]
    assert drift.first(drift.sealed(MANIFEST), live) == "metadata.labels.spot: nothing instead of "


def test_a_field_that_we_stopped_setting_is_a_difference(live: dict[str, Any]) -> None:
    less = copy.deepcopy(MANIFEST)
    del less["spec"]["template"]["spec"]["tolerations"]
    found = drift.first(drift.sealed(less), live)
    assert found is not None
    assert names.MANIFEST_HASH_ANNOTATION in found


def test_sealing_is_stable_and_leaves_its_argument_alone() -> None:
    before = copy.deepcopy(MANIFEST)
    assert drift.sealed(MANIFEST) == drift.sealed(copy.deepcopy(MANIFEST))
    assert before == MANIFEST


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1000m"), ("0.1", "100m"), ("1024Mi", "1Gi"), ("1e3", "1k"), ("2000M", "2G"), ("1.5Gi", "1536Mi")],
)
def test_equal_amounts(one: str, other: str) -> None:
    wanted, found = ({"spec": {"resources": {"requests": {"cpu": amount}}}} for amount in (one, other))
    assert drift.first(wanted, found) is None
