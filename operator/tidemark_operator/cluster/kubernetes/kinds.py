"""Kinds we touch and where the API server keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tidemark_operator import names


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table."""

    name: str
    group: str
    """Empty: the core group."""
    version: str
    plural: str
    watched: bool = False
    """Whether the cache holds it."""
    labelled: bool = True
    """Of a watched kind: only objects that carry `names.SERVICE_LABEL` are streamed to us."""
    namespaced: bool = True
    optional: bool = False
    """Somebody else's: a cluster may have it, get it later, or lose it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def selector(self) -> str | None:
        """Label selector of its lists and watches."""
        return names.SERVICE_LABEL if self.labelled else None

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of a URL. Without a namespace: of all namespaces."""
        parts = ["apis" if self.group else "api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)


_ROWS = (
    Kind(names.KIND, names.GROUP, names.VERSION, names.PLURAL, watched=True, labelled=False),
    Kind("ConfigMap", "", "v1", "configmaps", watched=True),
    Kind("ControllerRevision", "apps", "v1", "controllerrevisions", watched=True),
    Kind("CronJob", "batch", "v1", "cronjobs", watched=True),
    Kind("Deployment", "apps", "v1", "deployments", watched=True),
    Kind("Job", "batch", "v1", "jobs", watched=True),
    Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", watched=True),
    Kind("Pod", "", "v1", "pods", watched=True),
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", watched=True),
    Kind("PodMonitor", "monitoring.coreos.com", "v1", "podmonitors", watched=True, optional=True),
    Kind("PrometheusRule", "monitoring.coreos.com", "v1", "prometheusrules", watched=True, optional=True),
    Kind("GrafanaDashboard", "grafana.integreatly.org", "v1beta1", "grafanadashboards", watched=True, optional=True),
    Kind("Service", "", "v1", "services", watched=True),
    Kind("ServiceAccount", "", "v1", "serviceaccounts", watched=True),
    Kind("Secret", "", "v1", "secrets"),
    Kind("Event", "events.k8s.io", "v1", "events"),
    Kind("Lease", "coordination.k8s.io", "v1", "leases"),
    Kind("Node", "", "v1", "nodes", namespaced=False),
    Kind("SelfSubjectAccessReview", "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False),
)

TABLE: Mapping[str, Kind] = MappingProxyType({row.name: row for row in _ROWS})
WATCHED: tuple[Kind, ...] = tuple(row for row in _ROWS if row.watched and not row.optional)
"""Those that every cluster with our definition has."""
OPTIONAL: tuple[Kind, ...] = tuple(row for row in _ROWS if row.optional)
"""The cache holds them, too, as long as they are there."""


class Target(NamedTuple):
    """What a URL path is about."""

    kind: str = ""
    """Empty: none of ours."""
    namespace: str = ""
    named: bool = False
    """One object, not all of them."""


def of_path(path: str) -> Target:
    """Read a path back that `Kind.path` made."""
    parts = path.strip("/").split("/")
    for row in _ROWS:
        prefix = row.path().strip("/").split("/")[:-1]
        if parts[: len(prefix)] != prefix:
            continue
        rest, namespace = parts[len(prefix) :], ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if rest[:1] == [row.plural]:
            return Target(row.name, namespace, len(rest) > 1)
    return Target()
