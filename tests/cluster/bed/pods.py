"""Objects for tests: pods that pass the restricted level, Services, and what a pod's status says."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

from bed import cluster, userland


def restricted(
    name: str,
    image: str,
    args: Sequence[str] = (),
    *,
    command: Sequence[str] = (),
    limits: Mapping[str, str] | None = None,
    container: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> cluster.Object:
    """A pod as the restricted level wants it, labelled `app: NAME`; `container` and `spec` are laid over the rest."""
    main: dict[str, Any] = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "args": list(args),
        "resources": {"limits": dict(limits or {})},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        **({"command": list(command)} if command else {}),
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": userland.NOBODY,
                "runAsGroup": userland.NOBODY,
                "fsGroup": userland.NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [main],
            **(spec or {}),
        },
    }


def service(name: str, port: int) -> cluster.Object:
    """In front of the pods labelled `app: NAME`, under the same port."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": port, "targetPort": port}]},
    }


def is_ready(found: cluster.Object | None) -> bool:
    return any(
        item["type"] == "Ready" and item["status"] == "True"
        for item in (found or {}).get("status", {}).get("conditions", [])
    )


def why_unscheduled(found: cluster.Object | None) -> str:
    """The scheduler's sentence; empty for a pod that has its node, or was not looked at yet."""
    for item in (found or {}).get("status", {}).get("conditions", []):
        if item["type"] == "PodScheduled" and item["status"] == "False":
            return str(item["message"])
    return ""


def wait_until_ready(
    where: cluster.Cluster, name: str, namespace: str, seconds: float = cluster.PATIENCE_SECONDS
) -> cluster.Object:
    """The pod, once it is ready."""

    def ask() -> cluster.Object | None:
        found = where.get("pod", name, namespace)
        return found if is_ready(found) else None

    try:
        return where.eventually(f"pod {name} ready", ask, seconds)
    except AssertionError as cause:
        said = where.run([where.kubectl_program, "describe", "pod", name, "-n", namespace], check=False).stdout
        logs = where.run([where.kubectl_program, "logs", name, "-n", namespace, "--tail=40"], check=False)
        raise AssertionError(f"{cause}\n{said}\n{logs.stdout}{logs.stderr}") from cause


def service_url(where: cluster.Cluster, service_name: str, namespace: str) -> str:
    """By the Service's own address; a bed's is reached from this process too, and a bed has no DNS."""
    address, port = _address(where, service_name, namespace)
    return f"http://{address}:{port}"


def reachable_url(where: cluster.Cluster, service_name: str, namespace: str) -> str:
    """The same, once it takes connections.

    A ready pod is not enough: kube-proxy hears of it later, and programs its rules once a second at most.
    """
    target = _address(where, service_name, namespace)
    where.eventually(f"Service {service_name} takes connections", lambda: _connects(target))
    return service_url(where, service_name, namespace)


def _address(where: cluster.Cluster, service_name: str, namespace: str) -> tuple[str, int]:
    found = where.get("service", service_name, namespace)
    assert found is not None, f"no Service {service_name}"
    return str(found["spec"]["clusterIP"]), int(found["spec"]["ports"][0]["port"])


def _connects(target: tuple[str, int]) -> bool:
    try:
        socket.create_connection(target, timeout=5).close()
    except OSError:
        return False
    return True
