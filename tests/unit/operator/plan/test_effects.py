"""A field without effect is never silently ignored."""

from __future__ import annotations

from typing import Any

import manifests
import pytest
import torch

from tidemark_kernels import device_dispatch
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
    service = api.parse(manifests.changed("spec.hardware", {"resourceName": resource, "strictKernels": False}))
    for local in (False, True):
        told = [text for text in effects.warnings(service, local=local) if "does not know whose device" in text]
        assert len(told) == (1 if device == "auto" else 0)
        assert all("no effect" not in text and "or the processor where it sees none" in text for text in told)


NVIDIA = {"resourceName": "nvidia.com/gpu"}


@pytest.mark.parametrize(
    ("hardware", "spec", "path", "value", "remedy"),
    [
        (NVIDIA, {"kvCache": {"dtype": "int4", "allowLossy": True}}, "kvCache.dtype", "int4", "to int8 or fp8_e4m3"),
        (NVIDIA, {"weights": {"quantization": "int8"}}, "model.weights.quantization", "int8", "to int8_weight_only"),
        (NVIDIA, {"kvCache": {"blockSize": 12}}, "kvCache.blockSize", 12, "set it to 16"),
        ({"resourceName": "huawei.com/Ascend910"}, {}, "hardware.resourceName", "huawei.com/Ascend910", "to false"),
        ({"resourceName": "mthreads.com/gpu"}, {}, "hardware.resourceName", "mthreads.com/gpu", "to false"),
        ({"resourceName": "cambricon.com/mlu"}, {}, "hardware.resourceName", "cambricon.com/mlu", "to false"),
    ],
)
@pytest.mark.parametrize("local", [False, True])
def test_what_an_engine_on_a_device_refuses_is_told_before(
    hardware: dict[str, Any], spec: dict[str, Any], path: str, value: object, remedy: str, local: bool
) -> None:
    document = manifests.small(hardware=hardware, **{key: part for key, part in spec.items() if key != "weights"})
    document["spec"]["model"]["weights"] = spec.get("weights", {})
    service = api.parse(document)
    (refusal,) = effects.refusals(service)
    assert str(refusal).startswith(f"spec.{path}: {value}: the engine refuses to start with it on ")
    assert str(refusal).endswith(f"{remedy}.") or f"{remedy}, and " in str(refusal)
    assert effects.warnings(service, local=local) == [str(refusal)]
    document["spec"]["hardware"] = {"resourceName": "cpu", "count": 2}
    assert effects.refusals(api.parse(document)) == []


@pytest.mark.parametrize(
    ("speculative", "refused"), [({"method": "ngram"}, False), ({"method": "draft", "draftModel": "d"}, True)]
)
def test_a_draft_model_is_refused_where_several_devices_share_the_model(
    speculative: dict[str, str], refused: bool
) -> None:
    made = (manifests.small(hardware=NVIDIA | more, speculative=speculative) for more in ({}, {"count": 2}))
    one, several = ([found.path for found in effects.refusals(api.parse(each))] for each in made)
    assert one == []
    assert ("spec.speculative.method" in several) == refused


def test_without_strict_kernels_it_serves_slowly_and_nothing_is_refused() -> None:
    for resource in ("huawei.com/Ascend910", "nvidia.com/gpu"):
        hardware = {"resourceName": resource, "strictKernels": False}
        assert effects.refusals(api.parse(manifests.small(hardware=hardware, kvCache={"blockSize": 12}))) == []


@pytest.mark.parametrize("size", [*range(1, 34), 64, 96, 128, 200, 256])
def test_the_sizes_of_pages_are_those_that_kernels_read(size: int) -> None:
    need = device_dispatch.Need(
        dtype=torch.bfloat16, head_dim=64, block_size=size, kv_dtypes=("bfloat16",), vocab_size=1000
    )
    choices = device_dispatch.choose(need, device_dispatch.Target(kind="cuda"))
    found = effects.refusals(api.parse(manifests.small(hardware=NVIDIA, kvCache={"blockSize": size})))
    assert bool(found) == bool(choices.unplanned)


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
