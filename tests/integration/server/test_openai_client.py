"""The official `openai` client, unchanged, over loopback against the scripted engine."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest

HI = [{"role": "user", "content": "Hi"}]
PATIENCE_SECONDS = 60.0
"""For what is due at once, on a busy machine."""


async def test_chat(scripted):
    answer = await scripted.chat.completions.create(model="M", messages=HI, max_completion_tokens=40)
    assert answer.choices[0].message.content == "Hello, world!"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 14


async def test_chat_streamed_with_usage(scripted):
    stream = await scripted.chat.completions.create(
        model="M", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    pieces = [chunk.choices[0].delta.content for chunk in chunks[:-1]]
    assert "".join(piece for piece in pieces if piece) == "Hello, world!"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 14


async def test_completions_streamed_with_n_and_stop(scripted):
    stream = await scripted.completions.create(model="M", prompt="Hi", n=2, stop=["world"], stream=True)
    joined = {0: "", 1: ""}
    async for chunk in stream:
        joined[chunk.choices[0].index] += chunk.choices[0].text
    assert joined == {0: "Hello, ", 1: "Hello, "}


async def test_logprobs_are_parsed(scripted):
    answer = await scripted.chat.completions.create(model="M", messages=HI, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert bytes(byte for token in content for byte in token.bytes) == b"Hello, world!"
    assert [len(token.top_logprobs) for token in content] == [2] * 13
    plain = await scripted.completions.create(model="M", prompt="Hi", logprobs=2)
    assert "".join(plain.choices[0].logprobs.tokens) == "Hello, world!"


async def test_each_error_is_the_clients_own_exception(scripted, engine, fakes):
    with pytest.raises(openai.BadRequestError) as caught:
        await scripted.chat.completions.create(model="M", messages=HI, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as caught:
        await scripted.chat.completions.create(model="other", messages=HI)
    assert caught.value.code == "model_not_found"
    engine.refuse = fakes.messages.RejectReason.QUEUE_FULL
    with pytest.raises(openai.RateLimitError):
        await scripted.chat.completions.create(model="M", messages=HI)
    engine.failure = "gone"
    with pytest.raises(openai.InternalServerError):
        await scripted.chat.completions.create(model="M", messages=HI)
    engine.failure = None


async def test_an_error_in_the_middle_of_a_stream_is_an_exception(scripted, engine, fakes):
    engine.end_early = (3, fakes.messages.FinishReason.FAILED, "the step failed")
    stream = await scripted.chat.completions.create(model="M", messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="the step failed"):
        async for _ in stream:
            pass


async def test_a_service_tier_is_accepted_and_answered(scripted, engine):
    answer = await scripted.chat.completions.create(model="M", messages=HI, service_tier="priority")
    assert (answer.service_tier, engine.submitted[-1].priority) == ("priority", 1)
    stream = await scripted.chat.completions.create(model="M", messages=HI, service_tier="flex", stream=True)
    assert {chunk.service_tier async for chunk in stream} == {"flex"}
    assert engine.submitted[-1].priority == -1
    headers = {"x-tidemark-priority": "7"}
    raw = await scripted.chat.completions.with_raw_response.create(model="M", messages=HI, extra_headers=headers)
    assert (raw.headers["x-tidemark-priority"], engine.submitted[-1].priority) == ("7", 7)


async def test_the_client_waits_as_long_as_it_is_told_and_says_that_it_is_a_retry(scripted, engine, fakes, monkeypatch):
    """Its own idea is half a second, then one."""
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(openai._base_client.anyio, "sleep", sleep)
    engine.refuse, engine.refuse_only = fakes.messages.RejectReason.QUEUE_TIME, 2
    engine.retry_after_seconds = 1.25
    answer = await scripted.with_options(max_retries=2).chat.completions.create(model="M", messages=HI)
    assert answer.choices[0].message.content == "Hello, world!"
    assert waits == [1.25, 1.25]
    assert [request.is_retry for request in engine.submitted] == [False, True, True]


async def test_cached_tokens_are_in_its_usage(scripted, engine):
    engine.num_cached_tokens = 3
    answer = await scripted.chat.completions.create(model="M", messages=HI)
    assert answer.usage.prompt_tokens_details.cached_tokens == 3


async def test_models(scripted):
    assert [model.id async for model in scripted.models.list()] == ["M"]
    assert (await scripted.models.retrieve("M")).id == "M"


@pytest.mark.parametrize("stream", [False, True])
async def test_b011_closing_the_connection_aborts(scripted_url, engine, stream):
    engine.pause_after = 3
    async with httpx.AsyncClient() as client:
        request = asyncio.create_task(
            client.post(f"{scripted_url}/v1/completions", json={"prompt": "Hi", "n": 4, "stream": stream})
        )
        while engine.num_running != 4:
            await asyncio.sleep(0.001)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while engine.num_running:
            await asyncio.sleep(0.001)
    assert len(engine.aborted) == 4


async def test_breaking_off_a_stream_aborts(scripted, engine):
    engine.pause_after = 3
    stream = await scripted.chat.completions.create(model="M", messages=HI, stream=True)
    async for _ in stream:
        break
    await stream.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while engine.num_running:
            await asyncio.sleep(0.001)
    assert len(engine.aborted) == 1


async def test_the_connection_is_reused_after_answers_and_streams(scripted_url):
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1)) as client:
        for stream in (False, True, False):
            response = await client.post(f"{scripted_url}/v1/completions", json={"prompt": "Hi", "stream": stream})
            assert response.status_code == 200


async def test_each_event_arrives_when_it_is_made(scripted_url, engine):
    """Nothing on the way gathers events: the first ones are here while the engine still waits."""
    engine.pause_after = 2
    async with (
        httpx.AsyncClient() as client,
        client.stream("POST", f"{scripted_url}/v1/completions", json={"prompt": "Hi", "stream": True}) as response,
    ):
        lines = response.aiter_lines()
        seen = ""
        while '"text":"e"' not in seen and '"text":"He"' not in seen:
            seen += await anext(lines)
        assert engine.num_running == 1
        engine.resume.set()
        assert [line async for line in lines][-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("chunked", [False, True])
async def test_b029_a_body_over_the_limit_is_answered_at_once(scripted_url, chunked):
    body = b'{"prompt": "' + b"x" * 27_000_000 + b'"}'

    async def parts():
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    async with httpx.AsyncClient() as client:
        response = await client.post(f"{scripted_url}/v1/completions", content=parts() if chunked else body)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


async def test_b029_a_large_body_does_not_hold_up_probes_or_streams(scripted_url, engine, text, monkeypatch):
    """Tokenizing that takes long is elsewhere: the loop goes on answering. It ends when this test has had its answers,
    so a loop that waited for it would answer nothing."""
    began, release = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hold() -> None:
        began.set()
        await release.wait()

    def encode(prompt, *, add_special):
        asyncio.run_coroutine_threadsafe(hold(), loop).result(PATIENCE_SECONDS)
        return [65]

    monkeypatch.setattr(text, "encode", encode)
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        large = asyncio.create_task(client.post(f"{scripted_url}/v1/completions", json={"prompt": "x" * 5_000_000}))
        await began.wait()
        for _ in range(5):
            assert (await client.get(f"{scripted_url}/health/live")).status_code == 200
        answer = await client.post(f"{scripted_url}/v1/completions", json={"prompt": [65]})
        assert answer.status_code == 200
        assert not large.done()
        release.set()
        assert (await large).status_code == 200
