"""Rules of `spec.kvCache`: what is kept in how many bits, and the swap space."""

from __future__ import annotations

from tidemark_operator.api.crd import cel
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import fixed_scales


def kv_cache() -> tuple[cel.Rule, ...]:
    at, precision = "spec.kvCache", "spec.kvCache.precision"
    dtype = cel.get(at, "dtype")
    keys = cel.keys(precision)
    any_given = " || ".join(cel.has(f"precision.{key}") for key in keys)
    return (
        cel.Rule(
            "int4_by_name",
            at,
            f"{dtype} != 'int4' || {cel.get(at, 'allowLossy')}",
            f"got int4, expected int4 only together with kvCache.allowLossy: true. {settings.LOSSY_COST}. Measure your "
            "own model with `tidemark eval MODEL --kv-cache-dtype int4`. Choose int8, or accept the loss by name.",
            field=".dtype",
        ),
        cel.Rule(
            "scales_need_8_bits",
            at,
            f"!has(self.scalesRef) || {dtype} in {list(fixed_scales.fixable())}",
            f"got scales with kvCache.dtype %s, expected scales only with one of {', '.join(fixed_scales.fixable())}. "
            "Set dtype to that of the scales, or remove scalesRef.",
            (dtype,),
            ".scalesRef",
        ),
        cel.Rule(
            "precision_one_way",
            precision,
            f"!has(self.mapRef) || {cel.given(*keys)}.size() == 1",
            "got %s, expected either mapRef or the lists keepLayers and keepHeads. Remove one of them.",
            (cel.given(*keys),),
        ),
        cel.Rule(
            "precision_names_once",
            precision,
            "!has(self.keepLayers) || !has(self.keepHeads) || "
            "!self.keepLayers.exists(layer, string(layer) in self.keepHeads)",
            "got heads of a layer in keepHeads that keepLayers names too, expected each layer in one of the two. "
            "Remove it from one of them.",
            field=".keepHeads",
        ),
        cel.Rule(
            "precision_needs_quantization",
            at,
            f"!({dtype} in ['float32', 'float16', 'bfloat16']) || !({any_given})",
            "got a precision map, expected none with kvCache.dtype %s. Nothing is quantized, so nothing can be kept. "
            "Remove it, or set dtype: int8.",
            (dtype,),
            ".precision",
        ),
        *_swap(),
    )


def _swap() -> tuple[cel.Rule, ...]:
    space = "string(self.kvCache.swapSpace)"
    resource = cel.get("spec", "hardware.resourceName")
    # Not as an optional: of such a value's length an API server knows nothing, and thinks the rule too dear.
    limits = "self.podTemplate.resources.limits"
    limited = f"{cel.has('podTemplate.resources.limits')} && 'memory' in {limits}"
    limit = f"{limits}['memory']"
    unused = f"!{cel.has('kvCache.swapSpace')} || !isQuantity({space})"
    return (
        cel.Rule(
            "swap_needs_space",
            "spec",
            f"{cel.get('spec', 'scheduler.preemption.mode')} != 'swap' || ({cel.has('kvCache.swapSpace')} "
            f"&& (!isQuantity({space}) || quantity({space}).isGreaterThan(quantity('0'))))",
            "got no swap space, expected more than 0 with scheduler.preemption.mode swap. Set it, for example to 8Gi, "
            "or choose the mode auto.",
            field=".kvCache.swapSpace",
        ),
        cel.Rule(
            "swap_is_plausible",
            "spec.kvCache",
            "!has(self.swapSpace) || !isQuantity(string(self.swapSpace)) || quantity(string(self.swapSpace))"
            ".compareTo(quantity('0')) == 0 || !quantity(string(self.swapSpace)).isLessThan(quantity('1Mi'))",
            "got %s, expected 0 or at least 1Mi. No page is so small. Without a unit it is a number of bytes; write "
            "8Gi for eight gibibytes.",
            ("self.swapSpace",),
            ".swapSpace",
        ),
        cel.Rule(
            "swap_within_memory",
            "spec",
            f"{unused} || !({limited}) || !isQuantity({limit}) || quantity({space}).isLessThan(quantity({limit}))",
            "got %s, expected less than podTemplate.resources.limits.memory, %s. It is a part of the pod's memory. "
            "Lower it, or give the pod more memory.",
            ("self.kvCache.swapSpace", limit),
            ".kvCache.swapSpace",
        ),
        cel.Rule(
            "swap_within_memory",
            "spec",
            f"{unused} || ({limited}) || {resource} != 'cpu' || !{cel.has('hardware.memory')} "
            f"|| !isQuantity(string(self.hardware.memory)) "
            f"|| quantity({space}).isLessThan(quantity(string(self.hardware.memory)))",
            "got %s, expected less than hardware.memory, %s. It is a part of the pod's memory. Lower it, or give the "
            "pod more memory.",
            ("self.kvCache.swapSpace", "self.hardware.memory"),
            ".kvCache.swapSpace",
        ),
    )
