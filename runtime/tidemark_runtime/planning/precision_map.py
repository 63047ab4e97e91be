"""Which segments of a page differ from `kvCache.dtype`: what a map file, a ConfigMap or a manifest may say.

    rules:
      - {layers: [0, 3-5], kind: k}                            # K of all heads of four layers, at 16 bits
      - {layers: 7, heads: [2], kind: both, dtype: bfloat16}   # one KV head
    keepLayers: [12, 13]                                       # short for rules of whole layers at 16 bits
    keepHeads: {"20": [0, 2]}                                  # ... and of whole heads

`layers` and `heads` are a number, a range `first-last` (both ends belong to it) or a list of those. `heads` are KV
heads, all where left out; `kind` is k, v or both (default); `dtype` is a KV dtype, or auto (default): 16 bits. The file
that `tidemark eval sensitivity` writes also says for which `model`, `weights` and `kvDtype` it was found: notes, not
rules. A map that was found for another model is used, and told of (`of_another`).

Read in two steps: `parse` knows no model, so that a manifest can be checked early; `segments_of` knows the shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import config, errors
from tidemark_runtime.planning import page_layout

AUTO = "auto"
KEEP_DTYPE = "bfloat16"
"""What auto means where the model itself is not of 16 bits."""
BOTH = "both"
CONFIG_MAP_KEY = "precision.yaml"
"""The key of a ConfigMap's data that holds a map as text."""

Segments = Mapping[tuple[int, int, page_layout.Kind], str]
"""(layer, head, kind) -> dtype name, as `PageLayout.precision` wants it."""

