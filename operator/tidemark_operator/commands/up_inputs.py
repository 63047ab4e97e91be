"""What `up`, `plan` and `render` are given beside the manifest: Secrets and ConfigMaps that a cluster would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark_operator import api, errors, names, plan
from tidemark_runtime.contract import documents
from tidemark_runtime.planning import fixed_scales, precision_map

_EXPECTED = "a precision map or scales, or a ConfigMap with them, as `tidemark eval` writes"
_KEYS = (precision_map.CONFIG_MAP_KEY, fixed_scales.CONFIG_MAP_KEY)


def parse_pairs(option: str, pairs: Sequence[str], example: str) -> dict[str, Path]:
    """`NAME=FILE` each. Raises `ManifestFileError` naming `option`."""
    found = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise errors.ManifestFileError(f"{option}: got {pair!r}, expected NAME=FILE, for example {example}")
        found[name] = Path(path)
    return found


def secret(path: Path) -> dict[str, bytes]:
    """A file becomes the key `keys`, a folder one key a file. Raises `ManifestFileError`."""
    try:
        if path.is_dir():
            return {item.name: item.read_bytes() for item in sorted(path.iterdir()) if item.is_file()}
        return {names.KEYS_FILE: path.read_bytes()}
    except OSError as error:
        raise errors.ManifestFileError(f"{path}: the Secret's file cannot be read: {error.strerror}") from error


def config_map(path: Path) -> dict[str, str]:
    """The data of a ConfigMap with a precision map or scales: `path` holds these, or is a manifest of the ConfigMap.

    What can be seen to be wrong without the model is refused here. Raises `ManifestFileError`, and `ConfigError` with
    every problem.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.ManifestFileError(f"{path}: the ConfigMap's file cannot be read: {words}") from error
    found = _read(text, path)
    if isinstance(found, Mapping) and found.get("kind") == "ConfigMap":
        return _checked(_data_of(found, path), path)
    is_scales = isinstance(found, Mapping) and "scales" in found
    return _checked({fixed_scales.CONFIG_MAP_KEY if is_scales else precision_map.CONFIG_MAP_KEY: text}, path)


def maps(services: Sequence[api.InferenceService], pairs: Sequence[str]) -> dict[str, plan.Map]:
    """ConfigMap -> the precision map in it, for what counts bytes only: `pairs` are NAME=FILE of `--configmap`.

    Raises `ManifestFileError`, also for a name that no manifest has, and `ConfigError` as `config_map` does.
    """
    found: dict[str, plan.Map] = {}
    for name, path in parse_pairs("--configmap", pairs, "found=./map.yaml").items():
        users = [service for service in services if map_name(service) == name]
        if not users:
            named = ", ".join(sorted({each for service in services if (each := map_name(service))})) or "none"
            raise errors.ManifestFileError(
                f"--configmap: got {name!r}, expected a ConfigMap that {plan.MAP_FIELD} names: {named}"
            )
        data = config_map(path)
        for service in users:
            read = plan.read_map(service, {"data": data})
            if read is not None and read.reason:
                raise errors.ManifestFileError(f"{path}: {read.message}")
            if read is not None:
                found[name] = read
    return found


def map_name(service: api.InferenceService) -> str:
    """The ConfigMap with the precision map of `service`; empty: it names none."""
    reference = service.spec.kv_cache.precision.map_ref
    return "" if reference is None else reference.name


def _data_of(manifest: Mapping[Any, Any], path: Path) -> dict[str, str]:
    given = manifest.get("data")
    data = {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    if not any(key in data for key in _KEYS):
        listed = ", ".join(sorted(data)) or "no keys"
        raise errors.ManifestFileError(f"{path}: the ConfigMap has {listed}, expected {' or '.join(_KEYS)}")
    return data


def _checked(data: dict[str, str], path: Path) -> dict[str, str]:
    if precision_map.CONFIG_MAP_KEY in data:
        precision_map.parse(_read(data[precision_map.CONFIG_MAP_KEY], path), str(path))
    if fixed_scales.CONFIG_MAP_KEY in data:
        fixed_scales.parse(_read(data[fixed_scales.CONFIG_MAP_KEY], path), str(path))
    return data


def _read(text: str, path: Path) -> Any:
    return documents.read_yaml(text, "--configmap", str(path), _EXPECTED)
