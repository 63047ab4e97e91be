"""Bodies of `/admin/config`: what the operator sends and reads. The answers beside these are OpenAI's error object."""

from __future__ import annotations

from typing import Any

import msgspec


class ConfigInForce(msgspec.Struct, frozen=True, rename="camel"):
    """`GET`: 200."""

    hash: str
    generation: int
    restart_hash: str
    config: dict[str, dict[str, Any]]
    """The whole document, every setting present; sent back by `PUT` it changes nothing."""


class ConfigApplied(msgspec.Struct, frozen=True, rename="camel"):
    """`PUT`: 200. The engine has confirmed it: the next step is made with these settings."""

    hash: str
    generation: int
    changed: dict[str, tuple[Any, Any]]
    """`{"scheduler.maxQueuedRequests": [512, 64]}`: old and new value; empty when this was in force already."""


class ConfigProblem(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that is wrong with a document."""

    key: str
    seen: str
    """As Python writes it, shortened."""
    expected: str
    remedy: str = ""


class RestartChange(msgspec.Struct, frozen=True, rename="camel"):
    """A setting that only a new process can change."""

    key: str
    running: Any
    wanted: Any


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """OpenAI's error object, and every reason as data."""

    message: str
    type: str
    code: str
    """`config_invalid` or `restart_required`."""
    param: str | None = None
    problems: list[ConfigProblem] = []
    """With `config_invalid`: all of them."""
    changes: list[RestartChange] = []
    """With `restart_required`: all of them."""


class ConfigRefused(msgspec.Struct, frozen=True, rename="camel"):
    """`PUT`: 400 `config_invalid` or 409 `restart_required`. What was in force before stays in force."""

    error: Refusal
    hash: str
    """Of what is in force."""
    generation: int
