"""Every permission the operator needs, with its reason. The chart's roles are rendered from this table, the operator
checks itself against it at its start, and nothing outside it is ever asked of the API server.

There is no get, list or watch on Secrets, here or anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidemark_operator import names


class Scope(StrEnum):
    """Where a permission is needed."""

    SERVICES = "services"
    """In every namespace with services: a ClusterRole, or a Role in each namespace that the operator is limited to."""
    OPERATOR = "operator"
    """In the operator's own namespace: a Role."""
    CLUSTER = "cluster"
    """Cluster-wide, or not at all: an operator that is limited to namespaces works without."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One row."""

    scope: Scope
    group: str
    """Empty: the core group."""
    resource: str
    """With its subresource: `inferenceservices/status`."""
    verbs: tuple[str, ...]
    why: str
    without: str = ""
    """What does not work without it; empty: the operator does not start."""
    template: str = ""
    """Only the one object whose name this template of the chart gives; empty: all of them."""


_KEPT = ("create", "get", "list", "patch", "watch")
"""Of a child that lives as long as its service. `get` is asked for names that no object of ours has, so that nobody
else's object is taken over; `create` by an apply of what is not there yet."""
_CHILD = ("create", "delete", "get", "list", "patch", "watch")
"""Of one that a change of the spec may take away."""

TABLE: tuple[Permission, ...] = (
    Permission(Scope.CLUSTER, "", "nodes", ("list",),
               "counts the devices of the nodes, to see whether one is free for a rollout",
               "rollouts of strategy `auto` stop the old pod before they start the new one"),
    Permission(Scope.CLUSTER, "", "pods", ("list",),
               "counts the devices that pods of all namespaces have taken",
               "rollouts of strategy `auto` stop the old pod before they start the new one"),
    Permission(Scope.OPERATOR, "coordination.k8s.io", "leases", ("create", "get", "update"),
               "of two operators only the one that holds the lease works"),
    Permission(Scope.SERVICES, "", "configmaps", _CHILD,
               "holds the engine's configuration; one that a service names has its precision map"),
    Permission(Scope.SERVICES, "", "pods", ("list", "watch"), "their troubles are told in the service's status"),
    Permission(Scope.SERVICES, "", "secrets", ("create", "patch"),
               "writes the token of the engines' /admin, which pods mount, and never reads it"),
    Permission(Scope.SERVICES, "", "serviceaccounts", _CHILD, "engine pods run under an account without any rights"),
    Permission(Scope.SERVICES, "", "services", _KEPT, "one address for all replicas"),
    Permission(Scope.SERVICES, "apps", "controllerrevisions", _CHILD, "remembers good specs, for a rollback"),
    Permission(Scope.SERVICES, "apps", "deployments", _KEPT, "runs the engine pods"),
    Permission(Scope.SERVICES, "batch", "cronjobs", _CHILD, "evaluates what a service quantizes, at times"),
    Permission(Scope.SERVICES, "batch", "jobs", ("list", "watch"), "tells in the status what the evaluation said"),
    Permission(Scope.SERVICES, "events.k8s.io", "events", ("create", "list", "patch"),
               "says what happened to a service, a repetition raises a count; reads why a pod waits for a volume",
               "`kubectl describe` shows no events of the operator, and a pod without its volume is not explained"),
    Permission(Scope.SERVICES, "grafana.integreatly.org", "grafanadashboards", _CHILD,
               "brings a service's dashboard into Grafana where Grafana's operator is",
               "dashboards are found by Grafana's sidecar only"),
    Permission(Scope.SERVICES, "monitoring.coreos.com", "podmonitors", _CHILD,
               "makes Prometheus scrape a service where the Prometheus operator is",
               "Prometheus does not find the engines by itself"),
    Permission(Scope.SERVICES, "monitoring.coreos.com", "prometheusrules", _CHILD,
               "brings a service's alerts to Prometheus where the Prometheus operator is",
               "there are no alerts about services but those that a site loads itself"),
    Permission(Scope.SERVICES, "networking.k8s.io", "networkpolicies", _CHILD,
               "lets in only those whom the service names"),
    Permission(Scope.SERVICES, "policy", "poddisruptionbudgets", _CHILD,
               "keeps a drained node from ending all replicas"),
    Permission(Scope.SERVICES, names.GROUP, names.PLURAL, ("list", "watch"), "the services themselves"),
    Permission(Scope.SERVICES, names.GROUP, f"{names.PLURAL}/finalizers", ("update",),
               "owner references that block deletion need it where the cluster checks them (OpenShift)",
               "on clusters that check owner references, children cannot be created"),
    Permission(Scope.SERVICES, names.GROUP, f"{names.PLURAL}/status", ("patch",), "tells how the service is"),
)  # fmt: skip
"""Sorted by scope, group and resource."""


INSPECTION: tuple[Permission, ...] = (
    Permission(Scope.OPERATOR, "", "configmaps", ("patch",), "keeps the last result in its own ConfigMap",
               template="tidemark.inspectionName"),
    Permission(Scope.OPERATOR, "", "pods", ("list",), "finds the operator's pods, to ask how they are"),
    Permission(Scope.SERVICES, "", "configmaps", ("get",), "which configuration the engines should have"),
    Permission(Scope.SERVICES, "", "pods", ("list",), "how they ended, how often, and where they answer"),
    Permission(Scope.SERVICES, "apps", "deployments", ("get",), "which ConfigMap new pods are given"),
    Permission(Scope.SERVICES, names.GROUP, names.PLURAL, ("get", "list"), "the services themselves"),
)  # fmt: skip
"""Of the CronJob that runs `tidemark inspect`, under an account of its own. It reads, and writes one ConfigMap. Sorted
as the table above."""


@dataclass(frozen=True, slots=True)
class Question:
    """One verb of one row in one namespace (empty: in all)."""

    permission: Permission
    verb: str
    namespace: str


def questions(namespaces: Sequence[str], operator_namespace: str) -> Iterator[Question]:
    """All that has to be granted to an operator of these namespaces; `("",)`: of all."""
    for row in TABLE:
        where: Sequence[str] = namespaces
        if row.scope is Scope.OPERATOR:
            where = (operator_namespace,)
        elif row.scope is Scope.CLUSTER:
            where = ("",)
        for namespace in where:
            for verb in row.verbs:
                yield Question(row, verb, namespace)
