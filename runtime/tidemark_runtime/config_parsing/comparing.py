"""Two configurations side by side: as plain mappings, by a hash, by what differs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import posixpath
from collections.abc import Mapping
from typing import Any

from tidemark_runtime import config
from tidemark_runtime.config_parsing import catalogue


def to_mapping(parsed: config.EngineConfig) -> dict[str, dict[str, Any]]:
    """The inverse of `parse`: camelCase sections and keys, every setting present, plain values only."""
    return {catalogue.camel(section): _plain_section(getattr(parsed, section)) for section in catalogue.sections()}


def _plain_section(section: Any) -> dict[str, Any]:
    return {
        catalogue.camel(item.name): _plain_value(getattr(section, item.name)) for item in dataclasses.fields(section)
    }


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return _plain_section(value) if dataclasses.is_dataclass(value) else value


_PLACES: Mapping[str, tuple[str, ...]] = {
    "model": ("source",),
    "server": ("host", "port", "apiKeysFile", "adminTokenFile", "tlsCertFile", "tlsKeyFile"),
}
"""Settings that differ between machines: no part of what a configuration is."""
_FILES: Mapping[str, tuple[str, ...]] = {
    "speculative": ("draftModel",),
    "kvCache": ("precisionFile", "scalesFile"),
}
"""Of these only the folder is a place: that there is one, and its name, is part of the configuration."""


def config_hash(parsed: config.EngineConfig) -> str:
    """Twelve hex digits that name a configuration; equal settings have equal hashes on every machine.

    Where model, keys and certificate lie and where the server listens is left out, and so are the folders of other
    files: they differ between a pod and a process of this machine although the configuration is the same, and never
    change without a new process anyway.
    """
    kept = {
        section: {
            key: posixpath.basename(value.rstrip("/")) if value and key in _FILES.get(section, ()) else value
            for key, value in settings.items()
            if key not in _PLACES.get(section, ())
        }
        for section, settings in to_mapping(parsed).items()
    }
    canonical = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def with_places(values: Mapping[str, Any], running: config.EngineConfig) -> dict[str, Any]:
    """`values` completed with what `config_hash` leaves out whole, as it runs, wherever `values` does not say it.

    So a file that was started with `--port` or MODEL beside it is, by itself, still the configuration that runs.
    """
    completed = dict(values)
    for section, keys in _PLACES.items():
        said = completed.get(section)
        if said is None or isinstance(said, Mapping):
            places = {key: value for key, value in to_mapping(running)[section].items() if key in keys}
            given = {key: value for key, value in (said or {}).items() if value is not None or key not in keys}
            completed[section] = places | given
    return completed


def changes(old: config.EngineConfig, new: config.EngineConfig) -> dict[str, tuple[Any, Any]]:
    """`{"scheduler.maxNumSeqs": (64, 32)}`: every setting that differs, with both values, in the settings' order."""
    before, after = to_mapping(old), to_mapping(new)
    return {
        f"{section}.{key}": (value, after[section][key])
        for section, settings in before.items()
        for key, value in settings.items()
        if value != after[section][key]
    }
