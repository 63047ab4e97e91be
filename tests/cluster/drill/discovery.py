"""What `kubernetes_sd_configs` with role `pod` finds, as a file for `file_sd_configs`.

Debian builds its Prometheus without the discovery of Kubernetes. Which targets and labels a pod is there is written in
Prometheus' documentation ("kubernetes_sd_config", role `pod`): one target for each declared port of each container, and
one without a port for a container that declares none. The relabelling that follows is the rendered one, and real.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bed import cluster

_META = "__meta_kubernetes"


def write(path: Path, pods: list[cluster.Object]) -> None:
    """All targets of these pods, before any relabelling."""
    path.write_text(json.dumps([group for pod in pods for group in _targets(pod)]), encoding="utf-8")


def configured(config: dict[str, Any], path: Path) -> dict[str, Any]:
    """The configuration with that file where it has the discovery of Kubernetes."""
    jobs = []
    for job in config["scrape_configs"]:
        assert job["kubernetes_sd_configs"] == [{"role": "pod"}], job
        rest = {key: value for key, value in job.items() if key != "kubernetes_sd_configs"}
        jobs.append({**rest, "file_sd_configs": [{"files": [str(path)]}]})
    return {**config, "scrape_configs": jobs}


def _targets(pod: cluster.Object) -> Iterator[dict[str, Any]]:
    address = pod.get("status", {}).get("podIP")
    if address is None:
        return
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or [{}]:
            number = port.get("containerPort")
            target = f"{address}:{number}" if number is not None else address
            yield {"targets": [target], "labels": {**_of_pod(pod), **_of_port(container, port)}}


def _of_pod(pod: cluster.Object) -> dict[str, str]:
    metadata, status = pod["metadata"], pod["status"]
    return {
        f"{_META}_namespace": metadata["namespace"],
        f"{_META}_pod_name": metadata["name"],
        f"{_META}_pod_ip": status["podIP"],
        f"{_META}_pod_phase": status["phase"],
        f"{_META}_pod_node_name": pod["spec"].get("nodeName", ""),
        **_texts("pod_label", metadata.get("labels") or {}),
        **_texts("pod_annotation", metadata.get("annotations") or {}),
    }


def _of_port(container: Mapping[str, Any], port: Mapping[str, Any]) -> dict[str, str]:
    found = {f"{_META}_pod_container_name": container["name"]}
    if port:
        found[f"{_META}_pod_container_port_name"] = port.get("name", "")
        found[f"{_META}_pod_container_port_number"] = str(port["containerPort"])
        found[f"{_META}_pod_container_port_protocol"] = port.get("protocol", "TCP")
    return found


def _texts(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """Characters that a label's name may not have become `_`."""
    return {f"{_META}_{kind}_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": value for key, value in values.items()}
