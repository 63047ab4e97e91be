"""Rules that look at more than one field. Each is a generator of problems; `RULES` lists them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tidemark_operator import errors, names
from tidemark_operator.api import describe, engine, quantities, view
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import fixed_scales

Found = tuple[describe.Loc, object, str, str]
"""Where, what was seen, what was expected, what to do."""
Rule = Callable[[view.View], Iterator[Found]]

_SOURCE = ("spec", "model", "source")
_ONE_SCALE = fixed_scales.fixable()
_MIN_POD_MEMORY = 64 * 2**20
_MIN_SWAP = 2**20
_MAX_ANNOTATION_BYTES = 256 * 2**10
"""Kubernetes' own limit for one object."""


def one_source(doc: view.View) -> Iterator[Found]:
    given = doc.keys(*_SOURCE)
    if len(given) != 1:
        seen = errors.Seen(" and ".join(given) or "none of them")
        yield (
            _SOURCE,
            seen,
            "exactly one of pvc, hostPath, image, huggingFace, package",
            "Keep one and remove the others." if given else "Add one, for example {package: {name: smollm2-135m}}.",
        )


def watermark_order(doc: view.View) -> Iterator[Found]:
    at = ("spec", "watermarks")
    queue, preempt, gap = (doc.get(*at, key) for key in ("queue", "preempt", "hysteresis"))
    if queue > preempt:
        yield (
            (*at, "queue"),
            queue,
            f"at most watermarks.preempt, {preempt:g}",
            "New requests wait before running ones are preempted. Lower it, or raise preempt.",
        )
    elif gap > queue:
        yield (
            (*at, "hysteresis"),
            gap,
            f"at most watermarks.queue, {queue:g}",
            "Below an empty slab use cannot fall, and the line would never be left. Lower it.",
        )


def replicas_within_autoscaling(doc: view.View) -> Iterator[Found]:
    if doc.get("spec", "autoscaling") is None:
        return
    low, high = doc.get("spec", "autoscaling", "min"), doc.get("spec", "autoscaling", "max")
    replicas = doc.get("spec", "replicas")
    low = 1 if low is None else low
    if low > high:
        yield ("spec", "autoscaling", "min"), low, f"at most autoscaling.max, {high}", "Swap or change them."
    elif replicas is not None and not low <= replicas <= high:
        yield (
            ("spec", "replicas"),
            replicas,
            f"from autoscaling.min to autoscaling.max, {low} to {high}",
            "Remove it: autoscaling decides. To stop the pods set suspend: true.",
        )


def int4_by_name(doc: view.View) -> Iterator[Found]:
    if doc.get("spec", "kvCache", "dtype") == "int4" and not doc.get("spec", "kvCache", "allowLossy"):
        yield (
            ("spec", "kvCache", "dtype"),
            "int4",
            "int4 only together with kvCache.allowLossy: true",
            f"{settings.LOSSY_COST}. Measure your own model with `tidemark eval MODEL --kv-cache-dtype int4`. "
            "Choose int8, or accept the loss by name.",
        )


def scales_need_8_bits(doc: view.View) -> Iterator[Found]:
    dtype = doc.get("spec", "kvCache", "dtype")
    if doc.get("spec", "kvCache", "scalesRef") is not None and dtype not in _ONE_SCALE:
        yield (
            ("spec", "kvCache", "scalesRef"),
            errors.Seen(f"scales with kvCache.dtype {dtype}"),
            f"scales only with one of {', '.join(_ONE_SCALE)}",
            "Set dtype to that of the scales, or remove scalesRef.",
        )


def precision_one_way(doc: view.View) -> Iterator[Found]:
    at = ("spec", "kvCache", "precision")
    given = doc.keys(*at)
    if "mapRef" in given and len(given) > 1:
        yield (
            at,
            errors.Seen(" and ".join(given)),
            "either mapRef or the lists keepLayers and keepHeads",
            "Remove one of them.",
        )


def precision_names_once(doc: view.View) -> Iterator[Found]:
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


def precision_needs_quantization(doc: view.View) -> Iterator[Found]:
    dtype = doc.get("spec", "kvCache", "dtype")
    if doc.keys("spec", "kvCache", "precision") and dtype in ("float32", "float16", "bfloat16"):
        yield (
            ("spec", "kvCache", "precision"),
            errors.Seen("a precision map"),
            f"none with kvCache.dtype {dtype}",
            "Nothing is quantized, so nothing can be kept. Remove it, or set dtype: int8.",
        )


def swap_needs_space(doc: view.View) -> Iterator[Found]:
    mode, space = doc.get("spec", "scheduler", "preemption", "mode"), doc.get("spec", "kvCache", "swapSpace")
    if mode == "swap" and quantities.to_bytes(str(space)) == 0:
        yield (
            ("spec", "kvCache", "swapSpace"),
            space,
            "more than 0 with scheduler.preemption.mode swap",
            "Set it, for example to 8Gi, or choose the mode auto.",
        )


