"""Does the service fit, before any pod exists: the engine's own sum, over what is known of the model.

Known are the models that `tidemark models` knows by name, and every model that an engine of this service has loaded
before (`status.shape`). Of another one nothing is known before its first start; the engine then does the same sum.
`tidemark plan` asks here, too, and may bring a shape of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, effects
from tidemark_operator.api import quantities
from tidemark_operator.plan import draft, engine_config, layout, precision, shapes
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import capacity, page_layout, precision_map

_MIB_BYTES = 1024 * 1024
CPU = shapes.CPU


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer, and the sum in words."""

    fits: bool | None
    """None: not known before the model's first start."""
    message: str
    reason: str = ""
    """Of the map that is in the way (`precision`); empty: it is none."""

    @property
    def refused(self) -> bool:
        """No pods for this spec."""
        return self.fits is False


def fit(service: api.InferenceService, status: Mapping[str, Any], mapped: precision.Map | None = None) -> Fit:
    """Whether one pod of `service` fits; `status` is what was last written of it. `mapped`: the precision map that it
    names; None: it names none, or it was not looked at, which the message then says. A draft model is counted where its
    name is known; else the message says that it is not."""
    if mapped is not None and mapped.reason:
        return _without_map(mapped)
    shape, overhead_bytes = known_shape(service, status)
    limit_bytes = device_bytes(service.spec.hardware)
    if shape is None:
        unknown = "The model's size is not known before its first start; the engine does the sum then."
        other = precision.other_model(mapped, precision.name_of_model(service))
        return Fit(None, f"{unknown} {other}" if other else unknown)
    if limit_bytes is None:
        return Fit(None, "spec.hardware.memory is not set; the engine does the sum with what it finds.")
    guesser = draft.by_name(service)
    asked = wanted(service, limit_bytes, overhead_bytes, mapped, guesser)
    unfit = compared(mapped, shape, asked)
    if unfit is not None:
        return _without_map(unfit)
    try:
        sum_ = capacity.plan(shape, asked)
    except capacity.CapacityError as error:
        return Fit(False, f"{_sentence(str(error))}. No pods are started for this spec.")
    tokens = sum_.num_pages * asked.block_size
    terms = " + ".join(f"{name} {_mib(size)}" for name, size in sum_.parts_bytes.items())
    total_bytes = sum(sum_.parts_bytes.values())
    where = f" of each of {asked.num_devices} devices" if asked.num_devices > 1 else ""
    message = (
        f"{terms} = {_mib(total_bytes)} of {_mib(limit_bytes)}{where}: room for {tokens:,} tokens in "
        f"{sum_.num_pages:,} pages."
    )
    return Fit(
        True, " ".join([message, *map_sentences(service, shape, asked, mapped), *draft.sentences(service, guesser)])
    )


def _without_map(mapped: precision.Map) -> Fit:
    """One that is not there yet keeps pods waiting and is no reason to have none; with a wrong one they would end."""
    if mapped.reason == precision.NOT_FOUND:
        return Fit(None, mapped.message, mapped.reason)
    return Fit(False, f"{mapped.message} No pods are started for this spec.", mapped.reason)


def compared(mapped: precision.Map | None, shape: capacity.ModelShape, asked: capacity.Wanted) -> precision.Map | None:
    """What is wrong with a map for this model; None: nothing."""
    if mapped is None or mapped.found is None:
        return None
    target = precision_map.Target(capacity.kv_shape(shape), asked.kv_dtype, num_query_heads=shape.num_heads)
    try:
        precision_map.segments_of(mapped.found, target)
    except settings.ConfigError as error:
        return precision.unusable(mapped.name, str(error))
    return None


def known_shape(
    service: api.InferenceService, status: Mapping[str, Any]
) -> tuple[capacity.ModelShape | None, int | None]:
    """The model's shape, and its overhead where an engine measured it. What was measured comes before what a table
    says."""
    source, kept = layout.model_source(service.spec), status.get("shape")
    if isinstance(kept, Mapping) and kept.get("source") == source:
        values: dict[str, Any] = {name: kept.get(_camel(name)) for name in capacity.ModelShape.__dataclass_fields__}
        if all(isinstance(value, int) and value > 0 for value in values.values()):
            return capacity.ModelShape(**values), int(kept.get("overheadBytes") or 0) or None
    package = service.spec.model.source.package
    return None if package is None else shapes.named(package.name, service), None


def device_bytes(hardware: api.Hardware) -> int | None:
    """Of one device; on a processor of the pod. None where the manifest does not say."""
    return None if hardware.memory is None else quantities.to_bytes(hardware.memory)


