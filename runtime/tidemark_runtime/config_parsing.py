"""From a mapping (a YAML file, flags) to an `EngineConfig`: every problem at once, each with its key and remedy."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import posixpath
import re
import sys
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from tidemark_runtime import config, errors

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(|[kKMGT]i?)B?")
_UNITS = {
    "": 1,
    **{f"{unit}{i}": (1024 if i else 1000) ** power for power, unit in enumerate("KMGT", start=1) for i in ("", "i")},
}
_UNITS["k"] = 1000

_EXPONENT = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
_INTEGER_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One setting with all its names: `scheduler.maxNumSeqs`, `--max-num-seqs`."""

    section: str
    name: str
    key: str
    setting: config.Setting
    type: Any
    default: Any


def camel(name: str) -> str:
    """`max_num_seqs` -> `maxNumSeqs`."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def entries() -> tuple[Entry, ...]:
    """Every setting, in the order of the sections and fields in `config`."""
    return _entries()


@functools.cache
def _entries() -> tuple[Entry, ...]:
    # Resolving type hints takes most of the time of a parse, and a module's classes do not change.
    return tuple(_make_entries())


def _make_entries() -> Iterator[Entry]:
    for section, cls in _sections().items():
        yield from _entries_of(cls, section, camel(section))


def _entries_of(cls: type[Any], section: str, prefix: str) -> Iterator[Entry]:
    """The settings of one section, or of one item of a list, whose keys begin with `prefix` and a dot."""
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        setting = item.metadata["setting"]
        yield Entry(section, item.name, f"{prefix}.{camel(item.name)}", setting, hints[item.name], item.default)


def item_class(entry: Entry) -> type[Any] | None:
    """The dataclass of each item where the setting is a list of small sections, else None."""
    item = _item_type(entry.type)
    return item if dataclasses.is_dataclass(item) and isinstance(item, type) else None


def item_entries(entry: Entry, position: int | None = None) -> tuple[Entry, ...]:
    """What an item of such a list may hold: `overload.degrade[1].maxTokens`; without a position `...degrade[].`."""
    cls = item_class(entry)
    at = "" if position is None else position
    return () if cls is None else tuple(_entries_of(cls, entry.section, f"{entry.key}[{at}]"))


def parse(values: Mapping[str, Any], *, textual: Collection[str] = ()) -> config.EngineConfig:
    """`values` maps camelCase sections to camelCase keys, as in a configuration file. `textual`: keys whose values come
    from a command line, where numbers and truth values are texts; anywhere else `"64"` is no number.

    Raises `ConfigError` with every unknown key and wrong value. A null value means the default.
    """
    problems: list[errors.Problem] = []
    sections = {camel(name): name for name in _sections()}
    parsed: dict[str, dict[str, Any]] = {name: {} for name in sections.values()}
    for section, settings in values.items():
        if section not in sections:
            problems.append(_unknown(str(section), sections))
        elif settings is not None:
            parsed[sections[section]] = _parse_section(section, settings, entries(), problems, textual)
    if problems:
        raise errors.ConfigError(problems)
    made = config.EngineConfig(**{name: cls(**parsed[name]) for name, cls in _sections().items()})
    contradictions = list(_contradictions(made))
    if contradictions:
        raise errors.ConfigError(contradictions)
    return made


def _parse_section(
    name: str,
    settings: Any,
    known: Iterable[Entry],
    problems: list[errors.Problem],
    textual: Collection[str] = (),
) -> dict[str, Any]:
    """Field names and values of the section that is called `name`; what is wrong goes to `problems`."""
    if not isinstance(settings, Mapping):
        problems.append(errors.Problem(name, settings, "a mapping of settings"))
        return {}
    by_key = {entry.key: entry for entry in known}
    parsed = {}
    for key, value in settings.items():
        full = f"{name}.{key}"
        if full not in by_key:
            problems.append(_unknown(full, by_key))
        elif value is not None:
            try:
                parsed[by_key[full].name] = convert(by_key[full], value, textual=full in textual)
            except errors.ConfigError as error:
                problems.extend(error.problems)
    return parsed


def _contradictions(made: config.EngineConfig) -> Iterator[errors.Problem]:
    """What is wrong with settings that are right one by one."""
    scheduler, kv_cache = made.scheduler, made.kv_cache
    if scheduler.max_num_batched_tokens < scheduler.max_num_seqs:
        yield errors.Problem(
            "scheduler.maxNumBatchedTokens",
            scheduler.max_num_batched_tokens,
            f"at least scheduler.maxNumSeqs, {scheduler.max_num_seqs}",
            "Otherwise running sequences would not all get a token in a step. Raise it, or lower maxNumSeqs.",
        )
    if kv_cache.precision and kv_cache.precision_file is not None:
        yield errors.Problem(
            "kvCache.precisionFile",
            kv_cache.precision_file,
            "either kvCache.precision or kvCache.precisionFile",
            "Remove one of them.",
        )
    yield from _kv_contradictions(kv_cache)
    yield from _line_contradictions(scheduler)
    for position, rule in enumerate(made.overload.degrade):
        yield from _rule_contradictions(rule, f"overload.degrade[{position}]", made.server)
    yield from _speculative_contradictions(made.speculative)
    yield from _server_contradictions(made.server)
    if kv_cache.memory is not None and kv_cache.num_pages is not None:
        yield errors.Problem(
            "kvCache.numPages",
            kv_cache.num_pages,
            "either kvCache.memory or kvCache.numPages",
            "Both say how large the slab is. Remove one.",
        )


def lossy_problem(key: str, dtype: str) -> errors.Problem:
    """`dtype` loses too much to be chosen without saying so."""
    remedy = (
        f"{config.LOSSY_COST}. Measure your own model: tidemark eval MODEL --kv-cache-dtype {dtype}. "
        "Then choose int8, or accept the loss: kvCache.allowLossy: true (--allow-lossy true)"
    )
    return errors.Problem(key, dtype, f"{dtype} only together with kvCache.allowLossy: true", remedy)


def _kv_contradictions(kv_cache: config.KVCacheConfig) -> Iterator[errors.Problem]:
    named = {"kvCache.dtype": kv_cache.dtype}
    named |= {f"kvCache.precision[{index}].dtype": rule.dtype for index, rule in enumerate(kv_cache.precision)}
    if not kv_cache.allow_lossy:
        for key, dtype in named.items():
            if dtype in config.LOSSY_KV_DTYPES:
                yield lossy_problem(key, dtype)
    may_be_quantized = kv_cache.precision_file is not None or set(named.values()) & set(config.QUANTIZED_KV_DTYPES)
    if kv_cache.scales_file is not None and not may_be_quantized:
        yield errors.Problem(
            "kvCache.scalesFile",
            kv_cache.scales_file,
            f"none with kvCache.dtype {kv_cache.dtype}",
            "Nothing is quantized, so nothing has a scale. Set kvCache.dtype to the dtype of the file, or remove it.",
        )


def _line_contradictions(scheduler: config.SchedulerConfig) -> Iterator[errors.Problem]:
    queue, preempt, hysteresis = (
        scheduler.queue_watermark,
        scheduler.preempt_watermark,
        scheduler.watermark_hysteresis,
    )
    if queue > preempt:
        yield errors.Problem(
            "scheduler.queueWatermark",
            queue,
            f"at most scheduler.preemptWatermark, {_plain(preempt)}",
            "New requests wait before running ones are preempted. Lower it, or raise preemptWatermark.",
        )
    if hysteresis > queue:
        yield errors.Problem(
            "scheduler.watermarkHysteresis",
            hysteresis,
            f"at most scheduler.queueWatermark, {_plain(queue)}",
            "Below an empty slab use cannot fall, and the line would never be left. Lower it.",
        )
    soft = scheduler.max_concurrency_soft
    if soft is not None and soft > scheduler.max_num_seqs:
        yield errors.Problem(
            "scheduler.maxConcurrencySoft",
            soft,
            f"at most scheduler.maxNumSeqs, {scheduler.max_num_seqs}",
            "More can never run. Lower it, or raise maxNumSeqs, which needs a restart.",
        )


def _rule_contradictions(rule: config.DegradeRule, key: str, server: config.ServerConfig) -> Iterator[errors.Problem]:
    if not rule.keys and rule.max_priority is None:
        expected = "keys or maxPriority, so that it says whose requests it is about"
        yield errors.Problem(key, "neither", expected, f"maxPriority: {config.PRIORITY_MAX} means everybody's.")
    if rule.max_tokens is None and rule.max_requests is None:
        yield errors.Problem(key, "neither", "maxTokens or maxRequests, so that it has an effect", "Set one, or both.")
    if rule.keys and server.api_keys_file is None:
        expected = "no names, because server.apiKeysFile is not set"
        remedy = "Only a key file gives names. Set it, or select by maxPriority."
        yield errors.Problem(f"{key}.keys", list(rule.keys), expected, remedy)


def _speculative_contradictions(speculative: config.SpeculativeConfig) -> Iterator[errors.Problem]:
    method, draft = speculative.method, speculative.draft_model
    if method == "draft" and draft is None:
        expected = "a model, because speculative.method is draft"
        yield errors.Problem("speculative.draftModel", None, expected, "Name it, or choose the method ngram.")
    elif method != "draft" and draft is not None:
        expected = f"nothing with speculative.method {method}"
        yield errors.Problem("speculative.draftModel", draft, expected, "Remove it, or choose the method draft.")


def _server_contradictions(server: config.ServerConfig) -> Iterator[errors.Problem]:
    if (server.tls_cert_file is None) != (server.tls_key_file is None):
        missing = "server.tlsCertFile" if server.tls_cert_file is None else "server.tlsKeyFile"
        other = "server.tlsKeyFile" if server.tls_cert_file is None else "server.tlsCertFile"
        expected = f"a PEM file, because {other} is set"
        yield errors.Problem(missing, None, expected, "TLS needs both. Set both, or neither.")
    if server.lame_duck_seconds > server.drain_seconds:
        yield errors.Problem(
            "server.lameDuckSeconds",
            server.lame_duck_seconds,
            f"at most server.drainSeconds, {_plain(server.drain_seconds)}",
            "Both count from SIGTERM, and after drainSeconds the process ends. Lower it, or raise drainSeconds.",
        )


def convert(entry: Entry, value: Any, *, textual: bool) -> Any:
    """`value` as the setting's type; `textual`: a text may stand for a number or a truth value, as on a command line.
    Raises `ConfigError`."""
    setting = entry.setting
    wanted = _without_none(entry.type)
    if _item_type(wanted) is not None:
        return _convert_list(entry, value)
    expected = describe(entry)
    wrong = errors.ConfigError([errors.Problem(entry.key, value, expected)])
    if setting.choices or wanted is str:
        if not isinstance(value, str) or (setting.choices and value not in setting.choices):
            raise wrong
        return value
    if wanted is bool:
        truth = {"true": True, "false": False}.get(value, value) if textual and isinstance(value, str) else value
        if not isinstance(truth, bool):
            raise wrong
        return truth
    number = _number(value, size=setting.size, textual=textual)
    if number is None:
        raise _no_number(entry, value)
    if wanted is int and abs(number) > _INTEGER_MAX and setting.maximum is None:
        limited = f"{expected} and at most {_INTEGER_MAX}"
        raise errors.ConfigError([errors.Problem(entry.key, value, limited)])
    if not _is_usable(number, wanted) or (wanted is int and number != int(number)):
        raise wrong
    if (setting.minimum is not None and number < setting.minimum) or (
        setting.maximum is not None and number > setting.maximum
    ):
        raise wrong
    return int(number) if wanted is int else float(number)


def _is_usable(number: int | float, wanted: type) -> bool:
    """Finite; a whole number in 64 bits, and one of 400 digits would not even become a float."""
    if wanted is int:
        return abs(number) <= _INTEGER_MAX
    return abs(number) <= sys.float_info.max


def _no_number(entry: Entry, value: Any) -> errors.ConfigError:
    """Where the text is a number, what is wrong are only the quotation marks."""
    quoted = isinstance(value, str) and _number(value, size=entry.setting.size, textual=True) is not None
    remedy = "Write it as a number: without quotation marks." if quoted else ""
    return errors.ConfigError([errors.Problem(entry.key, value, describe(entry), remedy)])


def is_exponent(text: str) -> bool:
    """True for `1e9`: a number in JSON, but YAML 1.1 takes it for text unless it has a dot and a sign, `1.0e+9`."""
    return _EXPONENT.fullmatch(text) is not None


def _convert_list(entry: Entry, value: Any) -> tuple[Any, ...]:
    """A list of texts, or of small sections; every problem of every item, each named by its position."""
    if not isinstance(value, list | tuple):
        raise errors.ConfigError([errors.Problem(entry.key, value, describe(entry))])
    problems: list[errors.Problem] = []
    cls = item_class(entry)
    items: list[Any] = []
    for position, item in enumerate(value):
        at = f"{entry.key}[{position}]"
        if cls is not None:
            items.append(_parse_section(at, item, item_entries(entry, position), problems))
        elif isinstance(item, str) and item:
            items.append(item)
        else:
            problems.append(errors.Problem(at, item, "a text that is not empty"))
    if problems:
        raise errors.ConfigError(problems)
    return tuple(items) if cls is None else tuple(cls(**settings) for settings in items)


def describe(entry: Entry) -> str:
    """What the setting accepts, as a phrase for messages, `--help` and the docs table."""
    setting = entry.setting
    if _item_type(entry.type) is not None:
        if item_class(entry) is None:
            return "a list of texts"
        return f"a list of mappings with {', '.join(camel(item.name) for item in item_entries(entry))}"
    if setting.choices:
        return f"one of {', '.join(setting.choices)}"
    if _without_none(entry.type) is str:
        return "text"
    if _without_none(entry.type) is bool:
        return "true or false"
    noun = (
        "a size in bytes such as 8Gi"
        if setting.size
        else ("a whole number" if _without_none(entry.type) is int else "a number")
    )
    if setting.minimum is not None and setting.maximum is not None:
        return f"{noun} from {_plain(setting.minimum)} to {_plain(setting.maximum)}"
    return f"{noun} of at least {_plain(setting.minimum)}" if setting.minimum is not None else noun


def to_mapping(parsed: config.EngineConfig) -> dict[str, dict[str, Any]]:
    """The inverse of `parse`: camelCase sections and keys, every setting present, plain values only."""
    return {camel(section): _plain_section(getattr(parsed, section)) for section in _sections()}


def _plain_section(section: Any) -> dict[str, Any]:
    return {camel(item.name): _plain_value(getattr(section, item.name)) for item in dataclasses.fields(section)}


def _plain_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    return _plain_section(value) if dataclasses.is_dataclass(value) else value


_PLACES: Mapping[str, tuple[str, ...]] = {
    "model": ("source",),
    "server": ("host", "port", "apiKeysFile", "adminTokenFile", "tlsCertFile", "tlsKeyFile"),
}


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


def _plain(number: float) -> str:
    """A bound as a person writes it: 1048576, not 1.04858e+06."""
    return str(int(number)) if number == int(number) else str(number)


@functools.cache
def _sections() -> dict[str, type[Any]]:
    hints = typing.get_type_hints(config.EngineConfig)
    return {item.name: hints[item.name] for item in dataclasses.fields(config.EngineConfig)}


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _item_type(hint: Any) -> Any:
    """`T` of `tuple[T, ...]`; None for what is no list."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None


def _number(value: Any, *, size: bool, textual: bool) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    if size:
        match = _SIZE.fullmatch(value.strip())
        return float(match[1]) * _UNITS[match[2]] if match and match[2] in _UNITS else None
    if not textual and not is_exponent(value):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _unknown(key: str, known: Iterable[str]) -> errors.Problem:
    """Only names are compared: keys of one section all look alike for its sake."""
    section, _, name = key.rpartition(".")
    names: dict[str, str] = {}
    for full in known:
        owner, _, last = full.rpartition(".")
        if owner == section or last not in names:
            names[last] = full
    near = difflib.get_close_matches(name, names, n=1)
    remedy = f"Did you mean {names[near[0]]}?" if near else "Remove it."
    return errors.Problem(key, "this key", "a known setting", remedy)
