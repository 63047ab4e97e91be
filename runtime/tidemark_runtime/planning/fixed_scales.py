"""One scale for all tokens of a head, K and V apart, found on a site's own text: what a scales file may say.

    model: smollm2-135m
    weights: 3f6c0a91d2b7e845         # of the files: scales of another checkpoint are refused
    kvDtype: int8
    shape: {layers: 30, kvHeads: 3, headDim: 64}
    tokens: 8192                      # read to find them
    scales:
      k: [[0.031, 0.052, 0.047], ...] # a list a layer, with one for each KV head; null for a head that a map keeps
      v: [[0.004, 0.009, 0.003], ...]

`tidemark eval calibrate` writes it. With it a quantized token has no scale of its own in its page, and what is larger
than scale x largest number of the dtype is clipped. Nothing stands in for a scale that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.planning import page_layout

CONFIG_MAP_KEY = "scales.yaml"
"""The key of a ConfigMap's data that holds such a file as text."""
SMALLEST = 2.0**-100
"""Kernels divide by a scale; a smaller one would overflow."""
LARGEST = 2.0**100
"""Kernels hold scales, and what they make of codes, in 32 bits; a larger one would overflow there."""

Scales = Mapping[tuple[int, int, page_layout.Kind], float]
"""(layer, head, kind) -> scale."""

_KEYS = ("model", "weights", "kvDtype", "shape", "tokens", "note", "scales")
_SHAPE_KEYS = ("layers", "kvHeads", "headDim")
_AGAIN = "Make the file anew with `tidemark eval calibrate`"
_A_SCALE = "a number above 0 (2^-100 to 2^100), or null for a head that is not quantized"


@dataclass(frozen=True, slots=True)
class FixedScales:
    """What was read: correct by itself, not yet compared with a model."""

    where: str
    model: str
    weights: str
    """`model.identity.of` the files they were found with."""
    dtype: str
    shape: page_layout.KVShape
    tokens: int
    scales: Scales


def parse(values: object, where: str) -> FixedScales:
    """Raises `ConfigError` with every problem; `where` is the file that messages name."""
    if not isinstance(values, Mapping):
        raise errors.ConfigError([errors.Problem(where, values, "a mapping with scales", _AGAIN)])
    problems: list[errors.Problem] = []
    for name in values:
        if name not in _KEYS:
            problems.append(errors.Problem(f"{where}.{name}", "this key", f"one of {', '.join(_KEYS)}"))
    for name in ("model", "weights", "kvDtype"):
        if not isinstance(values.get(name), str):
            problems.append(errors.Problem(f"{where}.{name}", values.get(name), "a text", _AGAIN))
    dtype = values.get("kvDtype")
    if isinstance(dtype, str) and dtype not in fixable():
        problems.append(errors.Problem(f"{where}.kvDtype", dtype, f"one of {', '.join(fixable())}", _AGAIN))
    shape = _shape(values.get("shape"), f"{where}.shape", problems)
    tokens = _count(values.get("tokens"), f"{where}.tokens", problems)
    scales = {} if shape is None else _scales(values.get("scales"), shape, f"{where}.scales", problems)
    if problems or shape is None:
        raise errors.ConfigError(problems)
    return FixedScales(where, values["model"], values["weights"], values["kvDtype"], shape, tokens, scales)


def fixable() -> tuple[str, ...]:
    """Dtypes that can have one scale for all tokens of a head. Those with several scales a token cannot."""
    return tuple(name for name, dtype in page_layout.KV_DTYPES.items() if dtype.scaled and dtype.group is None)


def of_layout(found: FixedScales, layout: page_layout.PageLayout, weights: str) -> Scales:
    """Those that `layout`, which has fixed scales, needs. `weights`: of the model that runs.

    Raises `ConfigError` where the file is of another model or dtype, or a scale is missing.
    """
    if found.shape != layout.shape:
        seen = errors.Seen(f"scales of {found.model}, {_described(found.shape)}")
        expected = f"those of the model that runs, {_described(layout.shape)}"
        raise errors.ConfigError([errors.Problem(found.where, seen, expected, _AGAIN)])
    if found.weights != weights:
        seen = errors.Seen(f"scales of {found.model} with the weights {found.weights}")
        raise errors.ConfigError(
            [errors.Problem(found.where, seen, f"those of the weights that run, {weights}", _AGAIN)]
        )
    problems = list(_wrong_dtypes(found, layout))
    needed = [(each.layer, each.head, each.kind) for each in layout.segments if each.needs_fixed_scale]
    missing = [place for place in needed if place not in found.scales]
    if missing and not problems:
        (layer, head, kind), more = missing[0], len(missing) - 1
        key = f"{found.where}.scales.{kind}[{layer}][{head}]"
        seen = errors.Seen(f"no scale{f', nor for {more} more heads' if more else ''}")
        problems.append(errors.Problem(key, seen, "one for each head that is quantized", _AGAIN))
    if problems:
        raise errors.ConfigError(problems)
    return {place: found.scales[place] for place in needed}


