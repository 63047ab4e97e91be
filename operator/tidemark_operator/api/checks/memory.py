"""Rules of `spec.kvCache`: what is kept in how many bits, and the swap space."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_operator import errors
from tidemark_operator.api import quantities, view
from tidemark_operator.api.checks import rule as rule_
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import fixed_scales

_ONE_SCALE = fixed_scales.fixable()
_MIN_SWAP = 2**20


def int4_by_name(doc: view.View) -> Iterator[rule_.Found]:
    if doc.get("spec", "kvCache", "dtype") == "int4" and not doc.get("spec", "kvCache", "allowLossy"):
        yield (
            ("spec", "kvCache", "dtype"),
            "int4",
            "int4 only together with kvCache.allowLossy: true",
            f"{settings.LOSSY_COST}. Measure your own model with `tidemark eval MODEL --kv-cache-dtype int4`. "
            "Choose int8, or accept the loss by name.",
        )


def scales_need_8_bits(doc: view.View) -> Iterator[rule_.Found]:
    dtype = doc.get("spec", "kvCache", "dtype")
    if doc.get("spec", "kvCache", "scalesRef") is not None and dtype not in _ONE_SCALE:
        yield (
            ("spec", "kvCache", "scalesRef"),
            errors.Seen(f"scales with kvCache.dtype {dtype}"),
            f"scales only with one of {', '.join(_ONE_SCALE)}",
            "Set dtype to that of the scales, or remove scalesRef.",
        )


def precision_one_way(doc: view.View) -> Iterator[rule_.Found]:
    at = ("spec", "kvCache", "precision")
    given = doc.keys(*at)
    if "mapRef" in given and len(given) > 1:
        yield (
            at,
            errors.Seen(" and ".join(given)),
            "either mapRef or the lists keepLayers and keepHeads",
            "Remove one of them.",
        )


def precision_names_once(doc: view.View) -> Iterator[rule_.Found]:
    at = ("spec", "kvCache", "precision")
    whole = {str(layer) for layer in doc.get(*at, "keepLayers") or ()}
    for layer in doc.get(*at, "keepHeads") or {}:
        if layer in whole:
            yield (
                (*at, "keepHeads", layer),
                errors.Seen(f"heads of layer {layer}"),
                "a layer that is not in keepLayers",
                "The whole layer is kept already. Remove it from one of the two.",
            )


def precision_needs_quantization(doc: view.View) -> Iterator[rule_.Found]:
    dtype = doc.get("spec", "kvCache", "dtype")
    if doc.keys("spec", "kvCache", "precision") and dtype in ("float32", "float16", "bfloat16"):
        yield (
            ("spec", "kvCache", "precision"),
            errors.Seen("a precision map"),
            f"none with kvCache.dtype {dtype}",
            "Nothing is quantized, so nothing can be kept. Remove it, or set dtype: int8.",
        )


def swap_needs_space(doc: view.View) -> Iterator[rule_.Found]:
    mode, space = doc.get("spec", "scheduler", "preemption", "mode"), doc.get("spec", "kvCache", "swapSpace")
    if mode == "swap" and quantities.to_bytes(str(space)) == 0:
        yield (
            ("spec", "kvCache", "swapSpace"),
            space,
            "more than 0 with scheduler.preemption.mode swap",
            "Set it, for example to 8Gi, or choose the mode auto.",
        )


def swap_is_plausible(doc: view.View) -> Iterator[rule_.Found]:
    space = doc.get("spec", "kvCache", "swapSpace")
    if 0 < quantities.to_bytes(str(space)) < _MIN_SWAP:
        yield (
            ("spec", "kvCache", "swapSpace"),
            space,
            "0 or at least 1Mi",
            "No page is so small. Without a unit it is a number of bytes; write 8Gi for eight gibibytes.",
        )


def swap_within_memory(doc: view.View) -> Iterator[rule_.Found]:
    key, memory = _container_memory(doc)
    space = doc.get("spec", "kvCache", "swapSpace")
    if memory is not None and quantities.to_bytes(str(space)) >= quantities.to_number(memory):
        yield (
            ("spec", "kvCache", "swapSpace"),
            space,
            f"less than {key}, {memory}",
            "It is a part of the pod's memory. Lower it, or give the pod more memory.",
        )


def _container_memory(doc: view.View) -> tuple[str, str | None]:
    """Which field limits the memory of the engine's container, and to what."""
    limits = doc.get("spec", "podTemplate", "resources", "limits")
    if "memory" in limits:
        return "podTemplate.resources.limits.memory", str(limits["memory"])
    memory = doc.get("spec", "hardware", "memory")
    if doc.get("spec", "hardware", "resourceName") != "cpu" or memory is None:
        return "", None
    return "hardware.memory", str(memory)