_KINDS: Mapping[str, tuple[page_layout.Kind, ...]] = {"k": ("k",), "v": ("v",), BOTH: ("k", "v")}
_NOTES = ("model", "weights", "kvDtype")
_KEYS = ("rules", "keepLayers", "keepHeads", *_NOTES)
_RULE_KEYS = ("layers", "heads", "kind", "dtype")
_NUMBERS = "a number from 0, a range such as 3-5, or a list of those"
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")
_AGAIN = "Find one for it with `tidemark eval sensitivity`"
_MOST = 65_536
"""No model has so many layers; a range up to a mistyped number must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Some segments, and how they are kept."""

    where: str
    """The rule's place in the map, for messages."""
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None
    """None: all."""
    kinds: tuple[page_layout.Kind, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class PrecisionMap:
    """What was read: correct by itself, not yet compared with a model."""

    where: str
    rules: tuple[Rule, ...]
    found_for: str = ""
    """The KV dtype that its note `kvDtype` names; empty: none, or no dtype that there is."""
    model: str = ""
    """Whose it is, by its note; empty: it does not say."""
    weights: str = ""
    """`model.identity.of` the files it was found with, by its note; empty: it does not say."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a map is for."""

    shape: page_layout.KVShape
    dtype: str
    """Of all segments that no rule names."""
    keep_dtype: str = KEEP_DTYPE
    """What auto stands for."""
    num_query_heads: int | None = None
    """For a better message: heads are easily taken for these."""


def keep_dtype(model_dtype: str) -> str:
    """What auto stands for with a model whose activations are of `model_dtype`: that where it has 16 bits."""
    return model_dtype if model_dtype in ("float16", "bfloat16") else KEEP_DTYPE


def parse(values: object, where: str = "kvCache.precision") -> PrecisionMap:
    """Read a map. Raises `ConfigError` with every problem; `where` is the file or setting that messages name."""
    problems: list[errors.Problem] = []
    if not isinstance(values, Mapping):
        remedy = "Such as: rules: [{layers: [0, 1], kind: k}]"
        raise errors.ConfigError([errors.Problem(where, values, "a mapping", remedy)])
    _unknown(values, _KEYS, where, problems)
    rules = [*_rules(values.get("rules"), f"{where}.rules", problems), *_short_forms(values, where, problems)]
    if not rules and not problems:
        remedy = "Name the layers to keep at 16 bits, or leave the map out"
        problems.append(errors.Problem(where, dict(values), "at least one rule", remedy))
    if problems:
        raise errors.ConfigError(problems)
    model, weights, note = (str(values.get(name) or "") for name in _NOTES)
    return PrecisionMap(where, tuple(rules), note if note in page_layout.KV_DTYPES else "", model, weights)


def places_of(wanted: PrecisionMap, dtypes: Iterable[str]) -> list[tuple[str, str]]:
    """Where the map names one of `dtypes`, and which one."""
    named = frozenset(dtypes)
    return [(f"{rule.where}.dtype", rule.dtype) for rule in wanted.rules if rule.dtype in named]


def of_another(wanted: PrecisionMap, name: str, weights: str) -> str:
    """A sentence for a map that was found for other weights than `weights`, those of the model `name`; empty where it
    was found for these, or does not say."""
    if not wanted.weights or wanted.weights == weights:
        return ""
    return (
        f"The map was found for {wanted.model or 'a model'} with the weights {wanted.weights}, and {name} with the "
        f"weights {weights} runs: which layers lose most may differ. {_AGAIN}"
    )


def of_settings(settings: Iterable[config.PrecisionRule], where: str = "kvCache.precision") -> PrecisionMap:
    """The rules of an engine's configuration; raises as `parse` does."""
    problems: list[errors.Problem] = []
    values = [
        {
            "layers": rule.layers.split(","),
            "heads": None if rule.heads is None else rule.heads.split(","),
            "kind": rule.kind,
            "dtype": rule.dtype,
        }
        for rule in settings
    ]
    rules = tuple(_rules(values, where, problems))
    if problems:
        raise errors.ConfigError(problems)
    return PrecisionMap(where, rules)


def to_settings(wanted: PrecisionMap) -> tuple[config.PrecisionRule, ...]:
    """The same rules as an engine's configuration has them: `of_settings` gives them back."""
    return tuple(
        config.PrecisionRule(
            layers=",".join(map(str, rule.layers)),
            heads=None if rule.heads is None else ",".join(map(str, rule.heads)),
            kind=rule.kinds[0] if len(rule.kinds) == 1 else BOTH,
            dtype=rule.dtype,
        )
        for rule in wanted.rules
    )


def segments_of(wanted: PrecisionMap, target: Target) -> Segments:
    """The dtype of every segment that a rule names. Raises `ConfigError` with every problem."""
    problems: list[errors.Problem] = []
    owners: dict[tuple[int, int, page_layout.Kind], Rule] = {}
    for rule in wanted.rules:
        problems += _wrong_places(rule, target, wanted.model)
        clash: tuple[tuple[int, int, page_layout.Kind], Rule] | None = None
        for place in _places(rule, target.shape):
            if place in owners:
                clash = clash or (place, owners[place])
            owners.setdefault(place, rule)
        if clash is not None:
            (layer, head, kind), other = clash
            remedy = f"{other.where} names it too. Take it out of one of the two"
            seen = f"layer {layer}, head {head}, {kind}"
            problems.append(errors.Problem(rule.where, seen, "segments that no other rule names", remedy))
    found = {place: _dtype(rule, target) for place, rule in owners.items()}
    if not problems:
        problems += _pointless(wanted, found, target)
    if problems:
        raise errors.ConfigError(problems)
    return found


def to_mapping(segments: Segments, shape: page_layout.KVShape) -> dict[str, Any]:
    """The shortest `rules` that say `segments`; `parse` and `segments_of` give the same back."""
    grouped: dict[tuple[str, tuple[int, ...], str], list[int]] = {}
    for dtype in sorted(set(segments.values())):
        for layer in range(shape.num_layers):
            keys, values = (
                {head for head in range(shape.num_kv_heads) if segments.get((layer, head, kind)) == dtype}
                for kind in page_layout.KINDS
            )
            for kind, heads in ((BOTH, keys & values), ("k", keys - values), ("v", values - keys)):
                if heads:
                    grouped.setdefault((dtype, tuple(sorted(heads)), kind), []).append(layer)
    rules = []
    for (dtype, heads_of, kind), layers in sorted(grouped.items(), key=lambda item: (item[1], item[0])):
        rule: dict[str, Any] = {"layers": _ranges(layers)}
        if len(heads_of) < shape.num_kv_heads:
            rule["heads"] = _ranges(heads_of)
        rules.append({**rule, "kind": kind, "dtype": dtype})
    return {"rules": rules}


def _rules(values: object, where: str, problems: list[errors.Problem]) -> Iterator[Rule]:
    if values is None:
        return
    if not isinstance(values, list):
        problems.append(errors.Problem(where, values, "a list of rules", "Begin each with `- layers: ...`"))
        return
    for index, value in enumerate(values):
        rule = _rule(value, f"{where}[{index}]", problems)
        if rule is not None:
            yield rule


def _rule(value: object, where: str, problems: list[errors.Problem]) -> Rule | None:
    if not isinstance(value, Mapping):
        problems.append(errors.Problem(where, value, f"a mapping with {', '.join(_RULE_KEYS)}"))
        return None
    before = len(problems)
    _unknown(value, _RULE_KEYS, where, problems)
    layers = _numbers(value.get("layers"), f"{where}.layers", problems)
    given = value.get("heads")
    heads = None if given is None else _numbers(given, f"{where}.heads", problems)
    kind, dtype = value.get("kind", BOTH), value.get("dtype", AUTO)
    if kind not in _KINDS:
        problems.append(errors.Problem(f"{where}.kind", kind, "k (keys), v (values) or both"))
    if dtype != AUTO and dtype not in page_layout.KV_DTYPES:
        known = ", ".join([AUTO, *sorted(page_layout.KV_DTYPES)])
        problems.append(errors.Problem(f"{where}.dtype", dtype, f"one of {known}"))
    if len(problems) > before:
        return None
    return Rule(where, layers, heads, _KINDS[kind], dtype)


def _short_forms(values: Mapping[Any, Any], where: str, problems: list[errors.Problem]) -> Iterator[Rule]:
    if values.get("keepLayers") is not None:
        place = f"{where}.keepLayers"
        layers = _numbers(values["keepLayers"], place, problems)
        if layers:
            yield Rule(place, layers, None, _KINDS[BOTH], AUTO)
    by_layer = values.get("keepHeads")
    if by_layer is None:
        return
    if not isinstance(by_layer, Mapping):
        expected = 'layers and their heads, such as {"7": [2]}'
        problems.append(errors.Problem(f"{where}.keepHeads", by_layer, expected))
        return
    for layer, heads in by_layer.items():
        place = f"{where}.keepHeads.{layer}"
        numbers, chosen = _numbers(layer, place, problems), _numbers(heads, place, problems)
        if numbers and chosen:
            yield Rule(place, numbers, chosen, _KINDS[BOTH], AUTO)


def _numbers(value: object, where: str, problems: list[errors.Problem]) -> tuple[int, ...]:
    """Sorted; empty when something is wrong, which is then among `problems`."""
    found: list[int] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        numbers = _range(item)
        if numbers is None:
            problems.append(errors.Problem(where, value, _NUMBERS))
            return ()
        found += numbers
    twice = sorted({number for number in found if found.count(number) > 1}) if len(found) < _MOST else []
    if twice or not found:
        problems.append(errors.Problem(where, value, f"{_NUMBERS}, each once"))
        return ()
    return tuple(sorted(found))


def _range(item: object) -> range | None:
    if isinstance(item, bool) or not isinstance(item, int | str):
        return None
    parts = _RANGE.fullmatch(str(item))
    if parts is None:
        return None
    first = int(parts[1])
    last = first if parts[2] is None else int(parts[2])
    return range(first, last + 1) if first <= last < _MOST else None


def _unknown(values: Mapping[Any, Any], known: tuple[str, ...], where: str, problems: list[errors.Problem]) -> None:
    for name in values:
        if name not in known:
            problems.append(errors.Problem(f"{where}.{name}", "this key", f"one of {', '.join(known)}"))


def _places(rule: Rule, shape: page_layout.KVShape) -> Iterator[tuple[int, int, page_layout.Kind]]:
    """Those that the model has."""
    heads = range(shape.num_kv_heads) if rule.heads is None else rule.heads
    for layer in rule.layers:
        for head in heads:
            if layer < shape.num_layers and head < shape.num_kv_heads:
                for kind in rule.kinds:
                    yield layer, head, kind


def _wrong_places(rule: Rule, target: Target, found_for: str) -> Iterator[errors.Problem]:
    """`found_for`: the model that the map names."""
    num_layers, num_heads = target.shape.num_layers, target.shape.num_kv_heads
    layers = [layer for layer in rule.layers if layer >= num_layers]
    if layers:
        named = f" ({found_for}, it says)" if found_for else ""
        remedy = f"The map is of another model{named}, or mistyped: find one with `tidemark eval sensitivity`"
        yield errors.Problem(f"{rule.where}: layers", layers, f"layers under {num_layers}", remedy)
    heads = [head for head in rule.heads or () if head >= num_heads]
    if not heads:
        return
    remedy = ""
    queries = target.num_query_heads
    if queries is not None and num_heads < queries and max(heads) < queries:
        shared = queries // num_heads
        which = ", ".join(f"{head} reads KV head {head // shared}" for head in heads)
        remedy = f"These are query heads, {shared} of which share a KV head: {which}. Name that one"
    yield errors.Problem(f"{rule.where}: heads", heads, f"KV heads under {num_heads}", remedy)


def _pointless(wanted: PrecisionMap, found: Segments, target: Target) -> Iterator[errors.Problem]:
    same = [rule for rule in wanted.rules if _dtype(rule, target) == target.dtype]
    if same:  # all of them keep one dtype, and one remedy serves them all
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        expected, remedy = "another dtype than kvCache.dtype", _instead_of_pointless(wanted, target, len(same))
        yield errors.Problem(f"{same[0].where}{others}: dtype", target.dtype, expected, remedy)
    shape = target.shape
    if len(found) == shape.num_layers * shape.num_kv_heads * len(page_layout.KINDS):
        remedy = f"Nothing is left for {target.dtype}: leave layers out of the map, or set kvCache.dtype itself"
        yield errors.Problem(wanted.where, "all layers and heads kept", "some segments without a rule", remedy)


def _instead_of_pointless(wanted: PrecisionMap, target: Target, num_rules: int) -> str:
    rules = "the rule" if num_rules == 1 else "these rules"
    named = wanted.found_for if wanted.found_for != target.dtype else ""
    if page_layout.KV_DTYPES[target.dtype].scaled:
        other = f", or set kvCache.dtype to {named}, which the map was found for" if named else ""
        return f"All other segments are {target.dtype} too, so nothing would change. Remove {rules}{other}"
    wider = f"{named}, which the map was found for" if named else "one of 8 bits"
    return f"Set kvCache.dtype to {wider}; or give {rules} another dtype, or leave the map out"


def _dtype(rule: Rule, target: Target) -> str:
    return target.keep_dtype if rule.dtype == AUTO else rule.dtype


def _ranges(numbers: Iterable[int]) -> list[int | str]:
    """[0, 3, 4, 5] -> [0, "3-5"]."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