def swap_is_plausible(doc: view.View) -> Iterator[Found]:
    space = doc.get("spec", "kvCache", "swapSpace")
    if 0 < quantities.to_bytes(str(space)) < _MIN_SWAP:
        yield (
            ("spec", "kvCache", "swapSpace"),
            space,
            "0 or at least 1Mi",
            "No page is so small. Without a unit it is a number of bytes; write 8Gi for eight gibibytes.",
        )


def swap_within_memory(doc: view.View) -> Iterator[Found]:
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


def budget_serves_the_batch(doc: view.View) -> Iterator[Found]:
    at = ("spec", "scheduler")
    budget, batch = doc.get(*at, "maxNumBatchedTokens"), doc.get(*at, "maxNumSeqs")
    defaults = settings.EngineConfig().scheduler
    budget = defaults.max_num_batched_tokens if budget is None else budget
    batch = defaults.max_num_seqs if batch is None else batch
    if budget < batch:
        yield (
            (*at, "maxNumBatchedTokens"),
            budget,
            f"at least scheduler.maxNumSeqs, {batch}",
            "Otherwise running sequences would not all get a token in a step. Raise it, or lower maxNumSeqs.",
        )


def soft_limit_within_batch(doc: view.View) -> Iterator[Found]:
    soft, hard = doc.get("spec", "scheduler", "maxConcurrencySoft"), doc.get("spec", "scheduler", "maxNumSeqs")
    hard = settings.EngineConfig().scheduler.max_num_seqs if hard is None else hard
    if soft is not None and soft > hard:
        yield (
            ("spec", "scheduler", "maxConcurrencySoft"),
            soft,
            f"at most scheduler.maxNumSeqs, {hard}",
            "No more than that ever run together. Lower it, or raise maxNumSeqs, which needs a restart.",
        )


def degrade_says_whom_and_what(doc: view.View) -> Iterator[Found]:
    for index, rule in enumerate(doc.get("spec", "overload", "degrade")):
        at: describe.Loc = ("spec", "overload", "degrade", index)
        if not rule.get("keys") and rule.get("maxPriority") is None:
            yield (
                at,
                errors.Seen("neither"),
                "keys or maxPriority, so that it says whose requests it is about",
                f"maxPriority: {engine.MAX_PRIORITY} means everybody's.",
            )
        if rule.get("maxTokens") is None and rule.get("maxRequests") is None:
            yield (
                at,
                errors.Seen("neither"),
                "maxTokens or maxRequests, so that it has an effect",
                "Set one, or both.",
            )


def degrade_needs_key_file(doc: view.View) -> Iterator[Found]:
    if doc.get("spec", "access", "apiKeysSecretRef") is not None:
        return
    for index, rule in enumerate(doc.get("spec", "overload", "degrade")):
        if rule.get("keys"):
            yield (
                ("spec", "overload", "degrade", index, "keys"),
                rule["keys"],
                "no names, because access.apiKeysSecretRef is not set",
                "Only a key file gives names. Set it, or select by maxPriority.",
            )


def draft_needs_model(doc: view.View) -> Iterator[Found]:
    method, draft = doc.get("spec", "speculative", "method"), doc.get("spec", "speculative", "draftModel")
    at = ("spec", "speculative", "draftModel")
    if method == "draft" and draft is None:
        yield (
            at,
            errors.Seen("nothing"),
            "a model with speculative.method draft",
            "Name it, or choose the method ngram.",
        )
    elif method != "draft" and draft is not None:
        yield at, draft, f"nothing with speculative.method {method}", "Remove it, or choose the method draft."


def draft_needs_a_folder(doc: view.View) -> Iterator[Found]:
    """The folder of both models is mounted, and that is never all of the machine."""
    at = ("spec", "model", "source", "hostPath", "path")
    path, draft = doc.get(*at), doc.get("spec", "speculative", "draftModel")
    if draft is not None and path is not None and len([part for part in path.split("/") if part not in ("", ".")]) < 2:
        yield (
            at,
            path,
            "a path below a folder that the draft model lies in, too, such as /srv/models/big.gguf",
            "That folder is mounted, and / never is. Move both models into one.",
        )


def deadline_after_drain(doc: view.View) -> Iterator[Found]:
    drain, deadline = doc.get("spec", "rollout", "drainSeconds"), doc.get("spec", "rollout", "progressDeadlineSeconds")
    if deadline <= drain:
        yield (
            ("spec", "rollout", "progressDeadlineSeconds"),
            deadline,
            f"more than rollout.drainSeconds, {drain}",
            "A pod that drains for so long would fail every rollout.",
        )


def canary_rises_to_all(doc: view.View) -> Iterator[Found]:
    steps = doc.get("spec", "rollout", "canary", "steps")
    if steps and (steps[-1] != 100 or any(a >= b for a, b in itertools.pairwise(steps))):
        yield (
            ("spec", "rollout", "canary", "steps"),
            steps,
            "rising percentages of which the last is 100",
            "For example [5, 25, 100].",
        )


