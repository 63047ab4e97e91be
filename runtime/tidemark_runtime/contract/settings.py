"""The engine's settings as the operator sees them: parse, hash, and which of them are hot."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tidemark_runtime.config import LOSSY_COST, LOSSY_KV_DTYPES, Effect, EngineConfig
from tidemark_runtime.config_parsing import changes, config_hash, describe, entries, parse, to_mapping, with_places
from tidemark_runtime.errors import ConfigError

__all__ = [
    "HOT_KEYS",
    "LOSSY_COST",
    "LOSSY_KV_DTYPES",
    "START_KEYS",
    "ConfigError",
    "EngineConfig",
    "changes",
    "config_hash",
    "describe",
    "entries",
    "parse",
    "restart_hash",
    "to_mapping",
    "url_scheme",
    "with_places",
]

HOT_KEYS: frozenset[str] = frozenset(entry.key for entry in entries() if entry.setting.effect is Effect.HOT)
"""`scheduler.maxNumBatchedTokens`, ...: what a running engine takes over between two steps."""

START_KEYS: frozenset[str] = frozenset({"model.maxContextTokens"})
"""Of these, what also sizes a new process: its value at the start is the most that the process can take over later. Who
manages processes starts new ones with it, so that it always can be raised."""


def restart_hash(parsed: EngineConfig) -> str:
    """Twelve hex digits that name the settings which need a new process, and `START_KEYS`; another hot change leaves
    them as they are."""
    kept: dict[str, Any] = {
        f"{section}.{key}": value
        for section, settings in to_mapping(parsed).items()
        for key, value in settings.items()
        if f"{section}.{key}" not in HOT_KEYS - START_KEYS
    }
    canonical = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def url_scheme(parsed: EngineConfig) -> str:
    """`https` where the server has a certificate, else `http`; probes and the operator ask with the same."""
    return "http" if parsed.server.tls_cert_file is None else "https"
