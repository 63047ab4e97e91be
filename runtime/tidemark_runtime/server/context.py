"""What the routes share: the engine, the text model, the settings, the metrics. One object a server, no globals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from typing import Protocol

from tidemark_runtime import config as config_
from tidemark_runtime import config_parsing, errors
from tidemark_runtime.contract import reasons, settings
from tidemark_runtime.engine import client, logs, messages
from tidemark_runtime.server import context_limit as context_limits
from tidemark_runtime.server import counters, nvml, presence, standing, tls
from tidemark_runtime.server import keys as keys_
from tidemark_runtime.text import text_model

_log = logging.getLogger(__name__)

OFFLOAD_THREADS = 2
"""Threads for large bodies: one may be busy with a huge prompt while another serves the next."""


class Work(Protocol):
    """A client request that the engine works on."""

    id: str
    """Its sequences are called this, a hyphen and their number."""
    who: standing.Standing

    def cancel(self, error: Exception) -> None:
        """Abort it now; its client gets `error`."""
        ...


@dataclass(slots=True)
class Context:
    """Mutable, and owned by the event loop: `text` and `engine` come when they are loaded, `draining` once, `config`
    with every hot change."""

    config: config_.EngineConfig
    """What is in force now: read it anew each time, keep no part of it."""
    metrics: counters.ServerMetrics
    keys: keys_.KeyFile | None
    model_name: str
    admin_tokens: keys_.KeyFile | None = None
    certificate: tls.Certificate | None = None
    cards: nvml.Cards | None = None
    """None where nobody looks at cards."""
    engine: client.Engine | None = None
    text: text_model.TextModel | None = None
    load_failure: str | None = None
    """Why the server will never be ready; set by the lifecycle before the process ends."""
    load_failure_kind: str = ""
    """Name of the exception class of `load_failure`."""
    draining: bool = False
    """SIGTERM has come: not ready, but what still arrives is served."""
    closed: bool = False
    """Nothing is served any more: the process is about to end."""
    num_active: int = 0
    """Requests that have arrived and are not wholly answered, probes and scrapes left out."""
    clock: Callable[[], float] = time.monotonic
    started_at: float = 0.0
    """By `clock`."""
    created: int = 0
    """Unix time of the start, what `/v1/models` reports."""
    pool: futures.ThreadPoolExecutor = field(
        default_factory=lambda: futures.ThreadPoolExecutor(OFFLOAD_THREADS, thread_name_prefix="offload")
    )
    generations: set[Work] = field(default_factory=set)
    """Client requests that the engine works on now."""
    present: presence.Presence = field(default_factory=presence.Presence)
    """The same, counted by key and priority."""
    config_hash: str = ""
    restart_hash: str = ""
    generation: int = 1
    """How many configurations have been in force since the start."""
    context_limit_since: int = 0
    """Unix time at which `model.maxContextTokens` got the value it has."""

    def __post_init__(self) -> None:
        self.started_at = self.clock()
        self.created = self.context_limit_since = self.unix_time()
        self.config_hash = config_parsing.config_hash(self.config)
        self.restart_hash = settings.restart_hash(self.config)
        self.warn_of_unknown_keys()

    def take_over(self, new: config_.EngineConfig) -> None:
        """Let `new`, which the engine has confirmed, be in force on this side, too."""
        if new.model.max_context_tokens != self.config.model.max_context_tokens:
            self.context_limit_since = self.unix_time()
        self.config = new
        self.config_hash = config_parsing.config_hash(new)
        self.generation += 1
        logs.apply(new.server.log_level)
        self.warn_of_unknown_keys()

    @property
    def unknown_keys(self) -> list[str]:
        """Names in degrade rules that no API key has. Not refused: rules and key file change one after the other."""
        known = self.keys.names if self.keys is not None else frozenset()
        named = [name for rule in self.config.overload.degrade for name in rule.keys]
        return [name for name in dict.fromkeys(named) if name not in known]

    def warn_of_unknown_keys(self) -> None:
        if self.unknown_keys:
            _log.warning("overload.degrade names keys that the key file does not have names=%s", self.unknown_keys)

    @property
    def file_problem(self) -> tuple[reasons.Reason, str] | None:
        """What is wrong with a file that may change while we run, and is served from what was read before."""
        for file in (self.keys, self.admin_tokens):
            if file is not None and file.problem is not None:
                return reasons.Reason.KEYS_UNREADABLE, file.problem
        if self.certificate is not None and self.certificate.problem is not None:
            return reasons.Reason.TLS_UNREADABLE, self.certificate.problem
        return None

    def refresh_files(self) -> None:
        """Look at the files that may change, each once a second at most."""
        for file in (self.keys, self.admin_tokens, self.certificate):
            if file is not None:
                file.refresh()

    def unix_time(self) -> int:
        """Now, in whole seconds."""
        return int(time.time())

    @property
    def failure(self) -> str | None:
        """Why the engine is gone; None while all is well."""
        return self.load_failure or (self.engine.failure if self.engine is not None else None)

    @property
    def failure_reason(self) -> reasons.Reason:
        """Of `failure`, for programs."""
        if self.load_failure or self.engine is None:
            return reasons.of_error(self.load_failure_kind)
        return reasons.of_error(self.engine.failure_kind or "")

    @property
    def out_of_memory_total(self) -> int:
        """Times that memory ran out: in steps, in this process, and as what ended the engine."""
        in_steps = self.engine.stats.out_of_memory_total if self.engine is not None else 0
        ended_it = self.failure is not None and self.failure_reason is reasons.Reason.OUT_OF_MEMORY
        return in_steps + self.metrics.num_out_of_memory + ended_it

    @property
    def ready(self) -> messages.EngineReady | None:
        """What the engine said when it became ready; None while it, or the tokenizer, is still loading."""
        if self.engine is None or self.text is None:
            return None
        return self.engine.ready

    @property
    def context_limit(self) -> context_limits.ContextLimit | None:
        """How long requests may become now; None while the model is loading."""
        ready = self.engine.ready if self.engine is not None else None
        return None if ready is None else self._context_limit(ready)

    def _context_limit(self, ready: messages.EngineReady) -> context_limits.ContextLimit:
        return context_limits.in_force(self.config.model, ready, self.context_limit_since)

    @property
    def stalled(self) -> bool:
        """True when there is work and the engine has made no step for `stall_seconds`."""
        if self.engine is None or self.engine.ready is None:
            return False
        stats = self.engine.stats
        has_work = bool(self.generations) or stats.requests_running + stats.requests_waiting > 0
        return has_work and self.engine.progress_age_seconds > self.config.server.stall_seconds

    def serving(self) -> Serving:
        """The parts that only exist when requests can be served.

        Raises `EngineDead`, `Draining`, or `Loading`.
        """
        if self.failure is not None:
            raise errors.EngineDead(self.failure)
        if self.closed:
            raise errors.Draining("The server is shutting down. Try again, another replica will answer.")
        ready = self.ready
        if ready is None or self.engine is None or self.text is None:
            raise Loading("The model is still loading. Try again in a moment.")
        return Serving(self.engine, self.text, self._context_limit(ready))


class Loading(errors.EngineError):
    """503: not ready yet."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Engine, tokenizer and limits, all present, as they are now."""

    engine: client.Engine
    text: text_model.TextModel
    limit: context_limits.ContextLimit


def served_name(parsed: config_.EngineConfig) -> str:
    """What clients call the model: the configured name, or the source's last part without `.gguf`."""
    if parsed.model.name:
        return parsed.model.name
    return parsed.model.source.rstrip("/").rsplit("/", 1)[-1].removesuffix(".gguf") or "model"
