"""Which fields of the spec this version does not act on yet, and which values an engine on a device refuses.

Setting one is never silently ignored: status says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

from tidemark_operator import api
from tidemark_runtime.planning import vendors

_NO_EFFECT: dict[str, str] = {
    "model.source.huggingFace": "models are not fetched from a hub; put the files on a volume",
    "autoscaling": "no autoscaler is made, and the Deployment's replicas are left to one of your own",
    "rollout.canary": "a change reaches all pods",
    "evaluation": "it has no schedule, and no change waits for an evaluation",
}
"""Path under `spec` -> what happens instead. A path stands for everything below it."""

_ACTS_WITH: dict[str, str] = {"evaluation": "evaluation.schedule"}
"""A section that acts once this field of it is set."""

_NOTHING_ASKED: dict[str, object] = {
    "monitoring.enabled": False,
}
"""With these values a field, or the section it stands in, asks for what happens anyway: no warning."""

_VALUES_WITHOUT_EFFECT: dict[str, tuple[frozenset[str], str]] = {
    "model.weights.quantization": (
        frozenset({"fp8"}),
        "the weights stay as the files hold them; fp8_weight_only rounds the weights",
    ),
}
"""Fields that act, but not with these values."""

_NEEDS_CLUSTER: dict[str, str] = {
    "evaluation": "nobody runs a job at a time; run `tidemark eval` yourself",
    "autoscaling": "there is one pod; set replicas instead",
    "model.source.pvc": "this machine has no claims; use hostPath",
    "model.source.image": "this machine mounts no images; use hostPath",
    "hardware.nodeSelector": "there is only this machine",
    "hardware.tolerations": "there is only this machine",
    "hardware.runtimeClassName": "the engine is a process of this machine",
    "rollout.strategy": "there is no scheduler to ask for a spare device",
    "rollout.progressDeadlineSeconds": "a local rollout has no deadline",
    "monitoring": "nobody on this machine would see the objects; `tidemark render --monitoring` writes files instead",
    "access.allowFrom": "only this machine can connect, to 127.0.0.1",
    "podTemplate.priorityClassName": "the engine is a process of this machine",
    "podTemplate.serviceAccountName": "the engine is a process of this machine",
    "podTemplate.imagePullSecrets": "no image is pulled",
}
"""As `_NO_EFFECT`, for `tidemark up`: processes instead of pods."""


_REFUSED_ON_A_DEVICE: dict[str, tuple[frozenset[str], str]] = {
    "model.weights.quantization": (
        frozenset({"int8"}),
        "only a processor rounds activations; set it to int8_weight_only",
    ),
    "kvCache.dtype": (frozenset({"int4"}), "no kernel of a device reads 4 bits; set it to int8 or fp8_e4m3"),
}
"""Values that act on a processor, while an engine on a device ends with them -> why, and what to set."""

_LEAST_BLOCK = 8
"""Tokens of a page that kernels of a device read; `tidemark_kernels.device_dispatch` refuses what is not a power of two
from this on."""


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """A field that was set and does nothing."""

    path: str
    """With `spec.` in front."""
    instead: str

    def __str__(self) -> str:
        return f"{self.path} has no effect yet: {self.instead}."


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value with which the engine would not start."""

    path: str
    """With `spec.` in front."""
    value: object
    where: str
    """On which devices."""
    why: str
    """And what to set instead."""

    def __str__(self) -> str:
        return f"{self.path}: {self.value}: the engine refuses to start with it on {self.where}: {self.why}."


def unsupported(service: api.InferenceService, *, local: bool = False) -> list[SpecWarning]:
    """Warnings for fields that the user has set, even to their default, in the order of the table.

    `local`: the pods are processes of this machine (`tidemark up`).
    """
    table = _NO_EFFECT | _NEEDS_CLUSTER if local else _NO_EFFECT
    act = {path for path, field in _ACTS_WITH.items() if not local and _is_set(service.spec, field)}
    found = [
        SpecWarning(f"spec.{path}", instead)
        for path, instead in table.items()
        if _is_set(service.spec, path) and path not in act
    ]
    if not local and _is_set(service.spec, "evaluation.schedule") and not is_quantized(service):
        found.append(SpecWarning("spec.evaluation.schedule", _NOTHING_QUANTIZED))
    for path, (_, instead) in _VALUES_WITHOUT_EFFECT.items():
        value = acting(service, path)
        if value is None:
            shown = _value(service.spec, path)
            found.append(SpecWarning(f"spec.{path}: {shown}", instead))
    return found


def device_of(resource_name: str) -> str:
    """`hardware.device` of the engine; `auto` for a resource that is not known."""
    if resource_name == "cpu":
        return "cpu"
    found = vendors.of_resource(resource_name)
    return "auto" if found is None else found[0]


