"""One client request at work: its choices, from submission to the last delta, aborted on every other way out."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from tidemark_runtime.engine import messages
from tidemark_runtime.server import choice, context, outcomes, standing, wanted
from tidemark_runtime.text import stop_strings

Item = tuple[int, messages.SequenceOutput] | Exception


class Generation:
    """Submits `n` sequences that stand or fall together and merges what comes back.

    Use as `async with`: leaving it, however, aborts what has not finished.
    """

    def __init__(
        self,
        shared: context.Context,
        serving: context.Serving,
        asked: wanted.Wanted,
        who: standing.Standing,
        arrival: float,
    ) -> None:
        """`arrival`: when the request came, by `shared.clock`."""
        self.id = uuid.uuid4().hex
        self.asked = asked
        self.who = who
        stops = stop_strings.Stops(asked.stops)
        self.choices = tuple(
            choice.Choice(index, serving.text, asked.prompts[index // asked.n], stops, asked.hidden_ids)
            for index in range(len(asked.params))
        )
        self._shared = shared
        self._engine = serving.engine
        self._arrival = arrival
        self._last_token_at = [0.0] * len(self.choices)
        self._inbox: asyncio.Queue[Item] = asyncio.Queue()
        self._error: Exception | None = None
        self._pumps: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Generation:
        """Raises `EngineDead`."""
        requests = [
            messages.EngineRequest(
                self._engine_id(index),
                list(self.asked.prompts[index // self.asked.n]),
                params,
                self.asked.deadline_seconds,
                self.who.priority,
                self.who.tenant,
                self.who.is_retry,
                self.id,
            )
            for index, params in enumerate(self.asked.params)
        ]
        queues = self._engine.submit(requests)
        self._shared.generations.add(self)
        self._shared.present.enter(self.who)
        self._shared.metrics.prompt_tokens(self.asked.num_prompt_tokens, self.who.key_name)
        self._pumps = [
            asyncio.create_task(self._pump(index, queues[request.id])) for index, request in enumerate(requests)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._abort_unfinished()
        self._shared.generations.discard(self)
        self._shared.present.leave(self.who)
        for pump in self._pumps:
            pump.cancel()

    @property
    def finished(self) -> bool:
        """True when every choice has its end."""
        return all(each.finish is not None for each in self.choices)

    @property
    def num_completion_tokens(self) -> int:
        return sum(each.num_tokens for each in self.choices)

    @property
    def num_cached_tokens(self) -> int:
        """Of each prompt once: the best its choices saw."""
        counts = [each.num_cached_tokens for each in self.choices]
        return sum(max(counts[start : start + self.asked.n]) for start in range(0, len(counts), self.asked.n))

    def cancel(self, error: Exception) -> None:
        """Abort in the engine now; whoever waits in `next` gets `error`. Idempotent, harmless at the end."""
        self._abort_unfinished()
        if self._error is None:
            self._error = error
            self._inbox.put_nowait(error)

    async def next(self) -> list[choice.Delta]:
        """What has arrived since the last call, one delta a choice; waits for at least one output.

        Raises what the engine's terminal event stands for, or what `cancel` was given.
        """
        if self._error is not None:
            raise self._error
        items = [await self._inbox.get()]
        while not self._inbox.empty():
            items.append(self._inbox.get_nowait())
        deltas = self._take(items)
        if self._error is not None and not deltas:
            raise self._error
        return list(deltas.values())

    def _take(self, items: Sequence[Item]) -> dict[int, choice.Delta]:
        deltas: dict[int, choice.Delta] = {}
        for item in items:
            if isinstance(item, Exception):
                return {}
            index, output = item
            target = self.choices[index]
            if target.finish is not None:
                continue
            error = outcomes.error_of(output)
            if error is not None:
                self._error = self._error or error
                return deltas
            before = target.num_tokens
            target.add(output, deltas.setdefault(index, choice.Delta(index)))
            self._measure(index, before, target.num_tokens)
            if target.stopped_by_text:
                self._engine.abort([self._engine_id(index)])
                self._pumps[index].cancel()
        return deltas

    def _measure(self, index: int, before: int, after: int) -> None:
        if after == before:
            return
        now = self._shared.clock()
        self._shared.metrics.tokens(after - before, self.who.key_name)
        if before == 0:
            self._shared.metrics.first_token(now - self._arrival)
        else:
            self._shared.metrics.inter_token((now - self._last_token_at[index]) / (after - before))
        self._last_token_at[index] = now

    def _abort_unfinished(self) -> None:
        unfinished = [self._engine_id(each.index) for each in self.choices if each.finish is None]
        if unfinished and self._pumps:
            self._engine.abort(unfinished)

    async def _pump(self, index: int, source: asyncio.Queue[messages.SequenceOutput]) -> None:
        while True:
            output = await source.get()
            self._inbox.put_nowait((index, output))
            if output.finish is not None:
                return

    def _engine_id(self, index: int) -> str:
        return f"{self.id}-{index}"
