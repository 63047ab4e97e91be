"""A mapping to an `EngineConfig`: every section, then what contradicts another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidemark_runtime import config, errors
from tidemark_runtime.config_parsing import catalogue, contradictions, conversion


def parse(values: Mapping[str, Any], *, textual: Collection[str] = ()) -> config.EngineConfig:
    """`values` maps camelCase sections to camelCase keys, as in a configuration file. `textual`: keys whose values come
    from a command line, where numbers and truth values are texts; anywhere else `"64"` is no number.

    Raises `ConfigError` with every unknown key and wrong value. A null value means the default.
    """
    known = catalogue.entries()
    problems: list[errors.Problem] = []
    sections = {catalogue.camel(name): name for name in catalogue.sections()}
    parsed: dict[str, dict[str, Any]] = {name: {} for name in sections.values()}
    for section, settings in values.items():
        if section not in sections:
            problems.append(conversion.unknown(str(section), sections))
        elif settings is not None:
            parsed[sections[section]] = conversion.convert_section(section, settings, known, problems, textual)
    if problems:
        raise errors.ConfigError(problems)
    made = config.EngineConfig(**{name: cls(**parsed[name]) for name, cls in catalogue.sections().items()})
    if contradicting := list(contradictions.find(made)):
        raise errors.ConfigError(contradicting)
    return made
