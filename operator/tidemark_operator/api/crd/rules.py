"""Rules over more than one field as CEL: `checks.RULES` once more, for the API server.

A default that a rule needs is read from the models, never repeated here.
"""

from __future__ import annotations

from typing import Any

from tidemark_operator import names
from tidemark_operator.api import engine
from tidemark_operator.api.crd import cel
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import fixed_scales

_MAX_ANNOTATION_BYTES = 256 * 2**10
"""Kubernetes' own limit; those of the resource itself are counted by the API server."""


def _model() -> tuple[cel.Rule, ...]:
    at = "spec.model.source"
    keys = cel.keys(at)
    return (
        cel.Rule(
            "one_source",
            at,
            f"{cel.given(*keys)}.size() == 1",
            f"got %s, expected exactly one of {', '.join(keys)}. Keep or add one.",
            (cel.shown(cel.given(*keys)),),
        ),
    )


def _hardware() -> tuple[cel.Rule, ...]:
    tolerations = "spec.hardware.tolerations[]"
    operator = "self.?operator.orValue('Equal')"
    return (
        cel.Rule(
            "pod_memory_is_plausible",
            "spec.hardware",
            "!has(self.memory) || !isQuantity(string(self.memory)) "
            "|| !quantity(string(self.memory)).isLessThan(quantity('64Mi'))",
            "got %s, expected at least 64Mi. Without a unit it is a number of bytes; write 2Gi for two gibibytes.",
            ("self.memory",),
            ".memory",
        ),
        cel.Rule(
            "toleration_makes_sense",
            tolerations,
            f"{operator} != 'Exists' || self.?value.orValue('') == ''",
            "got %s, expected nothing with the operator Exists. Remove it, or use Equal.",
            ("self.value",),
            ".value",
        ),
        cel.Rule(
            "toleration_makes_sense",
            tolerations,
            f"{operator} == 'Exists' || self.?key.orValue('') != ''",
            "got nothing, expected a key with the operator Equal. Add it, or use Exists.",
            field=".key",
        ),
        cel.Rule(
            "toleration_makes_sense",
            tolerations,
            "!has(self.tolerationSeconds) || self.?effect.orValue('') == 'NoExecute'",
            "got %s, expected nothing except with the effect NoExecute. Remove it.",
            ("self.tolerationSeconds",),
            ".tolerationSeconds",
        ),
    )


def _replicas() -> tuple[cel.Rule, ...]:
    low = cel.get("spec.autoscaling", "min")
    below = low.replace("self.", "self.autoscaling.", 1)
    return (
        cel.Rule(
            "replicas_within_autoscaling",
            "spec.autoscaling",
            f"{low} <= self.max",
            "got %s, expected at most autoscaling.max, %s. Swap or change them.",
            (low, "self.max"),
            ".min",
        ),
        cel.Rule(
            "replicas_within_autoscaling",
            "spec",
            f"!has(self.autoscaling) || !has(self.replicas) || {below} > self.autoscaling.max "
            f"|| ({below} <= self.replicas && self.replicas <= self.autoscaling.max)",
            "got %s, expected from autoscaling.min to autoscaling.max, %s to %s. Remove it: autoscaling decides. "
            "To stop the pods set suspend: true.",
            ("self.replicas", below, "self.autoscaling.max"),
            ".replicas",
        ),
    )


def _kv_cache() -> tuple[cel.Rule, ...]:
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


def _scheduler() -> tuple[cel.Rule, ...]:
    at, defaults = "spec.scheduler", settings.EngineConfig().scheduler
    budget = cel.get(at, "maxNumBatchedTokens", defaults.max_num_batched_tokens)
    batch = cel.get(at, "maxNumSeqs", defaults.max_num_seqs)
    return (
        cel.Rule(
            "budget_serves_the_batch",
            at,
            f"{budget} >= {batch}",
            "got %s, expected at least scheduler.maxNumSeqs, %s. Otherwise running sequences would not all get a token "
            "in a step. Raise it, or lower maxNumSeqs.",
            (budget, batch),
            ".maxNumBatchedTokens",
        ),
        cel.Rule(
            "soft_limit_within_batch",
            at,
            f"!has(self.maxConcurrencySoft) || self.maxConcurrencySoft <= {batch}",
            "got %s, expected at most scheduler.maxNumSeqs, %s. No more than that ever run together. Lower it, or "
            "raise maxNumSeqs, which needs a restart.",
            ("self.maxConcurrencySoft", batch),
            ".maxConcurrencySoft",
        ),
    )