def pod_memory_is_plausible(doc: view.View) -> Iterator[Found]:
    memory = doc.get("spec", "hardware", "memory")
    if memory is not None and quantities.to_bytes(str(memory)) < _MIN_POD_MEMORY:
        yield (
            ("spec", "hardware", "memory"),
            memory,
            "at least 64Mi",
            "Without a unit it is a number of bytes; write 2Gi for two gibibytes.",
        )


def toleration_makes_sense(doc: view.View) -> Iterator[Found]:
    for index, item in enumerate(doc.get("spec", "hardware", "tolerations")):
        at: describe.Loc = ("spec", "hardware", "tolerations", index)
        if item.get("operator") == "Exists" and item.get("value"):
            yield (*at, "value"), item["value"], "nothing with the operator Exists", "Remove it, or use Equal."
        elif item.get("operator") != "Exists" and not item.get("key"):
            yield (*at, "key"), errors.Seen("nothing"), "a key with the operator Equal", "Add it, or use Exists."
        if item.get("tolerationSeconds") is not None and item.get("effect") != "NoExecute":
            yield (
                (*at, "tolerationSeconds"),
                item["tolerationSeconds"],
                "nothing except with the effect NoExecute",
                "Remove it.",
            )


def environment_is_clear(doc: view.View) -> Iterator[Found]:
    at = ("spec", "podTemplate", "env")
    env = doc.get(*at)
    for name, count in Counter(item["name"] for item in env).items():
        if count > 1:
            index = max(i for i, item in enumerate(env) if item["name"] == name)
            yield (*at, index, "name"), name, f"each name once, not {count} times", "Remove one of them."
    for index, item in enumerate(env):
        source = item.get("valueFrom")
        if source is None:
            continue
        if item.get("value") is not None:
            yield (*at, index), errors.Seen("value and valueFrom"), "one of them", "Remove one of them."
        given = [key for key, value in source.items() if value is not None]
        if len(given) != 1:
            yield (
                (*at, index, "valueFrom"),
                errors.Seen(" and ".join(given) or "none of them"),
                "exactly one of secretKeyRef, configMapKeyRef",
                "Keep one.",
            )


def own_labels_untouched(doc: view.View) -> Iterator[Found]:
    for at in (("podTemplate", "labels"), ("podTemplate", "annotations"), ("monitoring", "labels")):
        for key in doc.get("spec", *at):
            if names.is_own(key):
                yield (
                    ("spec", *at, key),
                    errors.Seen(f"the key {key!r}"),
                    "a key of your own",
                    "Keys of this domain are set by the operator. Choose another.",
                )


def annotations_within_bounds(doc: view.View) -> Iterator[Found]:
    for at in (("metadata", "annotations"), ("spec", "podTemplate", "annotations")):
        given = doc.get(*at) or {}
        size = sum(len(text.encode()) for item in given.items() for text in item)
        if size > _MAX_ANNOTATION_BYTES:
            yield (
                at,
                errors.Seen(f"{size} bytes"),
                f"at most {_MAX_ANNOTATION_BYTES} bytes of keys and values together",
                "Kubernetes takes no more; put it into a ConfigMap of your own.",
            )


def device_asked_once(doc: view.View) -> Iterator[Found]:
    resource = doc.get("spec", "hardware", "resourceName")
    for kind in ("requests", "limits"):
        asked: Any = doc.get("spec", "podTemplate", "resources", kind)
        if resource != "cpu" and resource in asked:
            yield (
                ("spec", "podTemplate", "resources", kind, resource),
                asked[resource],
                "nothing: hardware.count says how many devices",
                "Remove it.",
            )


def peers_are_named(doc: view.View) -> Iterator[Found]:
    for index, peer in enumerate(doc.get("spec", "access", "allowFrom")):
        given = [key for key, value in peer.items() if value is not None]
        at: describe.Loc = ("spec", "access", "allowFrom", index)
        if not given:
            yield at, errors.Seen("nothing"), "namespaceSelector, podSelector or ipBlock", "Add one."
        elif "ipBlock" in given and len(given) > 1:
            yield at, errors.Seen(" and ".join(given)), "ipBlock alone", "Make two items of it."


RULES: tuple[Rule, ...] = (
    one_source,
    pod_memory_is_plausible,
    toleration_makes_sense,
    replicas_within_autoscaling,
    int4_by_name,
    scales_need_8_bits,
    precision_one_way,
    precision_names_once,
    precision_needs_quantization,
    swap_needs_space,
    swap_is_plausible,
    swap_within_memory,
    budget_serves_the_batch,
    soft_limit_within_batch,
    watermark_order,
    degrade_says_whom_and_what,
    degrade_needs_key_file,
    draft_needs_model,
    draft_needs_a_folder,
    deadline_after_drain,
    canary_rises_to_all,
    peers_are_named,
    environment_is_clear,
    own_labels_untouched,
    annotations_within_bounds,
    device_asked_once,
)


def run(doc: view.View) -> Iterator[Found]:
    """Problems of all rules; a rule that needs a value which was refused already is left out."""
    for rule in RULES:
        try:
            yield from tuple(rule(doc))
        except view.Unusable:
            continue
