"""Rules over more than one field as CEL: `checks.RULES` once more, for the API server, in files of the same names.

A default that a rule needs is read from the models, never repeated here.
"""

from __future__ import annotations

from typing import Any

from tidemark_operator.api.crd import cel
from tidemark_operator.api.crd.rules import memory, pods, serving


def every() -> tuple[cel.Rule, ...]:
    """All rules, in the order of the fields."""
    return (
        pods.name(),
        *pods.model(),
        *pods.hardware(),
        *pods.replicas(),
        *memory.kv_cache(),
        *serving.scheduler(),
        *serving.watermarks(),
        *serving.overload(),
        *serving.speculative(),
        *pods.rollout(),
        *pods.access(),
        *pods.pod_template(),
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
