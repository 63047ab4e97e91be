"""Rules about pods and what is around them: `model`, `hardware`, `replicas`, `rollout`, `access` and `podTemplate`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tidemark_operator import errors, names
from tidemark_operator.api import describe, quantities, view
from tidemark_operator.api.checks import rule as rule_

_SOURCE = ("spec", "model", "source")
_MIN_POD_MEMORY = 64 * 2**20
_MAX_ANNOTATION_BYTES = 256 * 2**10
"""Kubernetes' own limit for one object."""


def one_source(doc: view.View) -> Iterator[rule_.Found]:
    given = doc.keys(*_SOURCE)
    if len(given) != 1:
        seen = errors.Seen(" and ".join(given) or "none of them")
        yield (
            _SOURCE,
            seen,
            "exactly one of pvc, hostPath, image, huggingFace, package",
            "Keep one and remove the others." if given else "Add one, for example {package: {name: smollm2-135m}}.",
        )


def pod_memory_is_plausible(doc: view.View) -> Iterator[rule_.Found]:
    memory = doc.get("spec", "hardware", "memory")
    if memory is not None and quantities.to_bytes(str(memory)) < _MIN_POD_MEMORY:
        yield (
            ("spec", "hardware", "memory"),
            memory,
            "at least 64Mi",
            "Without a unit it is a number of bytes; write 2Gi for two gibibytes.",
        )


def toleration_makes_sense(doc: view.View) -> Iterator[rule_.Found]:
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


def replicas_within_autoscaling(doc: view.View) -> Iterator[rule_.Found]:
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


def deadline_after_drain(doc: view.View) -> Iterator[rule_.Found]:
    drain, deadline = doc.get("spec", "rollout", "drainSeconds"), doc.get("spec", "rollout", "progressDeadlineSeconds")
    if deadline <= drain:
        yield (
            ("spec", "rollout", "progressDeadlineSeconds"),
            deadline,
            f"more than rollout.drainSeconds, {drain}",
            "A pod that drains for so long would fail every rollout.",
        )


def canary_rises_to_all(doc: view.View) -> Iterator[rule_.Found]:
    steps = doc.get("spec", "rollout", "canary", "steps")
    if steps and (steps[-1] != 100 or any(a >= b for a, b in itertools.pairwise(steps))):
        yield (
            ("spec", "rollout", "canary", "steps"),
            steps,
            "rising percentages of which the last is 100",
            "For example [5, 25, 100].",
        )


def peers_are_named(doc: view.View) -> Iterator[rule_.Found]:
    for index, peer in enumerate(doc.get("spec", "access", "allowFrom")):
        given = [key for key, value in peer.items() if value is not None]
        at: describe.Loc = ("spec", "access", "allowFrom", index)
        if not given:
            yield at, errors.Seen("nothing"), "namespaceSelector, podSelector or ipBlock", "Add one."
        elif "ipBlock" in given and len(given) > 1:
            yield at, errors.Seen(" and ".join(given)), "ipBlock alone", "Make two items of it."


def environment_is_clear(doc: view.View) -> Iterator[rule_.Found]:
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


def own_labels_untouched(doc: view.View) -> Iterator[rule_.Found]:
    for at in (("podTemplate", "labels"), ("podTemplate", "annotations"), ("monitoring", "labels")):
        for key in doc.get("spec", *at):
            if names.is_own(key):
                yield (
                    ("spec", *at, key),
                    errors.Seen(f"the key {key!r}"),
                    "a key of your own",
                    "Keys of this domain are set by the operator. Choose another.",
                )


def annotations_within_bounds(doc: view.View) -> Iterator[rule_.Found]:
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


def device_asked_once(doc: view.View) -> Iterator[rule_.Found]:
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
