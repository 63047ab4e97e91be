"""The engine as the HTTP process sees it. Imports no torch: the engine itself is another process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import zmq
import zmq.asyncio

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.engine import answers, messages
from tidemark_runtime.model import sources
from tidemark_runtime.worker import cpu


class Engine(Protocol):
    """What the server asks of an engine; `EngineClient` is the real one, tests write their own."""

    @property
    def ready(self) -> messages.EngineReady | None:
        """None while loading."""
        ...

    @property
    def progress(self) -> messages.LoadProgress | None:
        """The last word from loading."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine is gone; None while it lives. Set once, never cleared."""
        ...

    @property
    def failure_kind(self) -> str | None:
        """Name of the exception class that `failure` is the text of, as `contract.reasons` knows it."""
        ...

    @property
    def stats(self) -> messages.EngineStats: ...

    @property
    def progress_age_seconds(self) -> float:
        """Seconds since the engine last finished a step or said that it is idle; 0 while loading."""
        ...

    def observe(self, observer: Callable[[messages.EngineStats], None]) -> None:
        """Call `observer` with every stats message."""
        ...

    def submit(self, requests: Sequence[messages.EngineRequest]) -> dict[str, asyncio.Queue[messages.SequenceOutput]]:
        """Hand over requests that stand or fall together; one queue each, whose last item has `finish`.

        Raises `EngineDead`. If the engine dies later, each queue gets a FAILED output.
        """
        ...

    def abort(self, ids: Sequence[str]) -> None:
        """Free what these requests hold, within a step. Unknown and finished ids are ignored; idempotent."""
        ...

    async def configure(self, settings: config.EngineConfig) -> None:
        """Let the engine work by the hot settings of `settings`; returns when it has confirmed that the next step does.

        Raises `ConfigError` when the engine refuses (nothing has changed then), `EngineDead`. Takes as long as a step.
        """
        ...

    async def sequences(self, most: int) -> messages.SequenceList:
        """The `most` largest sequences, as they are between two steps. Raises `EngineDead`. Takes as long as a step."""
        ...

    async def drain(self, timeout_seconds: float) -> bool:
        """Refuse new requests, wait until the running ones have ended; False when time ran out."""
        ...

    async def close(self) -> None:
        """End the engine process; returns when it is gone."""
        ...


