"""What tests of an engine in a process of its own wait for."""

from __future__ import annotations

import asyncio

from tidemark_runtime.engine import client, messages

START_SECONDS = 200.0
"""On a busy machine; less than ten otherwise."""


async def ready(engine: client.EngineClient) -> messages.EngineReady:
    """What it says of itself once it has loaded."""
    async with asyncio.timeout(START_SECONDS):
        while engine.ready is None:
            assert engine.failure is None, engine.failure
            await asyncio.sleep(0.02)
    return engine.ready


async def whole(queue: asyncio.Queue[messages.SequenceOutput]) -> tuple[list[int], messages.SequenceOutput]:
    """All tokens of a request, and its last output, behind which there is nothing."""
    tokens: list[int] = []
    while True:
        output = await queue.get()
        tokens += output.token_ids
        if output.finish is not None:
            assert queue.empty()
            return tokens, output
