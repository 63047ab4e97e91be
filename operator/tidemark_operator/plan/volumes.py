"""Volumes of the pod and where the container sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import facts as facts_
from tidemark_operator.plan import layout


@dataclass(frozen=True, slots=True)
class _Volume:
    name: str
    mount_path: str
    source: dict[str, Any]
    read_only: bool = True


def build(service: api.InferenceService, facts: facts_.Facts) -> list[dict[str, Any]]:
    """`volumes` of the pod."""
    return [{"name": volume.name, **volume.source} for volume in _volumes(service, facts)]


def mounts(service: api.InferenceService, facts: facts_.Facts) -> list[dict[str, Any]]:
    """`volumeMounts` of the container."""
    return [
        {"name": volume.name, "mountPath": volume.mount_path, **({"readOnly": True} if volume.read_only else {})}
        for volume in _volumes(service, facts)
    ]


def _volumes(service: api.InferenceService, facts: facts_.Facts) -> list[_Volume]:
    found = [_Volume("config", layout.CONFIG_DIR, {"configMap": {"name": names.config_map(service.name)}})]
    model = _model(service.spec.model.source)
    if model is not None:
        found.append(model)
    if facts.model_store_host_path:
        store = {"hostPath": {"path": facts.model_store_host_path, "type": "Directory"}}
        found.append(_Volume("model-store", layout.STORE_DIR, store))
    keys = service.spec.access.api_keys_secret_ref
    if keys is not None:
        # The whole Secret as a folder: a subPath would never see a change of the keys.
        found.append(_Volume("api-keys", layout.KEYS_DIR, {"secret": {"secretName": keys.name}}))
    found.append(_Volume("cache", layout.CACHE_DIR, {"emptyDir": {}}, read_only=False))
    found.append(_Volume("tmp", "/tmp", {"emptyDir": {}}, read_only=False))
    return found


def _model(source: api.Source) -> _Volume | None:
    if source.host_path is not None:
        path = source.host_path.path.rstrip("/") or "/"
        kind = "File" if path.endswith(layout.GGUF) else "Directory"
        return _Volume("model", layout.host_path_mount(path), {"hostPath": {"path": path, "type": kind}})
    if source.pvc is not None:
        claim = {"claimName": source.pvc.claim_name, "readOnly": True}
        return _Volume("model", layout.MODELS_DIR, {"persistentVolumeClaim": claim})
    if source.image is not None:
        image = {"reference": source.image.reference, "pullPolicy": source.image.pull_policy}
        return _Volume("model", layout.MODELS_DIR, {"image": image})
    return None