class EngineClient:
    """The real engine: starts the process, speaks with it, notices when it ends."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        to_engine: zmq.Socket[bytes],
        from_engine: zmq.asyncio.Socket,
        folder: str,
    ) -> None:
        self._process = process
        self._to_engine = to_engine
        self._from_engine = from_engine
        self._folder = folder
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages.FromEngine)
        self._queues: dict[str, asyncio.Queue[messages.SequenceOutput]] = {}
        self._observers: list[Callable[[messages.EngineStats], None]] = []
        self._configured = answers.Answers[messages.Configured]()
        self._listed = answers.Answers[messages.SequenceList]()
        self._ready: messages.EngineReady | None = None
        self._progress: messages.LoadProgress | None = None
        self._failure: str | None = None
        self._failure_kind: str | None = None
        self._stats = messages.EngineStats()
        self._last_progress = time.monotonic()
        self._ending = False
        self._num_killed = cpu.num_killed_for_memory()
        self.ended = asyncio.Event()
        """Set when the process is gone, whatever the reason."""
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    @property
    def ready(self) -> messages.EngineReady | None:
        return self._ready

    @property
    def progress(self) -> messages.LoadProgress | None:
        return self._progress

    @property
    def failure(self) -> str | None:
        return self._failure

    @property
    def failure_kind(self) -> str | None:
        return self._failure_kind

    @property
    def stats(self) -> messages.EngineStats:
        return self._stats

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def progress_age_seconds(self) -> float:
        return time.monotonic() - self._last_progress if self._ready else 0.0

    def observe(self, observer: Callable[[messages.EngineStats], None]) -> None:
        self._observers.append(observer)

    def submit(self, requests: Sequence[messages.EngineRequest]) -> dict[str, asyncio.Queue[messages.SequenceOutput]]:
        self._check_alive()
        queues = {request.id: asyncio.Queue[messages.SequenceOutput]() for request in requests}
        self._queues.update(queues)
        self._send(messages.Submit(list(requests)))
        return queues

    def abort(self, ids: Sequence[str]) -> None:
        live = [request_id for request_id in ids if request_id in self._queues]
        if live and not self.ended.is_set():
            self._send(messages.Abort(live))

    async def configure(self, settings: config.EngineConfig) -> None:
        self._check_alive()
        document = config_parsing.to_mapping(settings)
        answer = await self._configured.ask(lambda number: self._send(messages.Configure(number, document)))
        problems = answer.problems
        if problems:
            raise errors.ConfigError(
                [errors.Problem(each.key, errors.Seen(each.seen), each.expected, each.remedy) for each in problems]
            )

    async def sequences(self, most: int) -> messages.SequenceList:
        self._check_alive()
        return await self._listed.ask(lambda number: self._send(messages.ListSequences(number, most)))

    async def drain(self, timeout_seconds: float) -> bool:
        self._ending = True
        if self._ready is None:
            return True
        if not self.ended.is_set():
            self._send(messages.Drain())
        try:
            await asyncio.wait_for(self.ended.wait(), timeout_seconds)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._ending = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await self.ended.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._to_engine.close(linger=0)
        self._from_engine.close(linger=0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _check_alive(self) -> None:
        if self._failure is not None or self.ended.is_set():
            raise errors.EngineDead(self._failure or "the engine process has ended")
        if self._ready is None:
            raise errors.EngineDead("the engine is still loading its model")

    def _send(self, message: messages.ToEngine) -> None:
        # Queued without waiting (there is no high-water mark), so this never blocks the loop. A socket of its own:
        # sending on the one that asyncio reads from would swallow its edge-triggered wake-up.
        self._to_engine.send(self._encoder.encode(message), zmq.NOBLOCK)

    async def _read(self) -> None:
        while True:
            self._take(self._decoder.decode(await self._from_engine.recv()))

    def _take(self, message: messages.FromEngine) -> None:
        self._last_progress = time.monotonic()
        match message:
            case messages.StepOutputs(outputs, stats):
                self._stats = stats
                for output in outputs:
                    queue = self._queues.get(output.id)
                    if queue is not None:
                        queue.put_nowait(output)
                        if output.finish is not None:
                            del self._queues[output.id]
                for observer in self._observers:
                    observer(stats)
            case messages.LoadProgress():
                self._progress = message
            case messages.EngineReady():
                self._ready = message
            case messages.KernelPaths(paths):
                if self._ready is not None:
                    self._ready = msgspec.structs.replace(self._ready, kernel_paths=paths)
            case messages.Configured(number):
                self._configured.take(number, message)
            case messages.SequenceList(number):
                self._listed.take(number, message)
            case messages.EngineFailed(text, kind):
                self._failure, self._failure_kind = text, kind

    async def _watch(self) -> None:
        code = await self._process.wait()
        await self._take_what_is_left()
        if self._failure is None and (code != 0 or not self._ending):
            for_memory = code == -signal.SIGKILL and cpu.num_killed_for_memory() > self._num_killed
            self._failure = _KILLED_FOR_MEMORY if for_memory else describe_exit(code)
            self._failure_kind = (errors.OutOfMemory if for_memory else errors.EngineDead).__name__
        message = self._failure or "the engine was stopped"
        for request_id, queue in self._queues.items():
            queue.put_nowait(messages.SequenceOutput(request_id, (), (), messages.FinishReason.FAILED, message=message))
        self._queues.clear()
        for waiting in (self._configured, self._listed):
            waiting.fail(errors.EngineDead(message))
        self.ended.set()

    async def _take_what_is_left(self) -> None:
        """The last words of a process may still lie in the socket when its end is noticed."""
        self._tasks[0].cancel()
        await asyncio.gather(self._tasks[0], return_exceptions=True)
        while await self._from_engine.poll(LAST_WORDS_MILLISECONDS):
            self._take(self._decoder.decode(await self._from_engine.recv()))


LAST_WORDS_MILLISECONDS = 50


async def start(settings: config.EngineConfig, source: sources.ModelSource) -> EngineClient:
    """Start the engine process for a model; returns at once, while it loads. Its log goes to standard error."""
    folder = tempfile.mkdtemp(prefix="tidemark-")
    endpoints = {"to_engine": f"ipc://{folder}/to-engine", "from_engine": f"ipc://{folder}/from-engine"}
    context = zmq.asyncio.Context.instance()
    to_engine: zmq.Socket[bytes] = zmq.Context.shadow(context).socket(zmq.PUSH)
    from_engine = context.socket(zmq.PULL)
    for socket, endpoint in zip((to_engine, from_engine), endpoints.values(), strict=True):
        socket.set_hwm(0)
        socket.bind(endpoint)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidemark_runtime.engine.process", stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None  # noqa: S101  asked for in the line above
    launch = {
        **endpoints,
        "parent_pid": os.getpid(),
        "settings": config_parsing.to_mapping(settings),
        "source_kind": source.kind,
        "source_path": str(source.path),
        "source_name": source.name,
    }
    process.stdin.write(msgspec.json.encode(launch))
    process.stdin.write_eof()
    return EngineClient(process, to_engine, from_engine, folder)


_KILLED_FOR_MEMORY = (
    "the engine process was killed because this container (its cgroup) ran out of memory; lower kvCache.memory or "
    "kvCache.swapSpace, or raise the memory limit"
)


def describe_exit(code: int) -> str:
    """Why the engine process is gone, as far as its exit code (negative: the signal) tells, and what to do."""
    if code == -signal.SIGKILL:
        return (
            "the engine process was killed (SIGKILL): most often the system or the container ran out of memory; "
            "lower kvCache.memory or raise the memory limit"
        )
    if code == -signal.SIGBUS:
        return (
            "the engine process ended by signal SIGBUS: most often a file of a model was cut off or written over while "
            "it was served, since weights are read where the file is mapped; restore the file, and bring a new one "
            "under another name, or by renaming"
        )
    if code < 0:
        return f"the engine process ended by signal {signal.Signals(-code).name}"
    return f"the engine process ended with exit code {code}"
