"""Dataclasses as plain data for JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from tidemark_runtime import config_parsing


def plain(value: Any) -> Any:
    """Fields in their order, with camelCase keys. Keys of mappings are data and stay as they are."""
    if dataclasses.is_dataclass(value):
        return {config_parsing.camel(item.name): plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
