"""A real engine process with KV memory in 4 bits that was accepted by name, and with scales from a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import client, messages
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import fixed_scales, page_layout

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(300)]

START_SECONDS = 240.0
"""On a busy machine; less than ten otherwise."""
SHAPE = page_layout.KVShape(30, 3, 64)
PROMPT = list(range(500, 540))
NUM_TOKENS = 8

Start = Callable[[Path, dict[str, Any]], Coroutine[Any, Any, client.EngineClient]]


@pytest_asyncio.fixture(loop_scope="module")
async def start() -> AsyncIterator[Start]:
    opened: list[client.EngineClient] = []

    async def begin(model: Path, kv_cache: dict[str, Any]) -> client.EngineClient:
        settings = {
            "model": {"source": str(model), "maxContextTokens": 256},
            "scheduler": {"maxNumSeqs": 2, "maxNumBatchedTokens": 64},
            "kvCache": {"numPages": 32, **kv_cache},
            "hardware": {"threads": 1},
        }
        made = await client.start(config_parsing.parse(settings), sources.resolve(str(model), Path()))
        opened.append(made)
        async with asyncio.timeout(START_SECONDS):
            while made.ready is None and made.failure is None:
                await asyncio.sleep(0.02)
        return made

    yield begin
    for one in opened:
        await one.close()


async def answer(engine: client.EngineClient) -> list[int]:
    parameters = sampling.SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_stop_tokens=True)
    queue = engine.submit([messages.EngineRequest("a", PROMPT, parameters)])["a"]
    tokens: list[int] = []
    while True:
        output = await queue.get()
        tokens += output.token_ids
        if output.finish is not None:
            return tokens


def scales_file(folder: Path, model: Path, **changes: Any) -> Path:
    """Scales that no head of this model exceeds by far."""
    places = {
        (layer, head, kind): 0.2
        for layer in range(SHAPE.num_layers)
        for head in range(SHAPE.num_kv_heads)
        for kind in page_layout.KINDS
    }
    weights = identity.of(sources.resolve(str(model), Path()))
    found = fixed_scales.FixedScales("", "smollm2-135m", weights, "int8", SHAPE, 3000, places)
    file = folder / "scales.yaml"
    file.write_text(yaml.safe_dump({**fixed_scales.to_mapping(found), **changes}), encoding="utf-8")
    return file


async def test_4_bits_serve_when_they_were_accepted_by_name(start: Start, smollm2_path: Path) -> None:
    engine = await start(smollm2_path, {"dtype": "int4", "allowLossy": True})
    assert engine.ready is not None, engine.failure
    assert engine.ready.page_bytes == 180 * 16 * 40
    assert engine.ready.page_bytes_by_dtype == {"int4": engine.ready.page_bytes}
    assert engine.ready.worker["lossy"].startswith("int4 for 100% of the KV memory, by kvCache.allowLossy. ")
    tokens = await answer(engine)
    assert len(tokens) == NUM_TOKENS
    assert await answer(engine) == tokens


async def test_scales_of_a_file_save_4_bytes_a_token_and_head(start: Start, smollm2_path: Path, tmp_path: Path) -> None:
    file = scales_file(tmp_path, smollm2_path)
    engine = await start(smollm2_path, {"dtype": "int8", "scalesFile": str(file)})
    assert engine.ready is not None, engine.failure
    assert engine.ready.page_bytes == 180 * 16 * 64
    assert engine.ready.worker["scales"].startswith(f"fixed for 180 heads, found on 3000 tokens, by {file}")
    assert "lossy" not in engine.ready.worker
    assert len(await answer(engine)) == NUM_TOKENS


async def test_scales_of_other_weights_end_the_start_with_the_file_and_what_to_do(
    start: Start, smollm2_path: Path, tmp_path: Path
) -> None:
    file = scales_file(tmp_path, smollm2_path, weights="0" * 16)
    engine = await start(smollm2_path, {"dtype": "int8", "scalesFile": str(file)})
    assert engine.ready is None
    assert f"{file}: got scales of smollm2-135m with the weights {'0' * 16}" in str(engine.failure)
    assert "tidemark eval calibrate" in str(engine.failure)
