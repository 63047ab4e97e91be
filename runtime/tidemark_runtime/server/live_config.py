"""Changing the configuration of a running server: compared with what runs, confirmed by the engine, then in force.

One change at a time, all or nothing. The engine goes first, since only it can refuse; when it has confirmed that its
next step is made with the new settings, this side takes them over in the same turn of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import admin, settings
from tidemark_runtime.engine import client
from tidemark_runtime.server import context

_log = logging.getLogger(__name__)

CONFIRM_SECONDS = 20.0
"""How long a change waits for the engine, which answers between two steps; a long prompt's step may take some."""


class LiveConfig:
    """The one that changes `shared.config`."""

    def __init__(self, shared: context.Context, *, confirm_seconds: float = CONFIRM_SECONDS) -> None:
        self._shared = shared
        self._confirm_seconds = confirm_seconds
        self._applying: asyncio.Task[admin.ConfigApplied] | None = None

    def in_force(self) -> admin.ConfigInForce:
        shared = self._shared
        document = config_parsing.to_mapping(shared.config)
        return admin.ConfigInForce(shared.config_hash, shared.generation, shared.restart_hash, document)

    async def put(self, values: Mapping[str, Any]) -> admin.ConfigApplied:
        """Let `values`, a whole document, be in force. The same as before changes nothing.

        Raises `ConfigError` with every problem, `RestartRequired`, and, with nothing changed, `Loading`, `Draining` or
        `EngineDead`. `NotConfirmed` when the engine takes long: the change then takes effect when it confirms.
        """
        await self._settle()
        new = config_parsing.parse(config_parsing.with_places(values, self._shared.config))
        changed = config_parsing.changes(self._shared.config, new)
        restart = {key: pair for key, pair in changed.items() if key not in settings.HOT_KEYS}
        if restart:
            raise errors.RestartRequired(restart)
        if not changed:
            self._shared.metrics.config_reload("unchanged")
            return admin.ConfigApplied(self._shared.config_hash, self._shared.generation, {})
        if self._shared.draining:
            raise errors.Draining("The server is shutting down; its configuration stays as it is.")
        engine = self._shared.serving().engine
        task = self._applying = asyncio.create_task(self._apply(engine, new, changed))
        # An error that comes when nobody waits any more has been logged by then, and is not to be warned about.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        await self._confirmed(task)
        return task.result()

    async def _settle(self) -> None:
        """Until no change is under way. Raises `NotConfirmed`."""
        while self._applying is not None and not self._applying.done():
            await self._confirmed(self._applying)

    async def _confirmed(self, task: asyncio.Task[admin.ConfigApplied]) -> None:
        # Not cancelled when time runs out: the engine has been told, and this side must follow when it confirms.
        done, _ = await asyncio.wait({task}, timeout=self._confirm_seconds)
        if not done:
            raise errors.NotConfirmed(
                f"The engine has not confirmed new settings within {self._confirm_seconds:g} s: it is in the middle of "
                "a long step. They take effect when it does; send them again to hear of it."
            )

    async def _apply(
        self, engine: client.Engine, new: config.EngineConfig, changed: dict[str, tuple[Any, Any]]
    ) -> admin.ConfigApplied:
        shared = self._shared
        try:
            await engine.configure(new)
        except errors.TidemarkError as error:
            _log.warning("configuration not applied reason=%s", error)
            raise
        shared.take_over(new)
        shared.metrics.config_reload("applied")
        listed = " ".join(f"{key}={old!r}->{value!r}" for key, (old, value) in changed.items())
        _log.info("configuration applied hash=%s generation=%d %s", shared.config_hash, shared.generation, listed)
        return admin.ConfigApplied(shared.config_hash, shared.generation, changed)
