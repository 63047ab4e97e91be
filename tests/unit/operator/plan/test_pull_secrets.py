"""B095: pull secrets reach every pod that the operator makes."""

from __future__ import annotations

from typing import Any

import manifests

from tidemark_operator import api, plan


def pod_spec(document: dict[str, Any], facts: plan.Facts) -> dict[str, Any]:
    wanted = plan.wanted(api.parse(document), facts)
    (deployment,) = [item for item in wanted if item["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_those_of_the_operator_and_of_the_service_reach_the_pod_once_each() -> None:
    document = manifests.small(podTemplate={"imagePullSecrets": [{"name": "own"}, {"name": "site"}]})
    facts = plan.Facts(image="registry/engine:1", image_pull_secrets=("site", "mirror"))
    assert pod_spec(document, facts)["imagePullSecrets"] == [{"name": "site"}, {"name": "mirror"}, {"name": "own"}]


def test_without_any_there_is_no_list() -> None:
    assert "imagePullSecrets" not in pod_spec(manifests.small(), plan.Facts(image="engine:1"))
