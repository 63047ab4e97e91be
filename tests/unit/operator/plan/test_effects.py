"""A field without effect is never silently ignored."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, effects


def warned(document: dict[str, Any], *, local: bool = False) -> list[str]:
    return [warning.path for warning in effects.unsupported(api.parse(document), local=local)]


def test_what_acts_gives_no_warning() -> None:
    document = manifests.small(
        replicas=2,
        suspend=False,
        kvCache={
            "dtype": "float16",
            "blockSize": 16,
            "memoryUtilization": 0.8,
            "prefixCaching": False,
            "evictionPolicy": "lruBlock",
            "swapSpace": "1Gi",
        },
        scheduler=manifests.full()["spec"]["scheduler"],
        watermarks={"queue": 0.5, "preempt": 0.6, "hysteresis": 0.1, "response": "tighten"},
        overload=manifests.full()["spec"]["overload"],
        rollout={"drainSeconds": 1, "autoRollback": True},
        access={"apiKeysSecretRef": {"name": "k"}, "tlsSecretRef": {"name": "t"}},
        podTemplate={"env": [], "labels": {"a": "b"}, "annotations": {}, "resources": {"limits": {"cpu": "1"}}},
    )
    document["spec"]["model"] |= {"name": "x", "maxContextTokens": 9, "weights": {"quantization": "int8"}}
    assert warned(document) == []
    assert warned(document, local=True) == []


def test_everything_without_effect_is_named_once() -> None:
    assert warned(manifests.full()) == [
        "spec.rollout.canary",
    ]


@pytest.mark.parametrize(
    ("resource", "device"),
    [
        ("cpu", "cpu"),
        ("nvidia.com/gpu", "cuda"),
        ("nvidia.com/mig-1g.10gb", "cuda"),
        ("huawei.com/Ascend910", "npu"),
        ("example.com/thing", "auto"),
    ],
)
def test_the_engine_is_told_its_device(resource: str, device: str) -> None:
    assert effects.device_of(resource) == device
    warnings = warned(manifests.changed("spec.hardware", {"resourceName": resource}))
    assert warnings == ([f"spec.hardware.resourceName: {resource}"] if device == "auto" else [])


def test_devices_that_the_engine_cannot_share_are_warned_of() -> None:
    two = manifests.changed("spec.hardware", {"resourceName": "nvidia.com/gpu", "count": 2})
    assert warned(two) == ["spec.hardware.count: 2"]


SAMPLES: dict[str, Any] = {
    "model.source.huggingFace": None,  # beside another source it would be refused
    "autoscaling": {"max": 2},
    "rollout.canary": {"holdSeconds": 5},
    "evaluation": {"maxKl": 0.1},
}


def test_there_is_a_sample_for_each_path() -> None:
    assert set(SAMPLES) == set(effects.no_effect_yet())


@pytest.mark.parametrize(("path", "value"), SAMPLES.items())
def test_each_field_warns_when_set_even_to_its_default(path: str, value: Any) -> None:
    if path == "model.source.huggingFace":
        document = manifests.changed("spec.model.source", {"huggingFace": {"repo": "a/b"}})
    else:
        document = manifests.changed(f"spec.{path}", value)
    (warning,) = effects.unsupported(api.parse(document))
    assert str(warning).startswith(f"spec.{path} has no effect yet: ")
    assert str(warning).endswith(".")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("monitoring", {"enabled": False}),
        ("watermarks", {}),
        ("watermarks", None),
        ("evaluation", None),
        ("access.allowFrom", []),
    ],
)
def test_asking_for_what_happens_anyway_is_no_warning(path: str, value: Any) -> None:
    assert warned(manifests.changed(f"spec.{path}", value)) == []


def test_on_one_machine_placement_is_named_too() -> None:
    document = manifests.small(rollout={"strategy": "surge"})
    document["spec"]["hardware"]["nodeSelector"] = {"a": "b"}
    document["spec"]["model"]["source"] = {"pvc": {"claimName": "m"}}
    assert warned(document) == []
    assert warned(document, local=True) == [
        "spec.model.source.pvc",
        "spec.hardware.nodeSelector",
        "spec.rollout.strategy",
    ]


def test_on_one_machine_only_this_machine_connects_whatever_is_allowed() -> None:
    document = manifests.small(access={"allowFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]})
    assert warned(document) == []
    assert warned(document, local=True) == ["spec.access.allowFrom"]


def test_on_one_machine_nobody_sees_a_pod_monitor() -> None:
    document = manifests.small(monitoring={"labels": {"release": "mon"}})
    assert warned(document) == []
    assert warned(document, local=True) == ["spec.monitoring"]
    assert warned(manifests.small(monitoring={"enabled": False}), local=True) == []


def test_on_one_machine_nothing_is_scaled() -> None:
    document = manifests.small(autoscaling={"min": 2, "max": 3})
    sentences = [str(warning) for warning in effects.unsupported(api.parse(document), local=True)]
    assert sentences == ["spec.autoscaling has no effect yet: there is one pod; set replicas instead."]


def test_warnings_are_sentences_those_without_effect_first() -> None:
    document = manifests.changed(
        "spec.model.source", {"hostPath": {"path": "/m"}}, manifests.small(evaluation={"maxKl": 0.1})
    )
    parsed = api.parse(document)
    assert [text.partition(":")[0] for text in effects.warnings(parsed)] == [
        "spec.evaluation has no effect yet",
        "spec.model.source.hostPath",
    ]
    assert effects.warnings(parsed, local=True) == [str(warning) for warning in effects.unsupported(parsed, local=True)]
