"""The engine process: load the model, then turn the wheel and speak with the server over one socket.

Started by `client.start` as `python -m tidemark_runtime.engine.process`, with a `Launch` on standard input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import pathlib
import signal
import sys
import time
import traceback
from typing import Any

import msgspec
import zmq

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import status
from tidemark_runtime.engine import (
    core_engine,
    followers,
    hot_settings,
    logs,
    messages,
    parent_death,
    worker_thread,
    workers,
)
from tidemark_runtime.model import sources
from tidemark_runtime.worker import accelerators, interface, selftest

HEARTBEAT_SECONDS = 1.0
"""An idle engine says so at least this often."""


class Launch(msgspec.Struct, frozen=True):
    """What the engine process is told when it starts."""

    to_engine: str
    """ZeroMQ address on which the server sends."""
    from_engine: str
    """ZeroMQ address on which the server listens."""
    parent_pid: int
    settings: dict[str, dict[str, Any]]
    """As `config_parsing.to_mapping` writes it."""
    source_kind: sources.Kind
    source_path: str
    source_name: str


class EngineProcess:
    """One socket, one wheel."""

    def __init__(self, launch: Launch, to_engine: zmq.Socket[bytes], from_engine: zmq.Socket[bytes]) -> None:
        self._launch = launch
        self._to_engine = to_engine
        self._from_engine = from_engine
        self._decoder = msgspec.msgpack.Decoder(messages.ToEngine)
        self._encoder = msgspec.msgpack.Encoder()
        self._last_sent = 0.0
        self._looked_at_kernels = 0.0
        self._kernel_paths: tuple[status.KernelPath, ...] = ()

    def run(self) -> None:
        """Load, serve until drained. Raises what loading or a step raises."""
        parsed = config_parsing.parse(self._launch.settings)
        logs.set_up(parsed.server.log_level)
        settings = accelerators.resolved(parsed)
        launch = self._launch
        source = sources.ModelSource(launch.source_kind, pathlib.Path(launch.source_path), launch.source_name)
        others = followers.Followers(settings, source, self._ranks_folder)
        worker = workers.start(settings, self._send_progress, others)
        engine = core_engine.CoreEngine(
            settings.scheduler,
            worker,
            max_context_tokens=worker.facts.max_context_tokens,
            prefix_caching=settings.kv_cache.prefix_caching,
            speculative=settings.speculative,
        )
        # What loading made stays for good: the collector need not look at it again in the middle of a step.
        gc.collect()
        gc.freeze()
        hot = hot_settings.HotSettings(settings, worker.facts, engine)
        self._send(_ready(worker.facts, settings))
        self._kernel_paths = worker.facts.kernel_paths
        while not engine.drained:
            outputs = self._receive(engine, hot)
            if engine.has_work:
                outputs += engine.step()
            self._publish(engine, outputs)
            self._tell_kernels(worker, settings.hardware)
            others.check()
        self._publish(engine, [], force=True)
        engine.close()
        others.close()

    @property
    def _ranks_folder(self) -> pathlib.Path:
        """Beside the engine's sockets, so that it goes with them whatever becomes of this process."""
        return pathlib.Path(self._launch.to_engine.removeprefix("ipc://")).parent / "ranks"

    def send_failure(self, error: BaseException) -> None:
        """The last words."""
        message = str(error) if isinstance(error, errors.TidemarkError) else f"{type(error).__name__}: {error}"
        self._send(messages.EngineFailed(message, type(error).__name__))

    def _receive(self, engine: core_engine.CoreEngine, hot: hot_settings.HotSettings) -> list[messages.SequenceOutput]:
        """Take in all that has come; with nothing to do, wait for something."""
        outputs: list[messages.SequenceOutput] = []
        if not engine.has_work and not self._to_engine.poll(int(HEARTBEAT_SECONDS * 1000)):
            return outputs
        while (frame := self._try_receive()) is not None:
            match self._decoder.decode(frame):
                case messages.Submit(requests):
                    outputs += engine.submit(requests)
                case messages.Abort(ids):
                    outputs += engine.abort(ids)
                case messages.Configure(number, settings):
                    self._send(messages.Configured(number, hot.take_over(settings)))
                case messages.ListSequences() as question:
                    self._send(engine.listing(question))
                case messages.Drain():
                    engine.drain()
        return outputs

    def _try_receive(self) -> bytes | None:
        try:
            return self._to_engine.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def _publish(
        self, engine: core_engine.CoreEngine, outputs: list[messages.SequenceOutput], *, force: bool = False
    ) -> None:
        if outputs or force or engine.has_work or time.monotonic() - self._last_sent >= HEARTBEAT_SECONDS:
            self._send(messages.StepOutputs(outputs, engine.stats()))

    def _tell_kernels(self, worker: worker_thread.Steps, hardware: config.HardwareConfig) -> None:
        """Once a second at most: a step may have taken a path that none before had. Raises as strict kernels want."""
        now = time.monotonic()
        if now - self._looked_at_kernels < HEARTBEAT_SECONDS:
            return
        self._looked_at_kernels = now
        paths = worker.facts.kernel_paths
        if paths != self._kernel_paths:
            self._kernel_paths = paths
            self._send(messages.KernelPaths(list(paths)))
            if selftest.is_strict(hardware):
                selftest.refuse(paths)

    def _send_progress(self, phase: str, fraction: float) -> None:
        self._send(messages.LoadProgress(phase, fraction))

    def _send(self, message: messages.FromEngine) -> None:
        self._from_engine.send(self._encoder.encode(message))
        self._last_sent = time.monotonic()


