"""The NetworkPolicy of `access.allowFrom`."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, names, plan
from tidemark_runtime.contract import http

INSIDE = plan.Facts(image="x", operator_namespace="tidemark-system")
OPERATOR = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tidemark-system"}}}


def policies(allow_from: list[Any] | None, facts: plan.Facts = INSIDE) -> list[dict[str, Any]]:
    access = {} if allow_from is None else {"allowFrom": allow_from}
    wanted = plan.wanted(api.parse(manifests.small(access=access)), facts)
    return [item for item in wanted if item["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("allow_from", [None, []])
def test_without_peers_there_is_no_policy(allow_from: list[Any] | None) -> None:
    assert policies(allow_from) == []


def test_only_the_peers_and_the_operator_reach_the_engines_port() -> None:
    (policy,) = policies([{"namespaceSelector": {"matchLabels": {"team": "apps"}}}])
    assert policy["spec"] == {
        "podSelector": {"matchLabels": names.selector("demo")},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"namespaceSelector": {"matchLabels": {"team": "apps"}}}, OPERATOR],
                "ports": [{"port": http.CONTAINER_PORT, "protocol": "TCP"}],
            }
        ],
    }


def test_outside_the_cluster_the_operator_has_no_namespace_to_let_in() -> None:
    peer = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    (policy,) = policies([peer], plan.Facts(image="x"))
    assert policy["spec"]["ingress"][0]["from"] == [peer]


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ({"ipBlock": {"cidr": "192.168.1.0/24"}}, {"ipBlock": {"cidr": "192.168.1.0/24"}}),
        ({"podSelector": {"matchLabels": {"a": "true"}}}, {"podSelector": {"matchLabels": {"a": "true"}}}),
        ({"namespaceSelector": {}}, {"namespaceSelector": {}}),
        (
            {"namespaceSelector": {"matchLabels": {"b": "1", "a": "2"}}, "podSelector": {}},
            {"namespaceSelector": {"matchLabels": {"a": "2", "b": "1"}}, "podSelector": {}},
        ),
        ({"podSelector": {}, "namespaceSelector": None, "ipBlock": None}, {"podSelector": {}}),
    ],
)
def test_a_peer_means_what_it_means_in_a_network_policy(peer: dict[str, Any], expected: dict[str, Any]) -> None:
    (policy,) = policies([peer])
    assert policy["spec"]["ingress"][0]["from"] == [expected, OPERATOR]


def test_who_may_connect_is_no_change_of_the_pods() -> None:
    plans = [
        {item["kind"]: item for item in plan.wanted(api.parse(manifests.small(access=access)), INSIDE)}
        for access in ({}, {"allowFrom": [{"podSelector": {}}]})
    ]
    assert plans[0]["Deployment"] == plans[1]["Deployment"]
