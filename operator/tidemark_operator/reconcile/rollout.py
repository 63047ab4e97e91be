"""Whether a new pod may start before the old one ends: decided once a rollout, so an idle service is left alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator import api, plan
from tidemark_operator.cluster import interface
from tidemark_operator.plan import drift

_NO_ROOM = ("Insufficient ", "Too many pods")
"""Of the scheduler's sentence, `0/1 nodes are available: 1 Insufficient nvidia.com/gpu.`"""


async def facts_for(
    cluster: interface.Cluster,
    service: api.InferenceService,
    facts: plan.Facts,
    live: Mapping[str, Any] | None,
    pods: Sequence[Mapping[str, Any]],
) -> plan.Facts:
    """`facts` with `spare_device` of this service: asked when a rollout begins, kept while it goes on, and taken back
    when the new pod finds no device after all (else a site with one device would wait for ever)."""
    if service.spec.rollout.strategy != "auto" or live is None:
        return facts
    hardware = service.spec.hardware
    wanted = next(child for child in plan.wanted(service, facts) if child["kind"] == "Deployment")
    if drift.first(wanted["spec"]["template"], live["spec"]["template"]) is not None:
        spare = await cluster.has_spare_device(hardware.resource_name, hardware.count, hardware.node_selector)
    else:
        spare = _surges(live) and not any(lacks_room(pod) for pod in pods)
    return dataclasses.replace(facts, spare_device=spare)


def lacks_room(pod: Mapping[str, Any]) -> bool:
    """The scheduler has looked, and no node has enough left. Where it found none for another reason, such as a label
    that no node has, ending the old pod would not help."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        item.get("type") == "PodScheduled"
        and item.get("status") == "False"
        and item.get("reason") == "Unschedulable"
        and any(words in str(item.get("message")) for words in _NO_ROOM)
        for item in conditions
    )


def _surges(live: Mapping[str, Any]) -> bool:
    rolling = (live["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    return rolling.get("maxSurge") not in (0, "0", "0%", None)
