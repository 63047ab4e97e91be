"""Archives of container images, made in tests: small, whole or broken on purpose."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LAYER = b"what a layer holds " * 100


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def configuration(layer: bytes) -> bytes:
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]}
    return json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode()


def oci_files(name: str, layer: bytes = LAYER) -> dict[str, bytes]:
    """As `buildah push oci-archive:` writes them."""
    blobs = [gzip.compress(layer, mtime=0), configuration(layer)]
    manifest = json.dumps(
        {"schemaVersion": 2, "config": _descriptor(blobs[1]), "layers": [_descriptor(blobs[0])]}
    ).encode()
    entry = {**_descriptor(manifest), "annotations": {"org.opencontainers.image.ref.name": name}}
    return {
        **{f"blobs/sha256/{sha256(blob)}": blob for blob in (*blobs, manifest)},
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode(),
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
    }


def _descriptor(blob: bytes) -> dict[str, Any]:
    return {"digest": f"sha256:{sha256(blob)}", "size": len(blob)}


def docker_files(name: str, layer: bytes = LAYER, *, packed: bool = False) -> dict[str, bytes]:
    """As `docker save` and `buildah push docker-archive:` write them."""
    config = configuration(layer)
    made = {
        f"{sha256(config)}.json": config,
        f"{sha256(layer)}.tar": gzip.compress(layer, mtime=0) if packed else layer,
    }
    config_name, layer_name = made
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]
    return {**made, "manifest.json": json.dumps(manifest).encode()}


def digest(files: Mapping[str, bytes]) -> str:
    """Of the manifest of `oci_files`."""
    found: str = json.loads(files["index.json"])["manifests"][0]["digest"]
    return found
