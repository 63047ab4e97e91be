"""An engine that says what the test scripted, in this process, and a tokenizer whose tokens are bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import step_plan
from tidemark_runtime.engine import messages

END, BEGIN = 256, 257
CONTEXT_TOKENS = 2048


class ByteText:
    """256 byte tokens, an end token and a begin token that `encode` writes first."""

    vocab_size = 258
    end_ids = frozenset({END})
    bos_id = BEGIN
    special_ids = frozenset({END, BEGIN})
    drops_leading_space = False

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return [BEGIN] * add_special + list(text.encode())

    def encode_chat(self, messages: Sequence[Mapping[str, object]]) -> list[int]:
        """The template writes the begin token itself, so nobody else may."""
        text = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return [BEGIN, *text.encode()]

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = True) -> str:
        return bytes(token_id for token_id in token_ids if token_id < 256).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else self.token_text(token_id).encode()

    def token_text(self, token_id: int) -> str:
        return {END: "<end>", BEGIN: "<begin>"}.get(token_id) or f"<{token_id}>"


def ready(**changes: object) -> messages.EngineReady:
    values: dict[str, object] = {
        "worker": {"kind": "fake", "device": "cpu", "dtype": "float32", "kvDtype": "float16"},
        "kernel_paths": [
            status.KernelPath("attention", "cpu-c", "cpu-c", "float16", status.SelfTest.OK, 1e-6, 1e-4),
            status.KernelPath("linear", "torch", "torch", "float32"),
        ],
        "memory_bytes": {"weights": 1000, "kv": 2560},
        "planned_bytes": {"weights": 1000, "kv": 2560, "activations": 100},
        "num_pages": 10,
        "block_size": 256,
        "page_bytes": 256,
        "max_context_tokens": CONTEXT_TOKENS,
        "max_request_tokens": CONTEXT_TOKENS,
        "shape": status.ModelShape(30, 3, 64, 1000, 1.0),
        "page_bytes_by_dtype": {"float16": 256},
    }
    return messages.EngineReady(**(values | changes))


class FakeEngine:
    """`script` maps a request to the tokens it would generate; then the end token comes, or `max_tokens`."""

    def __init__(self, script: Callable[[messages.EngineRequest], Sequence[int]] | None = None) -> None:
        self.ready: messages.EngineReady | None = ready()
        self.progress: messages.LoadProgress | None = None
        self.failure: str | None = None
        self.failure_kind: str | None = None
        self.stats = messages.EngineStats()
        self.progress_age_seconds = 0.0
        self.script = script or (lambda request: list(b"Hello, world!"))
        self.tokens_per_output = 1
        self.pause_after: int | None = None
        """Each sequence waits for `resume` after so many tokens."""
        self.resume = asyncio.Event()
        self.refuse: messages.RejectReason | None = None
        self.refuse_only: int | None = None
        """So many requests are refused, then no more."""
        self.retry_after_seconds = 0.0
        """What refusals and early ends carry."""
        self.num_cached_tokens = 0
        """What the first output of each sequence says."""
        self.end_early: tuple[int, messages.FinishReason, str] | None = None
        """After so many tokens: this end, with this message."""
        self.submitted: list[messages.EngineRequest] = []
        self.aborted: list[str] = []
        self.configured: list[config.EngineConfig] = []
        self.refuse_settings: list[errors.Problem] = []
        self.may_confirm = asyncio.Event()
        """Settings are confirmed when this is set: between two steps."""
        self.may_confirm.set()
        self.listed = messages.SequenceList(0, 0, 0, 0, 0, 0, 0, [], [])
        """The answer to `sequences`."""
        self.num_listings = 0
        self.may_list = asyncio.Event()
        """It answers when this is set: between two steps."""
        self.may_list.set()
        self.drained = self.closed = False
        self.drain_result = True
        self._observers: list[Callable[[messages.EngineStats], None]] = []
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def num_running(self) -> int:
        return len(self._running)

    def observe(self, observer: Callable[[messages.EngineStats], None]) -> None:
        self._observers.append(observer)

    def tell(self, stats: messages.EngineStats) -> None:
        self.stats = stats
        for observer in self._observers:
            observer(stats)

    def submit(self, requests: Sequence[messages.EngineRequest]) -> dict[str, asyncio.Queue[messages.SequenceOutput]]:
        if self.failure is not None:
            raise errors.EngineDead(self.failure)
        self.submitted += requests
        queues = {request.id: asyncio.Queue() for request in requests}
        for request in requests:
            queue = queues[request.id]
            if self.refuse is not None and self.refuse_only != 0:
                self.refuse_only = None if self.refuse_only is None else self.refuse_only - 1
                end = (messages.FinishReason.REJECTED, "refused: 9 of 8", self.refuse)
                queue.put_nowait(_end(request.id, *end, retry_after_seconds=self.retry_after_seconds))
            else:
                self._running[request.id] = asyncio.create_task(self._run(request, queue))
        return queues

    def abort(self, ids: Sequence[str]) -> None:
        for request_id in ids:
            task = self._running.pop(request_id, None)
            if task is not None:
                task.cancel()
                self.aborted.append(request_id)

    def die(self, message: str) -> None:
        """As a crash: nothing more comes but the failure."""
        self.failure, self.failure_kind = message, errors.EngineDead.__name__
        self.end_early = (0, messages.FinishReason.FAILED, message)
        self.resume.set()

    async def configure(self, settings: config.EngineConfig) -> None:
        await self.may_confirm.wait()
        if self.failure is not None:
            raise errors.EngineDead(self.failure)
        if self.refuse_settings:
            raise errors.ConfigError(self.refuse_settings)
        self.configured.append(settings)

    async def sequences(self, most: int) -> messages.SequenceList:
        self.num_listings += 1
        await self.may_list.wait()
        if self.failure is not None:
            raise errors.EngineDead(self.failure)
        return self.listed

    async def drain(self, timeout_seconds: float) -> bool:
        self.drained = True
        while self._running and self.drain_result:
            await asyncio.sleep(0)
        return self.drain_result

    async def close(self) -> None:
        self.closed = True

    async def _run(self, request: messages.EngineRequest, queue: asyncio.Queue[messages.SequenceOutput]) -> None:
        ids, finish = self._tokens(request)
        position = 0
        while True:
            if self.pause_after is not None and position >= self.pause_after:
                await self.resume.wait()
            if self.end_early is not None and position >= self.end_early[0]:
                queue.put_nowait(_end(request.id, *self.end_early[1:], retry_after_seconds=self.retry_after_seconds))
                break
            some = ids[position : position + self.tokens_per_output]
            num_cached = self.num_cached_tokens if position == 0 else 0
            position += len(some)
            is_last = position >= len(ids)
            queue.put_nowait(_output(request, some, finish if is_last else None, num_cached))
            if is_last:
                break
            await asyncio.sleep(0)
        self._running.pop(request.id, None)

    def _tokens(self, request: messages.EngineRequest) -> tuple[list[int], messages.FinishReason]:
        params = request.params
        ids: list[int] = []
        for token_id in (*self.script(request), *([END] * params.max_tokens)):
            ids.append(token_id)
            if token_id in params.stop_token_ids and not params.ignore_stop_tokens:
                return ids, messages.FinishReason.STOP
            if len(ids) == params.max_tokens:
                break
        return ids, messages.FinishReason.LENGTH


def _output(
    request: messages.EngineRequest, ids: Sequence[int], finish: messages.FinishReason | None, num_cached: int
) -> messages.SequenceOutput:
    stopped_by = ids[-1] if finish is messages.FinishReason.STOP else None
    logprobs = tuple(_logprobs(token_id, request.params.num_logprobs) for token_id in ids)
    return messages.SequenceOutput(request.id, tuple(ids), logprobs, finish, stopped_by, num_cached_tokens=num_cached)


def _logprobs(token_id: int, count: int | None) -> step_plan.TokenLogprobs | None:
    """The most likely ones are the tokens before the chosen one, so the chosen one is never among them."""
    if count is None:
        return None
    others = tuple((token_id - step - 1) % 256 for step in range(count))
    return step_plan.TokenLogprobs(-1.5, others, tuple(-0.25 * (step + 1) for step in range(count)))


def _end(
    request_id: str,
    finish: messages.FinishReason,
    message: str,
    reject: messages.RejectReason | None = None,
    *,
    retry_after_seconds: float = 0.0,
) -> messages.SequenceOutput:
    return messages.SequenceOutput(request_id, (), (), finish, None, reject, message, retry_after_seconds)
