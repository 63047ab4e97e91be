"""Which fields of the spec are settings of the engine, and what a change of one does to an engine that runs.

A field says it beside itself (`base.field(engine=...)`); hot or restart is read from the engine's own declaration.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pydantic
from pydantic.fields import FieldInfo

from tidemark_operator.api import describe, service
from tidemark_runtime.contract import settings

HOT = "A change takes effect without a restart."
RESTART = "A change restarts the engine."


@dataclass(frozen=True, slots=True)
class Link:
    """One field whose value the engine gets as it is."""

    path: str
    """Below `spec`: `watermarks.queue`."""
    key: str
    """The engine's: `scheduler.queueWatermark`."""
    size: bool
    """True: the value is a size such as 8Gi."""
    attributes: tuple[str, ...]
    """`path` as Python spells it."""

    def value(self, spec: service.Spec) -> Any:
        """What the spec says, or the default."""
        found: Any = spec
        for name in self.attributes:
            found = getattr(found, name)
        return found

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]


@functools.cache
def every() -> tuple[Link, ...]:
    """Of all fields, in their order. Raises `LookupError` for a setting that the engine does not have."""
    return tuple(_links_of(service.Spec, "", ()))


def effect(info: FieldInfo) -> str:
    """A sentence, or nothing for a field that is no setting of the engine."""
    key = _key(info)
    return "" if not key else HOT if is_hot(key) else RESTART


def is_hot(key: str) -> bool:
    """Whether pods stay when the engine's setting `key` is changed in the spec, as `settings.restart_hash` has it."""
    return key in settings.HOT_KEYS - settings.START_KEYS


def _links_of(cls: type[pydantic.BaseModel], prefix: str, parents: tuple[str, ...]) -> Iterator[Link]:
    sizes = {entry.key: entry.setting.size for entry in settings.entries()}
    for name, info in cls.model_fields.items():
        path, attributes = f"{prefix}{info.alias}", (*parents, name)
        hint, _ = describe.strip(info.annotation)
        if key := _key(info):
            if key not in sizes:
                raise LookupError(f"{path} names {key}, which is no setting of the engine. Correct it.")
            yield Link(path, key, sizes[key], attributes)
        elif describe.is_model(hint):
            yield from _links_of(hint, f"{path}.", attributes)


def _key(info: FieldInfo) -> str:
    extra: dict[str, Any] = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return str(extra.get("engine", ""))