def wanted(
    service: api.InferenceService,
    limit_bytes: int,
    overhead_bytes: int | None = None,
    mapped: precision.Map | None = None,
    guesser: draft.Draft | None = None,
) -> capacity.Wanted:
    """What `service` asks for, `auto` resolved. `limit_bytes`: of one device; `overhead_bytes`: None, not measured;
    `guesser`: its draft model, None where only its name is looked at."""
    parsed, hardware = engine_config.parse(service), service.spec.hardware
    on_device = hardware.resource_name != CPU
    assumed = capacity.DEVICE_OVERHEAD_BYTES if on_device else capacity.OVERHEAD_BYTES
    return capacity.Wanted(
        kv_dtype=_kv_dtype(service),
        block_size=parsed.kv_cache.block_size,
        memory_utilization=parsed.kv_cache.memory_utilization,
        max_num_seqs=parsed.scheduler.max_num_seqs,
        max_num_batched_tokens=parsed.scheduler.max_num_batched_tokens,
        max_context_tokens=parsed.model.max_context_tokens,
        limit_bytes=limit_bytes,
        num_devices=hardware.count if on_device else 1,
        overhead_bytes=assumed if overhead_bytes is None else overhead_bytes,
        graphs_bytes=capacity.DEVICE_GRAPHS_BYTES if shapes.records_steps(service) else 0,
        item_bytes=2 if on_device else 4,
        heap_share=capacity.DEVICE_HEAP_SHARE if on_device else capacity.HEAP_SHARE,
        precision=_rules(parsed, mapped),
        fixed_scales=parsed.kv_cache.scales_file is not None,
        num_pages=parsed.kv_cache.num_pages,
        memory_bytes=parsed.kv_cache.memory,
        # The limit of devices is their own memory, and the host's is no part of it.
        swap_bytes=0 if on_device else parsed.kv_cache.swap_space,
        speculation=draft.speculation(service, parsed, guesser or draft.by_name(service), _kv_dtype(service)),
    )


def map_sentences(
    service: api.InferenceService,
    shape: capacity.ModelShape,
    asked: capacity.Wanted,
    mapped: precision.Map | None = None,
    name: str | None = None,
) -> tuple[str, ...]:
    """What the sum says of the map in a ConfigMap: how much it keeps, or, not looked at, what it could change. `name`:
    of the model that is planned with; None: the manifest's."""
    reference = service.spec.kv_cache.precision.map_ref
    if reference is None or not page_layout.KV_DTYPES[asked.kv_dtype].scaled:
        return ()
    if mapped is not None and mapped.found is not None:
        target = precision_map.Target(capacity.kv_shape(shape), asked.kv_dtype)
        named, every = precision_map.segments_of(mapped.found, target), 2 * shape.num_layers * shape.num_kv_heads
        dtypes = ", ".join(sorted(set(named.values())))
        kept = f"The precision map in ConfigMap {mapped.name} keeps {len(named)} of {every} segments in {dtypes}."
        other = precision.other_model(mapped, precision.name_of_model(service) if name is None else name)
        return (kept, other) if other else (kept,)
    try:
        least = capacity.plan(shape, dataclasses.replace(asked, kv_dtype="bfloat16"))
    except capacity.CapacityError:
        kept = "not one page"
    else:
        kept = f"{least.num_pages * asked.block_size:,} tokens"
    return (
        f"The precision map in ConfigMap {reference.name} ({precision.FIELD}) was not given, and the sum is without "
        f"it: each segment that it keeps at 16 bits takes room; one that kept all would leave {kept}.",
    )


def _rules(parsed: settings.EngineConfig, mapped: precision.Map | None) -> Any:
    """The map's, or those of the manifest itself."""
    if mapped is None or mapped.found is None:
        return parsed.kv_cache.precision
    return precision_map.to_settings(mapped.found)


def _kv_dtype(service: api.InferenceService) -> str:
    """auto: two bytes on a device; on a processor four, for float32 is exact there."""
    asked = effects.acting(service, "kvCache.dtype")
    if asked not in (None, "auto"):
        return str(asked)
    dtype = service.spec.model.weights.dtype
    if dtype != "auto":
        return dtype
    return "float32" if service.spec.hardware.resource_name == CPU else "bfloat16"


def _sentence(text: str) -> str:
    """With a capital letter, unless it begins with the name of a field, which then stands under `spec`."""
    return f"spec.{text}" if text.partition(" ")[0].endswith(":") else f"{text[0].upper()}{text[1:]}"


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / _MIB_BYTES:,.0f} MiB"
