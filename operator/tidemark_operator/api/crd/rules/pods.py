"""Rules about pods and what is around them: `model`, `hardware`, `replicas`, `rollout`, `access` and `podTemplate`."""

from __future__ import annotations

from tidemark_operator import names
from tidemark_operator.api.crd import cel

_MAX_ANNOTATION_BYTES = 256 * 2**10
"""Kubernetes' own limit; those of the resource itself are counted by the API server."""


def name() -> cel.Rule:
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


def model() -> tuple[cel.Rule, ...]:
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


def hardware() -> tuple[cel.Rule, ...]:
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


def replicas() -> tuple[cel.Rule, ...]:
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


def rollout() -> tuple[cel.Rule, ...]:
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


def access() -> tuple[cel.Rule, ...]:
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


def pod_template() -> tuple[cel.Rule, ...]:
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
