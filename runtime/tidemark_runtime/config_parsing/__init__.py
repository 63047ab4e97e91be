"""From a mapping (a YAML file, flags) to an `EngineConfig`: every problem at once, each with its key and remedy."""

from __future__ import annotations

from tidemark_runtime.config_parsing.catalogue import Entry, camel, describe, entries, item_class, item_entries
from tidemark_runtime.config_parsing.comparing import changes, config_hash, to_mapping, with_places
from tidemark_runtime.config_parsing.contradictions import lossy_problem
from tidemark_runtime.config_parsing.conversion import is_exponent
from tidemark_runtime.config_parsing.parsing import parse

__all__ = [
    "Entry",
    "camel",
    "changes",
    "config_hash",
    "describe",
    "entries",
    "is_exponent",
    "item_class",
    "item_entries",
    "lossy_problem",
    "parse",
    "to_mapping",
    "with_places",
]