def _watermarks() -> tuple[cel.Rule, ...]:
    at = "spec.watermarks"
    queue, preempt, gap = (cel.get(at, key) for key in ("queue", "preempt", "hysteresis"))
    return (
        cel.Rule(
            "watermark_order",
            at,
            f"{queue} <= {preempt}",
            "got %s, expected at most watermarks.preempt, %s. New requests wait before running ones are preempted. "
            "Lower it, or raise preempt.",
            (queue, preempt),
            ".queue",
        ),
        cel.Rule(
            "watermark_order",
            at,
            f"{queue} > {preempt} || {gap} <= {queue}",
            "got %s, expected at most watermarks.queue, %s. Below an empty slab use cannot fall, and the line would "
            "never be left. Lower it.",
            (gap, queue),
            ".hysteresis",
        ),
    )


def _overload() -> tuple[cel.Rule, ...]:
    rule = "spec.overload.degrade[]"
    return (
        cel.Rule(
            "degrade_says_whom_and_what",
            rule,
            "has(self.maxPriority) || has(self.keys) && self.keys.size() > 0",
            "got neither, expected keys or maxPriority, so that it says whose requests it is about. "
            f"maxPriority: {engine.MAX_PRIORITY} means everybody's.",
        ),
        cel.Rule(
            "degrade_says_whom_and_what",
            rule,
            "has(self.maxTokens) || has(self.maxRequests)",
            "got neither, expected maxTokens or maxRequests, so that it has an effect. Set one, or both.",
        ),
        cel.Rule(
            "degrade_needs_key_file",
            "spec",
            f"{cel.has('access.apiKeysSecretRef')} || !{cel.has('overload.degrade')} "
            "|| self.overload.degrade.all(rule, !has(rule.keys) || rule.keys.size() == 0)",
            "got names in keys, expected none, because access.apiKeysSecretRef is not set. Only a key file gives "
            "names. Set it, or select by maxPriority.",
            field=".overload.degrade",
        ),
    )


def _speculative() -> tuple[cel.Rule, ...]:
    at = "spec.speculative"
    method = cel.get(at, "method")
    part = "([^/.]|[.][^/])[^/]*"  # of a path, and not "."
    return (
        cel.Rule(
            "draft_needs_model",
            at,
            f"{method} != 'draft' || has(self.draftModel)",
            "got nothing, expected a model with speculative.method draft. Name it, or choose the method ngram.",
            field=".draftModel",
        ),
        cel.Rule(
            "draft_needs_model",
            at,
            f"{method} == 'draft' || !has(self.draftModel)",
            "got %s, expected nothing with speculative.method %s. Remove it, or choose the method draft.",
            ("self.draftModel", method),
            ".draftModel",
        ),
        cel.Rule(
            "draft_needs_a_folder",
            "spec",
            f"!{cel.has('speculative.draftModel')} || !{cel.has('model.source.hostPath')} "
            f"|| self.model.source.hostPath.path.matches('^(/|[.]/)*{part}/(/|[.]/)*{part}')",
            "got %s, expected a path below a folder that the draft model lies in, too, such as /srv/models/big.gguf. "
            "That folder is mounted, and / never is. Move both models into one.",
            ("self.model.source.hostPath.path",),
            ".model.source.hostPath.path",
        ),
    )


def _rollout() -> tuple[cel.Rule, ...]:
    at = "spec.rollout"
    drain, deadline = cel.get(at, "drainSeconds"), cel.get(at, "progressDeadlineSeconds")
    return (
        cel.Rule(
            "deadline_after_drain",
            at,
            f"{deadline} > {drain}",
            "got %s, expected more than rollout.drainSeconds, %s. A pod that drains for so long would fail every "
            "rollout.",
            (deadline, drain),
            ".progressDeadlineSeconds",
        ),
        cel.Rule(
            "canary_rises_to_all",
            "spec.rollout.canary.steps",
            "self.size() == 0 || self[self.size() - 1] == 100 && self.isSorted() "
            "&& self.all(x, self.exists_one(y, y == x))",
            "got %s, expected rising percentages of which the last is 100. For example [5, 25, 100].",
            ("self",),
        ),
    )


