"""What only shows with the real engine behind the server: clients that leave, overload, a full pool, a stuck step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import httpx
import live
import psutil
import pytest

from tidemark_operator import cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COMPLETIONS = "/v1/completions"
PATIENCE_SECONDS = 60.0
"""For what is due at once, on a busy machine."""
GREEDY = {"prompt": "The three largest rivers of Europe are", "temperature": 0, "ignore_eos": True}
ONE_THREAD = ("--threads", "1")
"""Two threads that wait for each other at every operation crawl on a machine whose cores are busy otherwise."""
STORY = {"prompt": "Write a very long story.", "max_tokens": 1800, "ignore_eos": True}


@pytest.fixture(scope="module")
def few_places(smollm2_path, tmp_path_factory) -> Iterator[live.Server]:
    """Two run, eight wait; a step that takes four seconds counts as stuck; and it tells all it does."""
    flags = ["--max-num-seqs", "2", "--max-queued-requests", "8", "--stall-seconds", "4", "--log-level", "debug"]
    with live.serving(tmp_path_factory.mktemp("few-places"), str(smollm2_path), *flags, *ONE_THREAD) as server:
        yield server


@pytest.fixture(scope="module")
def small_pool(smollm2_path, tmp_path_factory) -> Iterator[live.Server]:
    """512 tokens of KV memory, a quarter of what one request may have by the context length."""
    flags = ["--num-pages", "32", "--max-context-tokens", "2048", "--max-num-seqs", "8", "--log-level", "error"]
    with live.serving(tmp_path_factory.mktemp("small-pool"), str(smollm2_path), *flags, *ONE_THREAD) as server:
        yield server


def complete(url: str, **fields) -> httpx.Response:
    return httpx.post(url + COMPLETIONS, json=GREEDY | fields, timeout=120, verify=live.CERTIFICATES)


def solo(url: str, **fields) -> str:
    return str(complete(url, **fields).json()["choices"][0]["text"])


def status(url: str) -> dict:
    return dict(httpx.get(f"{url}/status", timeout=10, verify=live.CERTIFICATES).json())


async def idle(url: str) -> None:
    """The baseline: nothing runs, nothing waits, no page is held."""
    async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(verify=live.CERTIFICATES) as client:
        while True:
            seen = (await client.get(f"{url}/status")).json()
            if not (seen["queue"]["running"] or seen["queue"]["waiting"] or seen["memory"]["pagesUsed"]):
                return
            await asyncio.sleep(0.02)


def counted(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics", timeout=10, verify=live.CERTIFICATES).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def events(response: httpx.Response) -> AsyncIterator[dict]:
    async for line in response.aiter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


async def streamed(url: str, began: asyncio.Event | None = None, **fields) -> str:
    """A whole streamed text; sets `began` with its first piece."""
    text = ""
    body = GREEDY | {"stream": True} | fields
    async with (
        httpx.AsyncClient(timeout=120, verify=live.CERTIFICATES) as client,
        client.stream("POST", url + COMPLETIONS, json=body) as response,
    ):
        async for event in events(response):
            text += event["choices"][0]["text"]
            if began is not None:
                began.set()
    return text


def resident_bytes(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_memory_after_some_requests(live_server):
    for n in (1, 4):
        assert complete(live_server.url, max_tokens=16, n=n).status_code == 200
    http_process = psutil.Process(live_server.process.pid)
    (engine,) = http_process.children()
    assert not any("torch" in mapped.path for mapped in http_process.memory_maps())
    assert resident_bytes(http_process) < 200 * 2**20
    assert resident_bytes(http_process) + resident_bytes(engine) < 1.2 * 2**30


async def test_b013_all_choices_of_a_client_that_leaves_are_gone(base_url):
    before = counted(base_url, 'tidemark_requests_total{outcome="aborted"')
    body = GREEDY | {"n": 4, "stream": True, "max_tokens": 800, "temperature": 1}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", base_url + COMPLETIONS, json=body) as response,
    ):
        await anext(events(response))
    await idle(base_url)
    assert counted(base_url, 'tidemark_requests_total{outcome="aborted"') == before + 1


async def test_b013_choices_that_end_at_different_lengths(base_url):
    fields = {"prompt": "Once upon a time", "n": 3, "temperature": 1, "seed": 5, "max_tokens": 24, "ignore_eos": False}
    first = complete(base_url, **fields, stop=None).json()
    word = first["choices"][1]["text"].split()[3]
    fields["stop"] = [word]
    whole = complete(base_url, **fields).json()
    texts, ends = ["", "", ""], [[], [], []]
    usage = None
    body = GREEDY | fields | {"stream": True, "stream_options": {"include_usage": True}}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream("POST", base_url + COMPLETIONS, json=body) as response,
    ):
        async for event in events(response):
            usage = event.get("usage", usage)
            for choice in event["choices"]:
                texts[choice["index"]] += choice["text"]
                assert not ends[choice["index"]], "nothing comes after a choice's final chunk"
                ends[choice["index"]] += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert [[choice["finish_reason"]] for choice in whole["choices"]] == ends
    assert ends[1] == ["stop"]
    assert len({len(text) for text in texts}) > 1
    assert usage["prompt_tokens"] == whole["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    assert usage["prompt_tokens"] == complete(base_url, **fields | {"n": 1}).json()["usage"]["prompt_tokens"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]


BESIDE = [
    {"temperature": 1e-5},
    {"temperature": 1e-40},
    {"temperature": 2, "repetition_penalty": 0.01},
    {"top_p": 1e-300, "temperature": 1},
    {"min_p": 1, "temperature": 1},
    {"logit_bias": {"5": -100, "6": 100}, "temperature": 1},
    {"repetition_penalty": 100, "presence_penalty": 2, "frequency_penalty": -2},
    {"logprobs": 20, "n": 3},
]


async def test_b015_a_greedy_companion_is_equal_to_solo(base_url):
    alone = solo(base_url, max_tokens=64)
    began = asyncio.Event()
    companion = asyncio.create_task(streamed(base_url, began, max_tokens=64))
    await began.wait()
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as client:
        for raw in ("NaN", "Infinity", "-Infinity", "1e999", '"NaN"', "-0.1"):
            for field in ("temperature", "top_p", "min_p"):
                body = f'{{"prompt":"Hi","max_tokens":2,"{field}":{raw}}}'
                response = await client.post(COMPLETIONS, content=body)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == field
        beside = [client.post(COMPLETIONS, json={"prompt": "Hi", "max_tokens": 4} | fields) for fields in BESIDE]
        assert [response.status_code for response in await asyncio.gather(*beside)] == [200] * len(BESIDE)
    assert await companion == alone
    await idle(base_url)


@contextlib.asynccontextmanager
async def reverse_proxy(url: str) -> AsyncIterator[str]:
    """Passes bytes on, and ends on one side what ended on the other: what any proxy does."""
    target = urlsplit(url)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(target.hostname, target.port)
        await asyncio.gather(pipe(reader, upstream_writer), pipe(upstream_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("stream", [False, True])
async def test_b011_a_client_behind_a_proxy_that_leaves_is_noticed(base_url, stream):
    before = counted(base_url, 'tidemark_requests_total{outcome="aborted"')
    async with reverse_proxy(base_url) as url, httpx.AsyncClient(timeout=60) as client:
        request = asyncio.create_task(client.post(url + COMPLETIONS, json=STORY | {"stream": stream}))
        while not (await asyncio.to_thread(status, base_url))["queue"]["running"]:
            await asyncio.sleep(0.05)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        await idle(base_url)
    assert counted(base_url, 'tidemark_requests_total{outcome="aborted"') == before + 1


async def close_early(url: str, body: bytes, seconds: float) -> None:
    target = urlsplit(url)
    _, writer = await asyncio.open_connection(target.hostname, target.port)
    writer.write(
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (COMPLETIONS.encode(), len(body)) + body
    )
    await asyncio.sleep(seconds)
    writer.transport.abort()  # a reset, the rudest way


async def test_b055_streams_closed_at_random_moments(base_url):
    chance = random.Random(55)
    alone = solo(base_url, max_tokens=48)
    began = asyncio.Event()
    companion = asyncio.create_task(streamed(base_url, began, max_tokens=48))
    await began.wait()
    places = asyncio.Semaphore(32)

    async def one(number: int, seconds: float) -> None:
        body = {"prompt": f"Number {number}", "max_tokens": 3, "stream": number % 4 != 0, "n": 1 + number % 2}
        async with places:
            await close_early(base_url, json.dumps(body).encode(), seconds)

    await asyncio.gather(*(one(number, chance.uniform(0, 0.05)) for number in range(200)))
    assert await companion == alone
    await idle(base_url)
    assert solo(base_url, max_tokens=48) == alone


async def test_b029_a_large_body_holds_up_neither_probes_nor_streams(base_url):
    """While the body is tokenized, which takes seconds, probes are answered and a stream goes on."""
    content = "A sentence of some words. " * 200_000
    body = json.dumps({"messages": [{"role": "user", "content": content}], "max_tokens": 1}).encode()
    assert len(body) > 5_000_000
    probes = pieces = 0

    async def watch_stream(client: httpx.AsyncClient, began: asyncio.Event) -> None:
        nonlocal pieces
        async with client.stream("POST", base_url + COMPLETIONS, json=STORY | {"stream": True}) as response:
            async for _ in events(response):
                pieces += 1
                began.set()

    async def probe(client: httpx.AsyncClient) -> None:
        nonlocal probes
        while True:
            assert (await client.get(f"{base_url}/health/live")).status_code == 200
            probes += 1
            await asyncio.sleep(0.1)

    async with httpx.AsyncClient(timeout=60) as client:
        began = asyncio.Event()
        tasks = [asyncio.create_task(watch_stream(client, began)), asyncio.create_task(probe(client))]
        await began.wait()
        before = probes, pieces
        response = await client.post(f"{base_url}/v1/chat/completions", content=body)
        meanwhile = probes - before[0], pieces - before[1]
        for task in tasks:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert min(meanwhile) > 3
    await idle(base_url)


async def test_b033_overflow_is_refused_at_once_and_the_running_are_unharmed(few_places):
    url = few_places.url
    alone = solo(url, max_tokens=100)
    starts = [asyncio.Event(), asyncio.Event()]
    running = [asyncio.create_task(streamed(url, began, max_tokens=100)) for began in starts]
    for began in starts:
        await began.wait()
    limits = httpx.Limits(max_connections=100)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        body = GREEDY | {"max_tokens": 8}
        posts = [asyncio.create_task(client.post(COMPLETIONS, json=body)) for _ in range(60)]
        async with asyncio.timeout(60):
            while sum(post.done() for post in posts) < 40:
                await asyncio.sleep(0.02)
        assert not any(task.done() for task in running), "they are refused at once, not when a place is free"
        many = await client.post(COMPLETIONS, json=body | {"n": 11})
        responses = await asyncio.gather(*posts)
    refused = [response for response in responses if response.status_code == 429]
    served = [response for response in responses if response.status_code == 200]
    assert len(refused) + len(served) == 60
    assert len(served) >= 8
    for response in (*refused, many):
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == "queue_full"
    assert counted(url, 'tidemark_requests_rejected_total{reason="queue_full"') == len(refused) + 1
    assert {response.json()["choices"][0]["text"] for response in served} == {solo(url, max_tokens=8)}
    assert [await task for task in running] == [alone, alone]
    await idle(url)


async def test_b035_a_step_that_takes_longer_than_the_limit_is_not_alive(few_places):
    url = few_places.url
    began = asyncio.Event()
    stream = asyncio.create_task(streamed(url, began, max_tokens=100))
    await began.wait()
    (engine,) = psutil.Process(few_places.process.pid).children()
    async with httpx.AsyncClient(base_url=url) as client:
        os.kill(engine.pid, signal.SIGSTOP)
        try:
            assert (await client.get("/health/live")).status_code == 200
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (response := await client.get("/health/live")).status_code == 200:
                    await asyncio.sleep(0.05)
            assert response.json()["state"] == "stalled"
            assert (await client.get("/health/ready")).status_code == 503
        finally:
            os.kill(engine.pid, signal.SIGCONT)
        assert len(await stream) > 0
        assert (await client.get("/health/live")).status_code == 200
    await idle(url)


PROMPTS = [
    f"{name} walked along the river and counted {what}. " * 10
    for name, what in (("Anna", "boats"), ("Boris", "old trees"), ("Chen", "stones"), ("Dilara", "grey birds"))
]


async def test_b041_a_pool_just_too_small_lets_everybody_finish_as_alone(small_pool):
    url = small_pool.url
    answers = [complete(url, prompt=prompt, max_tokens=60).json() for prompt in PROMPTS]
    needed = sum(answer["usage"]["total_tokens"] for answer in answers)
    assert needed > 512, "together they do not fit"
    before = status(url)["queue"]["preemptionsTotal"]
    together = await asyncio.gather(*(streamed(url, prompt=prompt, max_tokens=60) for prompt in PROMPTS))
    assert together == [answer["choices"][0]["text"] for answer in answers]
    assert 1 <= status(url)["queue"]["preemptionsTotal"] - before <= 4 * len(PROMPTS)
    await idle(url)


async def test_b037_what_can_never_fit_is_refused_and_holds_nobody_up(small_pool):
    for num_prompt, num_wanted in ((600, 10), (500, 100)):
        refused = complete(small_pool.url, prompt=[100] * num_prompt, max_tokens=num_wanted)
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "exceeds_kv_capacity"
        assert "32 pages (512 tokens)" in refused.json()["error"]["message"]
        assert complete(small_pool.url, max_tokens=2).status_code == 200
    assert solo(small_pool.url, prompt=[100] * 500, max_tokens=12)
    await idle(small_pool.url)


def test_the_log_level_says_how_much_is_told(few_places, small_pool):
    for server in (few_places, small_pool):
        assert complete(server.url, max_tokens=1).status_code == 200
        target = urlsplit(server.url)
        with socket.create_connection((target.hostname, target.port)) as connection:
            connection.sendall(b"this is no HTTP\r\n\r\n")
            assert b"400" in connection.recv(1000)
    for words in ("level=DEBUG", "request ended path=/v1/completions outcome=length", "status=400"):
        few_places.wait_logged(words)
    assert "level=" not in small_pool.log


def test_bench_loads_the_real_engine_and_finds_its_places(few_places, capsys, tmp_path):
    """Two run at once: four users wait for each other, and twice as many places are never proposed."""
    page = tmp_path / "load.html"
    levels = ["--users", "1,4", "--duration", "2", "--warm-up", "0.2", "--requests", "3", "--target-ttft-p95", "60"]
    lengths = ["--prompt-tokens", "60", "--output-tokens", "6"]
    code = cli.run(["bench", few_places.url, *levels, *lengths, "--check", "-o", "json", "--html", str(page)])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    found = json.loads(shown.out)
    assert found["about"]["serverVersion"]
    assert found["about"]["prompts"].startswith("exact: ")
    one, four = found["levels"]
    for level in (one, four):
        entry = level["classes"]["load"]
        assert set(entry["outcomes"]) == {"ok"}
        assert entry["promptTokens"] == entry["wantedPromptTokens"] == 60 * entry["served"]
        assert entry["outputTokens"] == entry["wantedOutputTokens"] == 6 * entry["served"]
        assert level["check"]["identical"] == level["check"]["asked"] == 4, "the same answers under load as alone"
        assert entry["timeToFirstToken"]["p50"] < entry["endToEnd"]["p50"]
    assert four["server"]["queueWaitMean"] > one["server"]["queueWaitMean"]
    assert found["knee"]["value"] in (None, 1, 2)
    assert "<svg" in page.read_text(encoding="utf-8")


def test_nothing_of_this_left_a_traceback(live_server, few_places, small_pool):
    for server in (live_server, few_places, small_pool):
        assert server.process.poll() is None
        assert "Traceback" not in server.log
        assert status(server.url)["state"] == "ready"
