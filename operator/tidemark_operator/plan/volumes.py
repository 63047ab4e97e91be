"""Volumes of the pod and where the container sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark_operator import api, names
from tidemark_operator.plan import engine_config, layout
from tidemark_operator.plan import facts as facts_

_SECRET_MODE = 0o440
"""Root's, and the engine's by `fsGroup`; nobody else's."""
_SHARED_MEMORY_LIMIT = "1Gi"
"""What NCCL and its like use of /dev/shm, some ten megabytes for each pair of devices, with room to spare. A container
has 64 MiB there without a volume. It is memory of the pod, as far as it is used."""
_SCRATCH_LIMIT = "1Gi"
"""Of the node's disk, for compiled kernels and for temporary files each: a pod that fills it is evicted."""


@dataclass(frozen=True, slots=True)
class _Volume:
    name: str
    mount_path: str
    source: dict[str, Any]
    read_only: bool = True


def build(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> list[dict[str, Any]]:
    """`volumes` of the pod."""
    return [{"name": volume.name, **volume.source} for volume in _volumes(service, engine, facts)]


def mounts(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> list[dict[str, Any]]:
    """`volumeMounts` of the container."""
    return [
        {"name": volume.name, "mountPath": volume.mount_path, **({"readOnly": True} if volume.read_only else {})}
        for volume in _volumes(service, engine, facts)
    ]


def has_model_store(service: api.InferenceService, facts: facts_.Facts) -> bool:
    """Whether the pod looks for its model, by name, in the store of its node."""
    return facts.model_store_host_path is not None and service.spec.model.source.package is not None


def _volumes(service: api.InferenceService, engine: engine_config.Engine, facts: facts_.Facts) -> list[_Volume]:
    return [*_inputs(service, engine), *_models(service, facts), *_scratch(), *_shared_memory(service.spec.hardware)]


def _inputs(service: api.InferenceService, engine: engine_config.Engine) -> list[_Volume]:
    """ConfigMap and Secrets, whole and as folders: with a subPath, changes would never reach the file."""
    config = {"configMap": {"name": names.config_map(service.name, engine.restart_hash)}}
    found = [
        _Volume("config", layout.CONFIG_DIR, config),
        _secret("admin", layout.ADMIN_DIR, names.admin_secret(service.name)),
    ]
    keys, tls = service.spec.access.api_keys_secret_ref, service.spec.access.tls_secret_ref
    if keys is not None:
        found.append(_secret("api-keys", layout.KEYS_DIR, keys.name))
    if (precision := service.spec.kv_cache.precision.map_ref) is not None:
        found.append(_Volume("precision", layout.PRECISION_DIR, {"configMap": {"name": precision.name}}))
    if (scales := service.spec.kv_cache.scales_ref) is not None:
        found.append(_Volume("scales", layout.SCALES_DIR, {"configMap": {"name": scales.name}}))
    if tls is not None:
        found.append(_secret("tls", layout.TLS_DIR, tls.name))
    return found


def _secret(name: str, mount_path: str, secret: str) -> _Volume:
    return _Volume(name, mount_path, {"secret": {"secretName": secret, "defaultMode": _SECRET_MODE}})


def _models(service: api.InferenceService, facts: facts_.Facts) -> list[_Volume]:
    model = _model(service.spec)
    found = [] if model is None else [model]
    if has_model_store(service, facts):
        store = {"hostPath": {"path": facts.model_store_host_path, "type": "Directory"}}
        found.append(_Volume("model-store", layout.STORE_DIR, store))
    return found


def _scratch() -> list[_Volume]:
    return [
        _Volume(name, path, {"emptyDir": {"sizeLimit": _SCRATCH_LIMIT}}, read_only=False)
        for name, path in (("cache", layout.CACHE_DIR), ("tmp", "/tmp"))
    ]


def _shared_memory(hardware: api.Hardware) -> list[_Volume]:
    """By which the processes of several devices hand each other what they compute. Those on a processor do not."""
    if hardware.resource_name == "cpu" or hardware.count == 1:
        return []
    memory = {"emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY_LIMIT}}
    return [_Volume("shared-memory", "/dev/shm", memory, read_only=False)]


def _model(spec: api.Spec) -> _Volume | None:
    source = spec.model.source
    if source.host_path is not None:
        mount = layout.host_path_mount(source.host_path.path, spec.speculative.draft_model)
        return _Volume("model", mount.mount_path, {"hostPath": {"path": mount.path, "type": mount.type}})
    if source.pvc is not None:
        claim = {"claimName": source.pvc.claim_name, "readOnly": True}
        return _Volume("model", layout.MODELS_DIR, {"persistentVolumeClaim": claim})
    if source.image is not None:
        image = {"reference": source.image.reference, "pullPolicy": source.image.pull_policy}
        return _Volume("model", layout.MODELS_DIR, {"image": image})
    return None
