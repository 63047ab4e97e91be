"""What holds for the plan of every valid service, whatever is drawn."""

from __future__ import annotations

import json
import re
from typing import Any

import random_manifests
import yaml
from hypothesis import given, settings

from tidemark_operator import api, names, plan

FACTS = plan.Facts(image="tidemark-runtime:test", admin_token="t", operator_namespace="tidemark-system")
ORDER = ["ServiceAccount", "Secret", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "Service", "Deployment"]
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
EVERY_SERVICE = settings(max_examples=80, deadline=None)


def mutable(value: Any) -> list[Any]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict | list) else []
    return [*own, *(found for item in below for found in mutable(item))]


@EVERY_SERVICE
@given(random_manifests.manifests())
def test_planning_twice_is_equal_and_shares_nothing_b061(document: dict[str, Any]) -> None:
    service = api.parse(document)
    first, second = plan.wanted(service, FACTS), plan.wanted(api.parse(document), FACTS)
    assert first == second
    assert plan.to_yaml(first) == plan.to_yaml(second)
    found = [*mutable(first), *mutable(second), *mutable(service.model_dump())]
    assert len({id(item) for item in found}) == len(found)


@EVERY_SERVICE
@given(random_manifests.manifests())
def test_yaml_and_json_carry_the_same_values_b075(document: dict[str, Any]) -> None:
    wanted = plan.wanted(api.parse(document), FACTS)
    assert list(yaml.safe_load_all(plan.to_yaml(wanted))) == wanted == json.loads(json.dumps(wanted))
    template = document["spec"].get("podTemplate", {})
    pod = wanted[-1]["spec"]["template"]
    variables = {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}
    assert variables.items() >= {item["name"]: item.get("value", "") for item in template.get("env", ())}.items()
    assert pod["metadata"]["annotations"].items() >= template.get("annotations", {}).items()
    assert pod["metadata"]["labels"].items() >= template.get("labels", {}).items()
    hardware = document["spec"]["hardware"]
    assert pod["spec"].get("nodeSelector", {}) == hardware.get("nodeSelector", {})


@EVERY_SERVICE
@given(random_manifests.manifests())
def test_every_child_is_ours_has_a_valid_name_and_its_place(document: dict[str, Any]) -> None:
    wanted = plan.wanted(api.parse(document), FACTS)
    kinds = [child["kind"] for child in wanted]
    assert kinds == [kind for kind in ORDER if kind in kinds]
    for child in wanted:
        metadata = child["metadata"]
        assert DNS_LABEL.fullmatch(metadata["name"])
        assert metadata["labels"][names.SERVICE_LABEL] == document["metadata"]["name"]
        assert [owner["uid"] for owner in metadata["ownerReferences"]] == ["0f0f-11"]


@EVERY_SERVICE
@given(random_manifests.manifests())
def test_the_config_map_holds_what_is_pushed_and_pods_find_it(document: dict[str, Any]) -> None:
    service = api.parse(document)
    by_kind = {child["kind"]: child for child in plan.wanted(service, FACTS)}
    held = yaml.safe_load(by_kind["ConfigMap"]["data"][names.CONFIG_FILE])
    assert held == plan.engine_document(service)
    template = by_kind["Deployment"]["spec"]["template"]
    mounted = {item["name"]: item for item in template["spec"]["volumes"]}["config"]["configMap"]["name"]
    assert (
        by_kind["ConfigMap"]["metadata"]["name"]
        == mounted
        == names.config_map(service.name, plan.restart_hash(service))
    )
    assert template["metadata"]["annotations"][names.RESTART_HASH_ANNOTATION] == plan.restart_hash(service)
    assert by_kind["ConfigMap"]["metadata"]["annotations"][names.CONFIG_HASH_ANNOTATION] == plan.config_hash(service)
