"""Images without a registry and without root file systems from elsewhere: packed here, imported into containerd.

    images.pack(images.Image("localhost/hello:1", {"/hello": Path("hello")}, ["/hello"]), Path("hello.tar"))

The archive is a docker-archive with one layer; the same input makes the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bed import machine, userland, versions

PAUSE = "localhost/tidemark-bed/pause:1"
POD_PROGRAM = "/pod-program"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Text:
    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class Link:
    target: str


@dataclass(frozen=True)
class Folder:
    """An empty one."""


Entry = Path | Text | Link | Folder
"""A file or folder of this machine (folders with all that is in them), a text, a symbolic link, an empty folder."""


@dataclass(frozen=True)
class Image:
    name: str
    """With registry and tag, as pods name it: `localhost/...` is asked of nobody."""
    files: Mapping[str, Entry]
    """Absolute path in the image -> what is there."""
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""


def pause() -> Image:
    return pod_program(PAUSE, "pause")


def pod_program(name: str, *arguments: str) -> Image:
    """The static program of `pod/main.go` alone: `pause`, `serve ADDRESS TEXT` or `get URL`."""
    return Image(name, {POD_PROGRAM: machine.programs_folder() / versions.POD_PROGRAM}, [POD_PROGRAM, *arguments])


def host_python(
    name: str,
    entrypoint: Sequence[str] = ("python",),
    files: Mapping[str, Entry] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Image:
    """This machine's Python with the checkout's packages, its commands (`tidemark`) and the C compiler.

    A few kilobytes: links to what the node mounts into its containers (see `userland`), and `files`.
    """
    made: dict[str, Entry] = {path: Link(target) for path, target in userland.links().items()}
    for folder in ("/tmp", "/proc", "/sys", "/dev", "/etc", "/run", "/var"):
        made[folder] = Folder()
    made["/etc/passwd"] = Text(
        f"root:x:0:0::/:/nologin\nnonroot:x:{userland.NOBODY}:{userland.NOBODY}::/tmp:/nologin\n"
    )
    made["/etc/group"] = Text(f"root:x:0:\nnonroot:x:{userland.NOBODY}:\n")
    return Image(
        name,
        {**made, **(files or {})},
        entrypoint,
        {
            "PATH": f"{userland.virtual_environment()}/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "XDG_CACHE_HOME": "/var/cache",
            "TIDEMARK_MODELS": f"{userland.MOUNT}/models",
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environment or {}),
        },
        str(userland.NOBODY),
    )


def pack(image: Image, archive: Path) -> None:
    """Writes a docker-archive."""
    layer = _layer(image)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(_config(image, digest)).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        _add_bytes(tar, config_name, config)
        _add_bytes(tar, f"{digest}/layer.tar", layer)
        _add_bytes(tar, "manifest.json", json.dumps(manifest).encode())


def _config(image: Image, digest: str) -> dict[str, object]:
    return {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(image.entrypoint),
            "Env": [f"{key}={value}" for key, value in image.environment.items()],
            "User": image.user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }


def _layer(image: Image) -> bytes:
    """One tar: every folder before what is in it."""
    files = dict(_with_contents(image.files))
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents if str(parent) != "/"}
    for folder in folders:
        files.setdefault(folder, Folder())
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for path in sorted(files):
            _add(tar, path.lstrip("/"), files[path])
    return made.getvalue()


def _with_contents(files: Mapping[str, Entry]) -> Iterator[tuple[str, Entry]]:
    for path, entry in files.items():
        if isinstance(entry, Path) and entry.is_dir():
            yield path, Folder()
            for inner in sorted(entry.rglob("*")):
                inside = str(PurePosixPath(path) / inner.relative_to(entry).as_posix())
                if inner.is_symlink():
                    yield inside, Link(str(inner.readlink()))
                else:
                    yield inside, Folder() if inner.is_dir() else inner
        else:
            yield path, entry


def _add(tar: tarfile.TarFile, name: str, entry: Entry) -> None:
    if isinstance(entry, Path):
        _add_bytes(tar, name, entry.read_bytes(), (entry.stat().st_mode & 0o777) | 0o444)
    elif isinstance(entry, Text):
        _add_bytes(tar, name, entry.content.encode(), entry.mode)
    else:
        info = tarfile.TarInfo(name)
        info.mode = 0o1777 if name == "tmp" else 0o755
        info.type = tarfile.SYMTYPE if isinstance(entry, Link) else tarfile.DIRTYPE
        info.linkname = entry.target if isinstance(entry, Link) else ""
        tar.addfile(info)


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))
