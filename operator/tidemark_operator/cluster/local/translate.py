"""From a container of a Pod to a command of this machine.

There is no mount namespace and no network namespace here, so paths below a mount become paths in the pod's own folder,
and the container's port becomes a free port of 127.0.0.1: in the arguments, in the environment, and in YAML files of
mounted ConfigMaps (`server.host` and `server.port` of `engine.yaml`).
"""

from __future__ import annotations

import base64
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tidemark_operator import names

HOST = "127.0.0.1"
"""Pods and Services listen here and nowhere else: what runs without a cluster is not offered to the network."""

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "tidemark": (sys.executable, "-m", "tidemark_operator"),
    "python": (sys.executable,),
    "python3": (sys.executable,),
}
"""What the engine's image has in its path, as commands of this installation."""

Lookup = Callable[[str, str], Mapping[str, Any] | None]
"""(kind, name) -> the object of the pod's namespace."""


class CannotRun(Exception):
    """The pod asks for something that is missing, or that this machine does not have; `str()` says what and what to do.

    `reason` is the waiting reason shown, in a kubelet's words.
    """

    def __init__(self, message: str, reason: str = "CreateContainerConfigError") -> None:
        super().__init__(message)
        self.reason = reason


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """What to execute."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def mounts(pod: Mapping[str, Any], container: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Mount path inside the container -> path on this machine, longest first. Raises `CannotRun`."""
    sources = {volume["name"]: _source(volume, folder) for volume in pod["spec"].get("volumes") or ()}
    found: dict[str, Path] = {}
    for mount in container.get("volumeMounts") or ():
        if mount["name"] not in sources:
            raise CannotRun(f"volumeMount {mount['name']!r} names no volume of the pod")
        found[mount["mountPath"].rstrip("/")] = sources[mount["name"]] / mount.get("subPath", "")
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def files(pod: Mapping[str, Any], folder: Path, lookup: Lookup) -> dict[Path, bytes]:
    """What ConfigMaps and Secrets put into the pod's folder, untranslated. Raises `CannotRun` when one is missing."""
    found: dict[Path, bytes] = {}
    for volume in pod["spec"].get("volumes") or ():
        for field, kind, name_field in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
            if field in volume:
                name = volume[field][name_field]
                contents = _contents(kind, name, volume[field], lookup)
                found.update({_source(volume, folder) / path: data for path, data in contents.items()})
    return found


def command(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    mounted: Mapping[str, Path],
    port: int,
    environment: Mapping[str, str],
    programs: Mapping[str, tuple[str, ...]] = PROGRAMS,
) -> Command:
    """The container's command and environment, here. `environment` is what the process inherits."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words:
        raise CannotRun(f"container {container['name']!r} names no command, and there is no image to take one from")
    if words[0] not in programs and not Path(words[0]).is_absolute():
        raise CannotRun(f"command {words[0]!r} is not one of {', '.join(programs)}, nor an absolute path")
    arguments = [translate_path(word, mounted) for word in words[1:]]
    env = {name: translate_path(value, mounted) for name, value in _variables(pod, container)}
    return Command(
        (*programs.get(words[0], (words[0],)), *_with_address(arguments, port)),
        {**environment, **env, "PYTHONUNBUFFERED": "1"},
    )


def config_text(path: Path, data: bytes, mounted: Mapping[str, Path], port: int) -> bytes:
    """The engine's configuration file with this machine's paths and address; any other file as it is."""
    if path.name != names.CONFIG_FILE:
        return data
    return yaml.safe_dump(config_document(yaml.safe_load(data) or {}, mounted, port), sort_keys=True).encode()


def config_document(document: Mapping[str, Any], mounted: Mapping[str, Path], port: int) -> dict[str, Any]:
    """A configuration with this machine's paths and address."""
    translated: dict[str, Any] = _translate_tree(document, mounted)
    translated["server"] = {**(translated.get("server") or {}), "host": HOST, "port": port}
    return translated


