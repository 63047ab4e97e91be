"""The NetworkPolicy: who may connect to the engines, where `spec.access.allowFrom` says so."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.api import operations
from tidemark_operator.plan import facts as facts_
from tidemark_operator.plan import objects
from tidemark_runtime.contract import http

_NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that Kubernetes itself puts on every namespace."""


def build(service: api.InferenceService, facts: facts_.Facts) -> dict[str, Any]:
    """One rule for incoming connections; whatever it does not name is refused. Outgoing ones are not restricted.

    The operator's namespace is let in as well, for `/status` and `/admin`, and where the operator was told which, the
    namespaces of Prometheus: there is one port, so with it whatever else runs in those. Kubelets, and with them the
    probes, always get in: no policy holds for a pod's own node. The port is a number: some network plugins know no
    names of ports.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": objects.metadata(service, names.network_policy(service.name)),
        "spec": {
            "podSelector": {"matchLabels": names.selector(service.name)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [*map(_peer, service.spec.access.allow_from), *map(_namespace, _watchers(service, facts))],
                    "ports": [{"port": http.CONTAINER_PORT, "protocol": "TCP"}],
                }
            ],
        },
    }


def _peer(peer: operations.Peer) -> dict[str, Any]:
    """As in a NetworkPolicy: both selectors together mean those pods of those namespaces."""
    if peer.ip_block is not None:
        return {"ipBlock": {"cidr": peer.ip_block.cidr}}
    selectors = {"namespaceSelector": peer.namespace_selector, "podSelector": peer.pod_selector}
    return {key: _selector(selector) for key, selector in selectors.items() if selector is not None}


def _selector(selector: operations.Selector) -> dict[str, Any]:
    """Without labels it chooses everything."""
    return {"matchLabels": dict(sorted(selector.match_labels.items()))} if selector.match_labels else {}


def _watchers(service: api.InferenceService, facts: facts_.Facts) -> list[str]:
    """Namespaces, each once."""
    operator = [facts.operator_namespace] if facts.operator_namespace is not None else []
    prometheus = facts.monitoring_namespaces if service.spec.monitoring.enabled else ()
    return list(dict.fromkeys([*operator, *prometheus]))


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: name}}}
