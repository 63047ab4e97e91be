"""Does the service fit, before any pod exists: the engine's own sum, over what is known of the model.

Known are the models that `tidemark models` knows by name, and every model that an engine of this service has loaded
before (`status.shape`). Of another one nothing is known before its first start; the engine then does the same sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, effects
from tidemark_operator.api import quantities
from tidemark_operator.plan import engine_config, layout
from tidemark_runtime.planning import capacity

_MIB_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer, and the sum in words."""

    fits: bool | None
    """None: not known before the model's first start."""
    message: str

    @property
    def refused(self) -> bool:
        """No pods for this spec."""
        return self.fits is False


def fit(service: api.InferenceService, status: Mapping[str, Any]) -> Fit:
    """Whether one pod of `service` fits; `status` is what was last written of it."""
    shape, overhead_bytes = _shape(service, status)
    limit_bytes = _limit_bytes(service.spec.hardware)
    if shape is None:
        return Fit(None, "The model's size is not known before its first start; the engine does the sum then.")
    if limit_bytes is None:
        return Fit(None, "spec.hardware.memory is not set; the engine does the sum with what it finds.")
    wanted = _wanted(service, limit_bytes, overhead_bytes)
    try:
        sum_ = capacity.plan(shape, wanted)
    except capacity.CapacityError as error:
        return Fit(False, f"{_sentence(str(error))}. No pods are started for this spec.")
    tokens = sum_.num_pages * wanted.block_size
    terms = " + ".join(f"{name} {_mib(size)}" for name, size in sum_.parts_bytes.items())
    total_bytes = sum(sum_.parts_bytes.values())
    return Fit(
        True,
        f"{terms} = {_mib(total_bytes)} of {_mib(limit_bytes)}: room for {tokens:,} tokens in "
        f"{sum_.num_pages:,} pages.",
    )


def _shape(service: api.InferenceService, status: Mapping[str, Any]) -> tuple[capacity.ModelShape | None, int]:
    """What an engine measured comes before what a table says."""
    source, kept = layout.model_source(service.spec.model.source), status.get("shape")
    if isinstance(kept, Mapping) and kept.get("source") == source:
        values: dict[str, Any] = {name: kept.get(_camel(name)) for name in capacity.ModelShape.__dataclass_fields__}
        if all(isinstance(value, int) and value > 0 for value in values.values()):
            return capacity.ModelShape(**values), int(kept.get("overheadBytes") or capacity.OVERHEAD_BYTES)
    package = service.spec.model.source.package
    known = capacity.KNOWN_SHAPES.get(package.name) if package is not None else None
    return known, capacity.OVERHEAD_BYTES


def _limit_bytes(hardware: api.Hardware) -> int | None:
    """Of a pod; with devices, `memory` is that of one."""
    if hardware.memory is None:
        return None
    each = quantities.to_bytes(hardware.memory)
    return each if hardware.resource_name == "cpu" else each * hardware.count


def _wanted(service: api.InferenceService, limit_bytes: int, overhead_bytes: int) -> capacity.Wanted:
    parsed = engine_config.parse(service)
    return capacity.Wanted(
        kv_dtype=_kv_dtype(service),
        block_size=parsed.kv_cache.block_size,
        memory_utilization=parsed.kv_cache.memory_utilization,
        max_num_seqs=parsed.scheduler.max_num_seqs,
        max_num_batched_tokens=parsed.scheduler.max_num_batched_tokens,
        max_context_tokens=parsed.model.max_context_tokens,
        limit_bytes=limit_bytes,
        overhead_bytes=overhead_bytes,
        # The limit of devices is their own memory, and the host's is no part of it.
        precision=parsed.kv_cache.precision,
        swap_bytes=parsed.kv_cache.swap_space if service.spec.hardware.resource_name == "cpu" else 0,
    )


def _kv_dtype(service: api.InferenceService) -> str:
    """auto: two bytes on a device; on a processor four, because not every one is fast at bfloat16."""
    asked = effects.acting(service, "kvCache.dtype")
    if asked not in (None, "auto"):
        return str(asked)
    dtype = service.spec.model.weights.dtype
    if dtype != "auto":
        return dtype
    return "float32" if service.spec.hardware.resource_name == "cpu" else "bfloat16"


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with the name of a field, which then stands under `spec`."""
    return f"spec.{text}" if text.partition(" ")[0].endswith(":") else f"{text[0].upper()}{text[1:]}"


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / _MIB_BYTES:,.0f} MiB"