def _access() -> tuple[cel.Rule, ...]:
    peers = "spec.access.allowFrom[]"
    given = cel.given("namespaceSelector", "podSelector", "ipBlock")
    return (
        cel.Rule(
            "peers_are_named",
            peers,
            f"{given}.size() > 0",
            "got nothing, expected namespaceSelector, podSelector or ipBlock. Add one.",
        ),
        cel.Rule(
            "peers_are_named",
            peers,
            f"!has(self.ipBlock) || {given}.size() == 1",
            "got %s, expected ipBlock alone. Make two items of it.",
            (given,),
        ),
    )


def _pod_template() -> tuple[cel.Rule, ...]:
    env, template = "spec.podTemplate.env[]", "spec.podTemplate"
    given = cel.given("secretKeyRef", "configMapKeyRef")
    return (
        cel.Rule(
            "environment_is_clear",
            env,
            "!has(self.value) || !has(self.valueFrom)",
            "got value and valueFrom, expected one of them. Remove one of them.",
        ),
        cel.Rule(
            "environment_is_clear",
            f"{env}.valueFrom",
            f"{given}.size() == 1",
            "got %s, expected exactly one of secretKeyRef, configMapKeyRef. Keep or add one.",
            (cel.shown(given),),
        ),
        *(
            cel.Rule(
                "own_labels_untouched",
                place,
                f"!self.exists(k, {_is_own()})",
                "got %s, expected keys of your own. Keys of this domain are set by the operator. Choose others.",
                (f"self.filter(k, {_is_own()})",),
            )
            for place in (f"{template}.labels", f"{template}.annotations", "spec.monitoring.labels")
        ),
        cel.Rule(
            "annotations_within_bounds",
            f"{template}.annotations",
            f"self.map(k, size(bytes(k)) + size(bytes(self[k]))).sum() <= {_MAX_ANNOTATION_BYTES}",
            f"expected at most {_MAX_ANNOTATION_BYTES} bytes of keys and values together. Kubernetes takes no more; "
            "put it into a ConfigMap of your own.",
        ),
        *(_device_asked_once(kind) for kind in ("requests", "limits")),
    )


def _is_own() -> str:
    """CEL for whether the key `k` is one that `names.is_own` finds."""
    domains = sorted({key.partition("/")[0] for key in names.labels("any")})
    tests = [f"k == '{domain}' || k.startsWith('{domain}/')" for domain in domains]
    below = names.GROUP.replace(".", r"\.")
    return " || ".join([*tests, rf"k.matches(r'^[^/]*\.{below}(/|$)')"])


def _device_asked_once(kind: str) -> cel.Rule:
    resource = cel.get("spec", "hardware.resourceName")
    asked = f"podTemplate.resources.{kind}"
    return cel.Rule(
        "device_asked_once",
        "spec",
        f"{resource} == 'cpu' || !{cel.has(asked)} || !({resource} in self.{asked})",
        "got %s, expected nothing: hardware.count says how many devices. Remove it.",
        (resource,),
        f".{asked}",
    )


def _name() -> cel.Rule:
    """An API server takes no field path into the metadata, so the text names it."""
    return cel.Rule(
        "",
        "",
        f"self.metadata.name.size() <= {names.MAX_NAME_LENGTH} "
        f"&& self.metadata.name.matches(r'^(?:{names.NAME_PATTERN.pattern})$')",
        f"metadata.name: got %s, expected at most {names.MAX_NAME_LENGTH} characters of a-z, 0-9 and -, beginning with "
        "a letter. The pods and the Service carry it.",
        ("self.metadata.name",),
    )


def every() -> tuple[cel.Rule, ...]:
    """All rules, in the order of the fields."""
    return (
        _name(),
        *_model(),
        *_hardware(),
        *_replicas(),
        *_kv_cache(),
        *_scheduler(),
        *_watermarks(),
        *_overload(),
        *_speculative(),
        *_rollout(),
        *_access(),
        *_pod_template(),
    )


_UNIQUE = {"spec.podTemplate.env": "name"}
"""Lists that are mappings by one of their keys: the API server refuses a second item, and appliers can share them."""


def add(schema: dict[str, Any]) -> None:
    """Write every rule to its place in the schema of the whole object."""
    for at, key in _UNIQUE.items():
        _node(schema, at).update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
    for rule in every():
        _node(schema, rule.at).setdefault("x-kubernetes-validations", []).append(rule.dump())


def _node(schema: dict[str, Any], at: str) -> dict[str, Any]:
    node = schema
    for part in filter(None, at.split(".")):
        node = node["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            node = node["items"]
    return node