def translate_path(text: str, mounted: Mapping[str, Path]) -> str:
    """A path at or below a mount becomes the path here; also behind `--flag=`. Any other text stays."""
    head, equals, tail = text.partition("=") if text.startswith("--") else ("", "", text)
    for inside, here in mounted.items():
        if tail == inside or tail.startswith(f"{inside}/"):
            return f"{head}{equals}{here}{tail[len(inside) :]}"
    return text


def container_port(container: Mapping[str, Any], wanted: str | int | None = None) -> int | None:
    """The number of a port given by name or number; without one, the container's first port."""
    ports = container.get("ports") or ()
    if isinstance(wanted, int):
        return wanted
    for port in ports:
        if wanted is None or port.get("name") == wanted:
            return int(port["containerPort"])
    return None


def _source(volume: Mapping[str, Any], folder: Path) -> Path:
    if "hostPath" in volume:
        path = Path(volume["hostPath"]["path"])
        if volume["hostPath"].get("type", "") in ("Directory", "File") and not path.exists():
            raise CannotRun(
                f"hostPath {path} of volume {volume['name']!r} does not exist on this machine. "
                "Correct the path in the manifest, or put the file there",
                "FailedMount",
            )
        return path
    if any(field in volume for field in ("configMap", "secret", "emptyDir")):
        return folder / "volumes" / str(volume["name"])
    kind = next((field for field in volume if field != "name"), "nothing")
    raise CannotRun(
        f"volume {volume['name']!r} is a {kind}, which only a cluster has. "
        "On this machine give `spec.model.source` as hostPath or package",
        "FailedMount",
    )


def _contents(kind: str, name: str, reference: Mapping[str, Any], lookup: Lookup) -> dict[str, bytes]:
    obj = lookup(kind, name)
    if obj is None:
        if reference.get("optional"):
            return {}
        option = "--secret" if kind == "Secret" else "--configmap"
        raise CannotRun(f"{kind} {name!r} does not exist. Give it to `tidemark up` with {option} {name}=FILE")
    data = {key: value.encode() for key, value in {**(obj.get("data") or {}), **(obj.get("stringData") or {})}.items()}
    if kind == "Secret":
        data = {
            **{key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()},
            **{key: value.encode() for key, value in (obj.get("stringData") or {}).items()},
        }
    items = reference.get("items")
    if not items:
        return data
    if missing := [item["key"] for item in items if item["key"] not in data]:
        raise CannotRun(f"{kind} {name!r} has no key {missing[0]!r}; it has {', '.join(sorted(data)) or 'none'}")
    return {item["path"]: data[item["key"]] for item in items}


def _variables(pod: Mapping[str, Any], container: Mapping[str, Any]) -> list[tuple[str, str]]:
    metadata = pod["metadata"]
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", "default"),
        "metadata.uid": metadata.get("uid", ""),
        "status.podIP": HOST,
        "status.hostIP": HOST,
        "spec.nodeName": "localhost",
    }
    found = []
    for entry in container.get("env") or ():
        if "valueFrom" not in entry:
            found.append((entry["name"], entry.get("value", "")))
            continue
        path = entry["valueFrom"].get("fieldRef", {}).get("fieldPath")
        if path not in fields:
            raise CannotRun(f"env {entry['name']!r} is taken from {entry['valueFrom']!r}, which only a cluster knows")
        found.append((entry["name"], fields[path]))
    return found


def _with_address(arguments: list[str], port: int) -> list[str]:
    """`--port` and `--host` that the arguments already have, with this machine's values."""
    values = {"--port": str(port), "--host": HOST}
    changed = list(arguments)
    for position, word in enumerate(arguments):
        flag, equals, _ = word.partition("=")
        if flag in values and equals:
            changed[position] = f"{flag}={values[flag]}"
        elif flag in values and position + 1 < len(arguments):
            changed[position + 1] = values[flag]
    return changed


def _translate_tree(value: Any, mounted: Mapping[str, Path]) -> Any:
    if isinstance(value, Mapping):
        return {key: _translate_tree(item, mounted) for key, item in value.items()}
    if isinstance(value, list):
        return [_translate_tree(item, mounted) for item in value]
    return translate_path(value, mounted) if isinstance(value, str) else value