def _ready(facts: interface.WorkerFacts, settings: config.EngineConfig) -> messages.EngineReady:
    capacity = facts.num_pages * facts.layout.block_size
    return messages.EngineReady(
        worker={
            "kind": facts.kind,
            "device": facts.device,
            "dtype": facts.dtype,
            "kvDtype": facts.layout.dtype,
            **facts.notes,
        },
        kernel_paths=list(facts.kernel_paths),
        memory_bytes=facts.memory_bytes,
        planned_bytes=facts.planned_bytes,
        memory_limit_bytes=facts.memory_limit_bytes,
        num_pages=facts.num_pages,
        block_size=facts.layout.block_size,
        page_bytes=facts.page.total,
        max_context_tokens=facts.max_context_tokens,
        max_request_tokens=min(facts.max_context_tokens, capacity),
        shape=_shape(facts),
        page_bytes_by_dtype=dict(facts.page.by_dtype),
    )


def _shape(facts: interface.WorkerFacts) -> status.ModelShape | None:
    if facts.shape is None:
        return None
    token_bytes = facts.page.total / facts.layout.block_size
    return status.ModelShape(**dataclasses.asdict(facts.shape), kv_token_bytes=token_bytes)


def main() -> int:
    """Exit code 0 after a drain, 1 after a failure (which has been sent to the server, too)."""
    # Ctrl-C on a terminal reaches the whole process group, SIGTERM of systemd the whole service; the server decides
    # when the engine ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
    parent_death.end_with_parent(launch.parent_pid)
    context = zmq.Context()
    to_engine, from_engine = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    for socket, endpoint in ((to_engine, launch.to_engine), (from_engine, launch.from_engine)):
        socket.set_hwm(0)
        socket.connect(endpoint)
    process = EngineProcess(launch, to_engine, from_engine)
    code = 0
    try:
        process.run()
    except Exception as error:  # noqa: BLE001  the edge: whatever it was, the server must be told before we go
        process.send_failure(error)
        if not isinstance(error, errors.TidemarkError):
            traceback.print_exc()
        code = 1
    to_engine.close(linger=0)
    from_engine.close(linger=2000)
    context.term()
    # Not sys.exit: a worker thread in the middle of a step must not hold the process back.
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
