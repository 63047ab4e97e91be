"""Ways of keeping K and V that are compared: a dtype, perhaps with a precision map, perhaps with fixed scales."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tidemark_runtime import config, errors
from tidemark_runtime.planning import fixed_scales as fixed
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.worker import map_files, precision
from tidemark_runtime.worker import scales as scales_files

BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way."""

    name: str
    dtype: str
    segments: precision_map.Segments = field(default_factory=dict)
    scales: fixed.FixedScales | None = None
    """None: every token has scales of its own."""
    weights: str | None = None
    """The value of `model.quantization` that its weights are loaded with; None: the weights of the measure."""

    def layout(self, shape: page_layout.KVShape) -> page_layout.PageLayout:
        return page_layout.PageLayout(shape, BLOCK_SIZE, self.dtype, self.segments, self.scales is not None)

    def fixed_scales(self, shape: page_layout.KVShape) -> fixed.Scales:
        """Of the heads that are quantized. Raises ConfigError where one is missing."""
        return {} if self.scales is None else fixed.of_layout(self.scales, self.layout(shape), self.scales.weights)


def with_scales(
    wanted: Sequence[Configuration], scales: fixed.FixedScales, target: precision_map.Target, weights: str
) -> list[Configuration]:
    """Each of the scales' dtype once more, with them. `weights`: `model.identity.of` the model that is measured.

    Raises ConfigError: scales of another model or dtype, or one that is missing.
    """
    if all(one.dtype != scales.dtype for one in wanted):
        seen = errors.Seen(f"scales for {scales.dtype}")
        remedy = f"Add --kv-cache-dtype {scales.dtype}, or calibrate for another dtype"
        expected = f"scales for one of {', '.join(dict.fromkeys(one.dtype for one in wanted))}"
        raise errors.ConfigError([errors.Problem("--scales-file", seen, expected, remedy)])
    found: list[Configuration] = []
    for one in wanted:
        found.append(one)
        if one.dtype == scales.dtype:
            more = dataclasses.replace(one, name=f"{one.name} + scales", scales=scales)
            fixed.of_layout(scales, more.layout(target.shape), weights)
            found.append(more)
    return found


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


def check_quantizations(quantizations: Sequence[str]) -> None:
    """Raises ConfigError for every one that is unknown."""
    problems = [
        errors.Problem("--quantization", name, f"one of {', '.join(config.QUANTIZATIONS)}")
        for name in quantizations
        if name not in config.QUANTIZATIONS
    ]
    if problems:
        raise errors.ConfigError(problems)


def read_map(path: Path) -> Mapping[str, Any]:
    """A map file, or a ConfigMap that `tidemark eval sensitivity` wrote. Raises ConfigError naming the file."""
    wanted = precision.wanted("--precision-map")
    return map_files.mapping(map_files.content(path, wanted), wanted, str(path))


def read_scales(path: Path) -> fixed.FixedScales:
    """A scales file, or a ConfigMap with one. Raises ConfigError naming the file."""
    wanted = scales_files.wanted("--scales-file")
    return fixed.parse(map_files.mapping(map_files.content(path, wanted), wanted, str(path)), str(path))


def scales_text(found: fixed.FixedScales) -> str:
    """The file that `read_scales` reads."""
    return yaml.safe_dump(
        fixed.to_mapping(found), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )


def map_text(segments: precision_map.Segments, shape: page_layout.KVShape, notes: Mapping[str, str]) -> str:
    """The file that `read_map` reads; `notes`: `model`, `weights` and `kvDtype`, which are no rules."""
    found = {**notes, **precision_map.to_mapping(segments, shape)}
    # Lists of numbers in one line, rules in lines of their own.
    return yaml.safe_dump(found, sort_keys=False, allow_unicode=True, default_flow_style=None)


def config_map_text(name: str, text: str, key: str = precision_map.CONFIG_MAP_KEY) -> str:
    """A manifest for `precision.mapRef`, or `scalesRef`, in the namespace in which it is applied."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {key: text},
    }
    return yaml.dump(manifest, Dumper=_BlockDumper, sort_keys=False, allow_unicode=True)


class _BlockDumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that the map can be read in the manifest."""


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_BlockDumper.add_representer(str, _text)
