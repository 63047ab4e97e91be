"""Models that are known by name, as the device of a service holds them."""

from __future__ import annotations

import dataclasses

from tidemark_operator import api, effects
from tidemark_runtime.planning import capacity, known_models, vendors, weight_bytes

CPU = "cpu"
AUTO = "auto"


def named(name: str, service: api.InferenceService) -> capacity.ModelShape | None:
    """None for a name that is not known. Where no kernel of ours runs, weights are not as stored but expanded."""
    shape = capacity.KNOWN_SHAPES.get(name)
    if shape is None or has_kernels(service):
        return shape
    expanded = weight_bytes.weights_bytes(known_models.MODELS[name].matrices, weights_dtype(service, "bfloat16"))
    return dataclasses.replace(shape, weights_bytes=expanded)


def vendor(service: api.InferenceService) -> vendors.Vendor | None:
    """None for a processor, and for devices of which only the engine will see whose they are."""
    return vendors.VENDORS.get(effects.device_of(service.spec.hardware.resource_name))


def has_kernels(service: api.InferenceService) -> bool:
    """A processor has; so, as far as is known, has a device of which only the engine will see whose it is."""
    found = vendor(service)
    return found is None or found.has_kernels


def records_steps(service: api.InferenceService) -> bool:
    """Whether a device has memory for recorded steps. Where several share a model, none are recorded."""
    hardware, found = service.spec.hardware, vendor(service)
    return hardware.resource_name != CPU and hardware.count == 1 and (found is None or found.has_graphs)


def weights_dtype(service: api.InferenceService, of_model: str) -> str:
    """Of unquantized weights, as the engine decides it. auto: on a processor float32, which is exact there; on a
    device 16 bits, the model's own where it has some."""
    dtype = service.spec.model.weights.dtype
    if dtype != AUTO:
        return dtype
    if service.spec.hardware.resource_name == CPU:
        return "float32"
    return "float16" if of_model == "float16" else "bfloat16"
