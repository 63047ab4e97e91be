"""Container images in files: what an archive holds, and whether it is whole.

Two kinds, as `buildah push` and others write them:

    oci-archive       index.json, blobs/sha256/...; its digest is the one that a registry gives it, too
    docker-archive    manifest.json; a registry would pack it anew, so its digest is that of the configuration: the id
                      that nodes show

An archive that has both is read as the first. Every blob and layer is compared with the digest it is known by.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tidemark_operator import errors

Progress = Callable[[int], None]
"""Called with how many bytes were done since the last call."""

CHUNK_BYTES = 1 << 20
_DOCUMENT_BYTES = 4 << 20
"""Index, manifest and configuration are smaller; only of such files the content is kept."""
_INDEX = "index.json"
_MANIFEST = "manifest.json"
_BLOBS = "blobs/sha256/"
_NAME_ANNOTATIONS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True, slots=True)
class Archive:
    """What a file holds."""

    names: tuple[str, ...]
    """As it is tagged: `localhost/tidemark/operator:0.1.0`."""
    digest: str
    digest_of: str
    """`manifest`: good for pulling and for `images.*.digest`. `configuration`: the image id."""
    platforms: tuple[str, ...]
    """`linux/amd64`; empty where it does not say."""


@dataclass(slots=True)
class _Content:
    """A tar read once: the digest of every file, and the small ones themselves."""

    path: Path
    digests: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)

    def json(self, name: str) -> Any:
        text = self.documents.get(name)
        if text is None:
            raise _broken(self.path, f"{name} is missing")
        try:
            return json.loads(text)
        except ValueError as error:
            raise _broken(self.path, f"{name} is not JSON: {error}") from error


def read(path: Path, progress: Progress = lambda _: None) -> Archive:
    """Reads all of it. Raises `errors.ManifestFileError`: not an archive of one image, or damaged."""
    try:
        content = _read(path, progress)
        if _INDEX in content.documents:
            return _oci(content)
        if _MANIFEST in content.documents:
            return _docker(content)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _broken(path, f"it cannot be read to its end: {error}") from error
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise _broken(path, f"its index, manifest or configuration lacks what an image has: {error!r}") from error
    raise _broken(path, f"neither {_INDEX} nor {_MANIFEST} is in it")


def _read(path: Path, progress: Progress) -> _Content:
    content = _Content(path)
    with tarfile.open(path) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if member.islnk() or member.issym():
                content.links[name] = member.linkname
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                continue
            if member.size <= _DOCUMENT_BYTES:
                content.documents[name] = file.read()
                content.digests[name] = hashlib.sha256(content.documents[name]).hexdigest()
                progress(member.size)
            else:
                content.digests[name] = _digest(file, progress)
    return content


def _digest(file: IO[bytes] | gzip.GzipFile, progress: Progress = lambda _: None) -> str:
    made = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        made.update(chunk)
        progress(len(chunk))
    return made.hexdigest()


# -- oci-archive --


def _oci(content: _Content) -> Archive:
    for name, digest in content.digests.items():
        if name.startswith(_BLOBS) and name != _BLOBS + digest:
            raise _broken(content.path, f"{name} has the SHA-256 {digest}")
    entries = content.json(_INDEX)["manifests"]
    if len(entries) != 1:
        raise _broken(content.path, f"it holds {len(entries)} images, expected one")
    names = tuple(entries[0].get("annotations", {}).get(key, "") for key in _NAME_ANNOTATIONS)
    tags = [tag for item in content.json(_MANIFEST) for tag in item.get("RepoTags") or ()] if _has_both(content) else []
    return Archive(
        tuple(dict.fromkeys(name for name in (*names, *tags) if name)),
        entries[0]["digest"],
        "manifest",
        tuple(sorted(set(_platforms(content, entries[0])))),
    )


def _has_both(content: _Content) -> bool:
    return _MANIFEST in content.documents


def _platforms(content: _Content, descriptor: Mapping[str, Any]) -> Iterator[str]:
    """Of the images below a manifest or an index, all of whose blobs must be there."""
    document = content.json(_blob(content, descriptor))
    if "manifests" in document:
        for inner in document["manifests"]:
            yield from _platforms(content, inner)
        return
    for layer in document["layers"]:
        _blob(content, layer)
    yield from _platform(content.json(_blob(content, document["config"])))


def _blob(content: _Content, descriptor: Mapping[str, Any]) -> str:
    name = _BLOBS + str(descriptor["digest"]).removeprefix("sha256:")
    if name not in content.digests:
        raise _broken(content.path, f"the blob {descriptor['digest']} is missing")
    return name


# -- docker-archive --


def _docker(content: _Content) -> Archive:
    images = content.json(_MANIFEST)
    if len(images) != 1:
        raise _broken(content.path, f"it holds {len(images)} images, expected one")
    image = images[0]
    configuration = content.json(image["Config"])
    digest = content.digests[image["Config"]]
    if digest not in image["Config"]:
        raise _broken(content.path, f"{image['Config']} has the SHA-256 {digest}")
    wanted = configuration["rootfs"]["diff_ids"]
    if len(wanted) != len(image["Layers"]):
        raise _broken(content.path, f"it has {len(image['Layers'])} layers, its configuration names {len(wanted)}")
    for name, diff_id in zip(image["Layers"], wanted, strict=True):
        found = _layer_digest(content, name, diff_id.removeprefix("sha256:"))
        if f"sha256:{found}" != diff_id:
            raise _broken(content.path, f"the layer {name} has the SHA-256 {found}, expected {diff_id}")
    names = tuple(name for name in image.get("RepoTags") or () if name)
    return Archive(names, f"sha256:{digest}", "configuration", tuple(_platform(configuration)))


def _layer_digest(content: _Content, name: str, wanted: str) -> str:
    """Of the layer as it is unpacked; old archives link one layer to another."""
    if name not in content.digests and name not in content.links:
        raise _broken(content.path, f"the layer {name} is missing")
    if content.digests.get(name) == wanted:
        return wanted
    with tarfile.open(content.path) as tar:
        file = tar.extractfile(name)
        if file is None:
            raise _broken(content.path, f"the layer {name} is no file")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with gzip.open(file) if packed else file as plain:
            return _digest(plain)


def _platform(configuration: Mapping[str, Any]) -> Iterator[str]:
    if configuration.get("os") and configuration.get("architecture"):
        yield f"{configuration['os']}/{configuration['architecture']}"


def _broken(path: Path, why: str) -> errors.ManifestFileError:
    return errors.ManifestFileError(
        f"{path}: not the whole archive of one container image: {why}. Write it again: "
        f"`buildah push NAME oci-archive:FILE:NAME`"
    )
