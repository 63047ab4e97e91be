"""Ways of keeping K and V that are compared: a dtype, perhaps with a precision map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidemark_runtime import errors
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.worker import precision

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way."""

    name: str
    dtype: str
    segments: precision_map.Segments = field(default_factory=dict)

    def layout(self, shape: page_layout.KVShape) -> page_layout.PageLayout:
        return page_layout.PageLayout(shape, BLOCK_SIZE, self.dtype, self.segments)


def chosen(dtypes: Sequence[str], maps: Mapping[str, Any] | None, target: precision_map.Target) -> list[Configuration]:
    """Every dtype, and with a map each once without and once with it. `target.dtype` is not looked at.

    Raises ConfigError: unknown dtype, or a map that is wrong for the model.
    """
    check_dtypes(dtypes)
    found = [Configuration(dtype, dtype) for dtype in dict.fromkeys(dtypes)]
    if maps is None:
        return found
    with_map = []
    for plain in found:
        aim = precision_map.Target(target.shape, plain.dtype, target.keep_dtype, target.num_query_heads)
        segments = precision_map.segments_of(precision_map.parse(maps, "--precision-map"), aim)
        with_map.append(Configuration(f"{plain.dtype} + map", plain.dtype, segments))
    return [configuration for pair in zip(found, with_map, strict=True) for configuration in pair]


def check_dtypes(dtypes: Sequence[str]) -> None:
    """Raises ConfigError for the first that is unknown."""
    known = ", ".join(sorted(page_layout.KV_DTYPES))
    problems = [
        errors.Problem("--kv-cache-dtype", name, f"one of {known}")
        for name in dtypes
        if name not in page_layout.KV_DTYPES
    ]
    if problems:
        raise errors.ConfigError(problems)


def read_map(path: Path) -> Mapping[str, Any]:
    """A map file, or a ConfigMap that `tidemark eval sensitivity` wrote. Raises ConfigError naming the file."""
    return precision.loaded(_content(path), "--precision-map", str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = errors.Problem("--precision-map", str(path), precision.READABLE, f"It says: {error}")
        raise errors.ConfigError([problem]) from error


def map_text(segments: precision_map.Segments, shape: page_layout.KVShape, notes: Mapping[str, str]) -> str:
    """The file that `read_map` reads; `notes`: `model` and `kvDtype`, which are no rules."""
    found = {**notes, **precision_map.to_mapping(segments, shape)}
    # Lists of numbers in one line, rules in lines of their own.
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, default_flow_style=None)


def config_map_text(name: str, text: str) -> str:
    """A manifest for `precision.mapRef`, in the namespace in which it is applied."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {precision_map.CONFIG_MAP_KEY: text},
    }
    return yaml.dump(manifest, Dumper=_BlockDumper, sort_keys=False, allow_unicode=True)


class _BlockDumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that the map can be read in the manifest."""


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_BlockDumper.add_representer(str, _text)
