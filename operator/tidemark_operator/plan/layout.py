"""Where things lie inside an engine's container."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from tidemark_operator import api, names
from tidemark_runtime.planning import fixed_scales, precision_map

CONFIG_DIR = "/etc/tidemark"
KEYS_DIR = "/run/tidemark/keys"
ADMIN_DIR = "/run/tidemark/admin"
TLS_DIR = "/run/tidemark/tls"
PRECISION_DIR = "/run/tidemark/precision"
SCALES_DIR = "/run/tidemark/scales"
MODELS_DIR = "/models"
STORE_DIR = "/var/lib/tidemark/models"
CACHE_DIR = "/var/cache/tidemark"
"""Compiled kernels; the root file system is read-only."""

CONFIG_PATH = f"{CONFIG_DIR}/{names.CONFIG_FILE}"
ADMIN_TOKEN_PATH = f"{ADMIN_DIR}/{names.ADMIN_TOKEN_FILE}"
PRECISION_PATH = f"{PRECISION_DIR}/{precision_map.CONFIG_MAP_KEY}"
SCALES_PATH = f"{SCALES_DIR}/{fixed_scales.CONFIG_MAP_KEY}"
TLS_CERT_PATH = f"{TLS_DIR}/tls.crt"
TLS_KEY_PATH = f"{TLS_DIR}/tls.key"
"""The entries that a Secret of type `kubernetes.io/tls` has."""
GGUF = ".gguf"


def model_source(spec: api.Spec) -> str:
    """What the engine is told to load: a path below `MODELS_DIR`, or a name."""
    source = spec.model.source
    if source.package is not None:
        return source.package.name
    if source.hugging_face is not None:
        return source.hugging_face.repo
    if source.host_path is not None:
        return host_path_mount(source.host_path.path, spec.speculative.draft_model).model
    if source.pvc is not None and source.pvc.path:
        return "/".join([MODELS_DIR, *_parts(source.pvc.path)])
    return MODELS_DIR


def draft_model(spec: api.Spec) -> str | None:
    """The draft model as the engine is told: a name where the model is one, else a file or folder beside the model; in
    a volume that is the model as a whole, inside it. None: there is none."""
    name = spec.speculative.draft_model
    if name is None or spec.model.source.package is not None or spec.model.source.hugging_face is not None:
        return name
    model = model_source(spec)
    return posixpath.join(MODELS_DIR if model == MODELS_DIR else posixpath.dirname(model), name)


@dataclass(frozen=True, slots=True)
class HostPathMount:
    """What of a machine an engine sees, and where."""

    path: str
    """On the machine."""
    type: str
    """As Kubernetes calls it: Directory, or File."""
    mount_path: str
    model: str
    """Where the model is in the container: the mount, or below it."""


def host_path_mount(path: str, draft: str | None) -> HostPathMount:
    """A folder as `MODELS_DIR`, a file under its own name in it; with a draft model beside it the folder of both."""
    path = f"/{'/'.join(_parts(path))}"
    inside = posixpath.join(MODELS_DIR, posixpath.basename(path))
    if draft is not None:
        return HostPathMount(posixpath.dirname(path), "Directory", MODELS_DIR, inside)
    if path.lower().endswith(GGUF):
        return HostPathMount(path, "File", inside, inside)
    return HostPathMount(path, "Directory", MODELS_DIR, MODELS_DIR)


def _parts(path: str) -> list[str]:
    """Folders and file of a path as somebody wrote it, with `.` and slashes too many; `..` is refused before."""
    return [part for part in path.split("/") if part not in ("", ".")]


def keys_path(reference: api.ApiKeysRef) -> str:
    """The file of API keys."""
    return f"{KEYS_DIR}/{reference.key}"
