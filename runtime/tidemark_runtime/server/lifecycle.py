"""From a listening socket to an exit code: load, serve, drain; and end by itself when the engine ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol

import uvicorn

from tidemark_runtime import errors
from tidemark_runtime.contract import reasons
from tidemark_runtime.engine import client, messages
from tidemark_runtime.server import app, context, protocol
from tidemark_runtime.text import text_model

_log = logging.getLogger(__name__)

WATCH_SECONDS = 0.1
"""How often the engine is looked at while nothing else happens."""
QUIET_SECONDS = 0.3
"""Nothing must run for so long before the end: a connection accepted last may not have sent its request yet."""
ENGINE_END_SECONDS = 10
"""How long an engine without work may take to end by itself; then it is killed."""
LAST_WORDS_SECONDS = 5
"""At the end, how long answers that are already made may take to reach slow clients."""
KEEP_ALIVE_SECONDS = 75

EXIT_OK, EXIT_FAILED, EXIT_WRONG_SETTING, EXIT_INTERRUPTED = 0, 1, 2, 130


class Announcer(Protocol):
    """Tells the person who started it what happens."""

    def loading(self, progress: messages.LoadProgress) -> None: ...

    def ready(self) -> None: ...

    def draining(self, num_requests: int, seconds: float) -> None: ...

    def failed(self, reason: reasons.Reason, message: str) -> None: ...


class Lifecycle:
    """One run of the server. `start_engine` and `load_text` begin at once and are waited for side by side."""

    def __init__(
        self,
        shared: context.Context,
        start_engine: Callable[[], Awaitable[client.Engine]],
        load_text: Callable[[], text_model.TextModel],
        announcer: Announcer,
    ) -> None:
        self._shared = shared
        self._start_engine = start_engine
        self._load_text = load_text
        self._announcer = announcer
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()

    async def run(self, listener: socket.socket) -> int:
        """Serves until a signal, or the engine's end; returns the exit code."""
        tls = self._shared.certificate.context if self._shared.certificate is not None else None
        server = _HttpServer(_http_config(app.build(self._shared), tls))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        try:
            await self._load_and_watch(serving)
            if serving.done():
                message = f"the HTTP server has ended: {serving.exception() or 'nobody asked it to'}"
                return self._fail(reasons.Reason.ENGINE_FAILED, message)
            return await self._end(server)
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)
            server.should_exit = True
            server.force_exit = self._stop_now.is_set()
            await asyncio.gather(serving, return_exceptions=True)
            if self._shared.engine is not None:
                await self._shared.engine.close()
            self._shared.pool.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """As SIGTERM does: drain and end."""
        self._stop.set()

    def interrupt(self) -> None:
        """As Ctrl-C does: drain and end; the second time, end now."""
        (self._stop_now if self._stop.is_set() else self._stop).set()

    async def _load_and_watch(self, serving: asyncio.Task[None]) -> None:
        """Returns when it is time to end."""
        loading = asyncio.create_task(self._load())
        announced = False
        seen: messages.LoadProgress | None = None
        try:
            while not self._stop.is_set() and self._shared.failure is None and not serving.done():
                self._shared.refresh_files()
                progress = self._shared.engine.progress if self._shared.engine is not None else None
                if not announced and progress is not None and progress != seen:
                    seen = progress
                    self._announcer.loading(progress)
                if not announced and self._shared.ready is not None:
                    announced = True
                    self._announcer.ready()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), WATCH_SECONDS)
        finally:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)

    async def _load(self) -> None:
        try:
            engine = await self._start_engine()
            app.attach(self._shared, engine)
            self._shared.text = await asyncio.to_thread(self._load_text)
        except (errors.TidemarkError, OSError) as error:
            self._shared.load_failure, self._shared.load_failure_kind = str(error), type(error).__name__
        except Exception as error:  # noqa: BLE001  the edge: whatever it was, a server that never becomes ready must end
            _log.exception("loading failed")
            self._shared.load_failure = f"{type(error).__name__}: {error}"

    async def _end(self, server: _HttpServer) -> int:
        if self._shared.failure is not None:
            return self._fail(self._shared.failure_reason, self._shared.failure)
        self._shared.draining = True
        seconds = self._shared.config.server.drain_seconds
        self._announcer.draining(len(self._shared.generations), seconds)
        finished = await self._drain(server)
        self._shared.closed = True
        if self._shared.failure is not None:
            return self._fail(self._shared.failure_reason, self._shared.failure)
        if finished and self._shared.engine is not None:
            await self._shared.engine.drain(ENGINE_END_SECONDS)
        if not finished:
            _log.warning("drain ended early unfinished_requests=%d", self._shared.num_active)
            for work in list(self._shared.generations):
                work.cancel(errors.Draining("The server is shutting down and ended this request."))
        return EXIT_INTERRUPTED if self._stop_now.is_set() else EXIT_OK

    async def _drain(self, server: _HttpServer) -> bool:
        """Serve what arrives: for the lame-duck time on new connections too, then on those that are open; until nothing
        runs. False when the drain time, or patience, ran out with requests unfinished."""
        shared, now = self._shared, self._shared.clock
        if shared.ready is None:
            return True
        settings, started = shared.config.server, now()
        quiet_since: float | None = None
        while shared.failure is None:
            age = now() - started
            if age >= settings.lame_duck_seconds:
                server.stop_listening()
                quiet_since = None if shared.num_active else (quiet_since if quiet_since is not None else now())
                if quiet_since is not None and now() - quiet_since >= QUIET_SECONDS:
                    return True
            # An engine that stands still is not waited for: that would only keep a new one away.
            if age >= settings.drain_seconds or self._stop_now.is_set() or shared.stalled:
                return not shared.num_active
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_now.wait(), WATCH_SECONDS)
        return False

    def _fail(self, reason: reasons.Reason, message: str) -> int:
        """Whoever still waits gets an error (the engine's client sees to that); then the process ends.

        Some settings are known to be wrong only once the model is: they end it as those do that are seen before."""
        self._announcer.failed(reason, message)
        return EXIT_WRONG_SETTING if reason is reasons.Reason.CONFIG_INVALID else EXIT_FAILED


class _HttpServer(uvicorn.Server):
    """uvicorn, without its own idea of signals, and with a listener that can close before its connections do."""

    def stop_listening(self) -> None:
        """Refuse new connections from now on; those that are open stay. Idempotent."""
        for server in self.servers:
            server.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _http_config(application: Callable[..., Any], tls: ssl.SSLContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        ssl_context_factory=None if tls is None else lambda *_: tls,
        http=protocol.Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=LAST_WORDS_SECONDS,
    )