def refusals(service: api.InferenceService) -> list[Refusal]:
    """What an engine on a device refuses at its start, told before a pod exists; on a processor nothing of it is."""
    spec, hardware = service.spec, service.spec.hardware
    device = device_of(hardware.resource_name)
    if device == "cpu":
        return []
    found = [
        Refusal(f"spec.{path}", value, "a device", why)
        for path, (values, why) in _REFUSED_ON_A_DEVICE.items()
        if (value := _value(spec, path)) in values
    ]
    if hardware.count > 1 and spec.speculative.method == "draft":
        why = "a draft model guesses on one device; set it to ngram or none, or hardware.count to 1"
        found.append(Refusal("spec.speculative.method", "draft", "several devices", why))
    if hardware.strict_kernels is False:
        return found
    size = spec.kv_cache.block_size
    if device in vendors.VENDORS and not vendors.VENDORS[device].has_kernels:
        why = (
            "no kernel of ours is known to compile for it; set hardware.strictKernels to false, and plain torch "
            "computes, many times slower"
        )
        found.append(Refusal("spec.hardware.resourceName", hardware.resource_name, "such a device", why))
    elif size < _LEAST_BLOCK or size & (size - 1):
        why = f"kernels read pages of a power of two tokens from {_LEAST_BLOCK} on; set it to 16"
        found.append(Refusal("spec.kvCache.blockSize", size, "a device", why))
    return found


def refused_of_kv(service: api.InferenceService) -> tuple[frozenset[str], str]:
    """Dtypes of KV memory, whatever names them, that the engine of `service` refuses, and why; none on a processor."""
    if device_of(service.spec.hardware.resource_name) == "cpu":
        return frozenset(), ""
    return _REFUSED_ON_A_DEVICE["kvCache.dtype"]


def _unknown_resource(resource_name: str) -> str:
    known = ", ".join(start for vendor in vendors.VENDORS.values() for start in vendor.resources)
    return (
        f"spec.hardware.resourceName: {resource_name}: the engine does not know whose device that is. It takes the "
        f"accelerator that it sees, or the processor where it sees none. Resources that it knows begin with {known}."
    )


_QUANTIZED_KV = frozenset({"int8", "int4", "fp8_e4m3", "fp8_e5m2"})
_QUANTIZED_WEIGHTS = frozenset({"int8_weight_only", "fp8_weight_only"})
_NOTHING_QUANTIZED = (
    f"nothing is quantized that could be compared; set kvCache.dtype to one of {', '.join(sorted(_QUANTIZED_KV))}, or "
    f"model.weights.quantization to {' or '.join(sorted(_QUANTIZED_WEIGHTS))}"
)


def is_quantized(service: api.InferenceService) -> bool:
    """Whether there is something to compare with the unquantized model: of AWQ and GPTQ files there is no such."""
    kv_dtype, weights = acting(service, "kvCache.dtype"), acting(service, "model.weights.quantization")
    return kv_dtype in _QUANTIZED_KV or weights in _QUANTIZED_WEIGHTS


_REFUSED_BY_LEVEL = (
    "namespaces that enforce the baseline or restricted Pod Security level refuse it; use pvc or image instead."
)


def warnings(
    service: api.InferenceService, *, local: bool = False, model_store_host_path: str | None = None
) -> list[str]:
    """Sentences for `status.warnings`: fields without effect, what the engine would refuse, then what acts and may not
    work everywhere.

    `model_store_host_path`: the folder of the nodes that pods look into for models by name, if there is one.
    """
    found = [*map(str, unsupported(service, local=local)), *map(str, refusals(service))]
    source, resource_name = service.spec.model.source, service.spec.hardware.resource_name
    if device_of(resource_name) == "auto":
        found.append(_unknown_resource(resource_name))
    if local:
        return found
    if source.host_path is not None:
        found.append(f"spec.model.source.hostPath: {_REFUSED_BY_LEVEL}")
    if source.package is not None and model_store_host_path is not None:
        found.append(f"spec.model.source.package is read from {model_store_host_path} of the node: {_REFUSED_BY_LEVEL}")
    return found


def acting(service: api.InferenceService, path: str) -> Any:
    """The value of a field, or None where this version cannot act on the value."""
    value = _value(service.spec, path)
    return value if acts(path, value) else None


def acts(path: str, value: object) -> bool:
    """Whether this version acts on a field when it has this value."""
    refused = _VALUES_WITHOUT_EFFECT.get(path)
    return refused is None or value not in refused[0]


def paths() -> frozenset[str]:
    """Every path of the tables, for the test that they exist and for the reference page."""
    return frozenset(_NO_EFFECT) | frozenset(_VALUES_WITHOUT_EFFECT) | frozenset(_NEEDS_CLUSTER)


def no_effect_yet() -> dict[str, str]:
    """Path under `spec` -> what happens instead."""
    return dict(_NO_EFFECT)


def _is_set(spec: pydantic.BaseModel, path: str) -> bool:
    """Whether the field stands in the manifest and asks for something."""
    section: Any = spec
    for part in path.split("."):
        name = _name(section, part)
        if name not in section.model_fields_set:
            return False
        section = getattr(section, name)
        if section is None:
            return False
    for neutral, value in _NOTHING_ASKED.items():
        if (neutral == path or neutral.rpartition(".")[0] == path) and _value(spec, neutral) == value:
            return False
    if isinstance(section, pydantic.BaseModel):
        return bool(section.model_fields_set)
    return section not in ([], {})


def _value(spec: pydantic.BaseModel, path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = getattr(value, _name(value, part))
    return value


def _name(section: Any, alias: str) -> str:
    fields: dict[str, FieldInfo] = type(section).model_fields
    return next(name for name, info in fields.items() if info.alias == alias)