def to_mapping(found: FixedScales) -> dict[str, Any]:
    """What `parse` reads."""
    shape = found.shape
    return {
        "model": found.model,
        "weights": found.weights,
        "kvDtype": found.dtype,
        "shape": {"layers": shape.num_layers, "kvHeads": shape.num_kv_heads, "headDim": shape.head_dim},
        "tokens": found.tokens,
        "scales": {
            kind: [
                [found.scales.get((layer, head, kind)) for head in range(shape.num_kv_heads)]
                for layer in range(shape.num_layers)
            ]
            for kind in page_layout.KINDS
        },
    }


def _wrong_dtypes(found: FixedScales, layout: page_layout.PageLayout) -> Iterator[errors.Problem]:
    quantized = {each.dtype.name for each in layout.segments if each.dtype.scaled}
    if not quantized:
        remedy = "Set kvCache.dtype to the dtype of the scales, or leave kvCache.scalesFile out"
        seen = errors.Seen("scales, and nothing that is quantized")
        yield errors.Problem(found.where, seen, f"a KV dtype of {', '.join(fixable())}", remedy)
    for name in sorted(quantized - {found.dtype}):
        if name in fixable():
            remedy = f"Calibrate with --kv-cache-dtype {name}"
        else:
            remedy = (
                f"{name} has several scales a token, always its own. Leave kvCache.scalesFile out, or choose 8 bits"
            )
        seen = errors.Seen(f"scales for {found.dtype}, beside heads in {name}")
        yield errors.Problem(found.where, seen, f"scales for {name}, and no second quantized dtype", remedy)


def _scales(
    values: object, shape: page_layout.KVShape, where: str, problems: list[errors.Problem]
) -> dict[tuple[int, int, page_layout.Kind], float]:
    if not isinstance(values, Mapping) or set(values) != set(page_layout.KINDS):
        # Of a mapping the keys say what is wrong; its values are all the other scales.
        seen = errors.Seen(f"the keys {', '.join(map(str, values))}") if isinstance(values, Mapping) else values
        problems.append(errors.Problem(where, seen, "a mapping of k and v", _AGAIN))
        return {}
    found: dict[tuple[int, int, page_layout.Kind], float] = {}
    for kind in page_layout.KINDS:
        layers = _list(values[kind], shape.num_layers, "layers", f"{where}.{kind}", problems)
        for layer, heads in enumerate(layers):
            place = f"{where}.{kind}[{layer}]"
            for head, scale in enumerate(_list(heads, shape.num_kv_heads, "KV heads", place, problems)):
                if scale is None:
                    continue
                if not _is_scale(scale):
                    problems.append(errors.Problem(f"{place}[{head}]", scale, _A_SCALE, _AGAIN))
                else:
                    found[layer, head, kind] = float(scale)
    return found


def _is_scale(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and SMALLEST <= value <= LARGEST


def _list(value: object, length: int, of: str, where: str, problems: list[errors.Problem]) -> Sequence[Any]:
    if isinstance(value, list) and len(value) == length:
        return value
    seen = errors.Seen(f"{len(value)} entries") if isinstance(value, list) else value
    problems.append(errors.Problem(where, seen, f"a list of {length}, the {of} of shape", _AGAIN))
    return ()


def _shape(value: object, where: str, problems: list[errors.Problem]) -> page_layout.KVShape | None:
    if not isinstance(value, Mapping) or set(value) != set(_SHAPE_KEYS):
        problems.append(errors.Problem(where, value, f"a mapping of {', '.join(_SHAPE_KEYS)}", _AGAIN))
        return None
    before = len(problems)
    numbers = [_count(value[key], f"{where}.{key}", problems) for key in _SHAPE_KEYS]
    return page_layout.KVShape(*numbers) if len(problems) == before else None


def _count(value: object, where: str, problems: list[errors.Problem]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    problems.append(errors.Problem(where, value, "a whole number of at least 1", _AGAIN))
    return 0


def _described(shape: page_layout.KVShape) -> str:
    return f"{shape.num_layers} layers of {shape.num_kv_heads} KV heads of {shape.head_dim}"
