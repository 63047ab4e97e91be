"""Metrics of a real server over a real engine: both formats, aborts, refusals, memory that runs out, and a killed
engine. Counters never go back as long as the server lives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import Iterator

import httpx
import live
import psutil
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from tidemark_runtime.contract import metrics as names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

GREEDY = {"prompt": "The three largest rivers of Europe are", "temperature": 0, "ignore_eos": True, "max_tokens": 24}
MONOTONIC = {each.name for each in names.ENGINE_METRICS if each.kind is names.Kind.COUNTER} | {
    f"{each.name}{suffix}"
    for each in names.ENGINE_METRICS
    if each.kind is names.Kind.HISTOGRAM
    for suffix in ("_bucket", "_count", "_sum")
}
Sample = tuple[str, ...]
SLACK_BYTES = 8 << 20
"""For what is small: a library that cannot tell its own lack of memory ends the process."""


@pytest.fixture(scope="module")
def server(smollm2_path, tmp_path_factory) -> Iterator[live.Server]:
    """Its first steps are small, so that it has no memory for large ones yet."""
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "token").write_text("s3cret\n")
    flags = ("--max-num-seqs", "4", "--num-pages", "520", "--max-context-tokens", "2048")
    flags += ("--max-num-batched-tokens", "32", "--admin-token-file", str(folder / "token"))
    with live.serving(folder, str(smollm2_path), *flags, "--threads", "1") as running:
        yield running


class Watched:
    """Scrapes, and compares each with the one before."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self._before: dict[Sample, float] = {}

    def scrape(self, accept: str = "text/plain") -> dict[Sample, float]:
        answer = self._client.get("/metrics", headers={"accept": accept})
        openmetrics = "openmetrics" in answer.headers["content-type"]
        parse = (
            openmetrics_parser.text_string_to_metric_families if openmetrics else parser.text_string_to_metric_families
        )
        found = {
            (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
            for family in parse(answer.text)
            for sample in family.samples
        }
        for key, value in self._before.items():
            if key[0] in MONOTONIC:
                assert found[key] >= value, key
        self._before = found
        return found

    def value(self, name: str, *labels: str) -> float:
        return self.scrape()[name, *labels]

    async def until(self, name: str, *labels: str, least: float, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while self.value(name, *labels) < least:
                await asyncio.sleep(0.05)


@pytest.fixture
def watched(server: live.Server) -> Iterator[Watched]:
    with contextlib.closing(httpx.Client(base_url=server.url, timeout=30, verify=live.CERTIFICATES)) as client:
        yield Watched(client)


def complete(url: str, **fields: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/completions", json=GREEDY | fields, timeout=120, verify=live.CERTIFICATES)


def test_b085_both_formats_of_a_real_scrape_have_the_same_names(server: live.Server, watched: Watched) -> None:
    assert complete(server.url).status_code == 200
    classic = watched.scrape()
    modern = watched.scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.2")
    assert {key[0] for key in classic} == {key[0] for key in modern}
    assert {key for key in classic if "le=" not in str(key)} == {key for key in modern if "le=" not in str(key)}


def test_a_step_tells_its_ops_and_the_device_its_time(server: live.Server, watched: Watched) -> None:
    assert complete(server.url, max_tokens=80).status_code == 200
    found = watched.scrape()
    ops = {
        key[1].removeprefix("op="): value
        for key, value in found.items()
        if key[0] == "tidemark_op_duration_seconds_sum"
    }
    assert {"paged_attention", "rms_norm", "silu_mul", "sampler", "other"} <= set(ops) <= set(names.OPS)
    assert all(seconds >= 0 for seconds in ops.values())
    steps = found["tidemark_step_duration_seconds_count", "phase=execute"]
    timed = found["tidemark_op_duration_seconds_count", "op=other"]
    assert timed == (steps - 1) // 64 + 1
    busy, held = found["tidemark_device_busy_seconds_total",], found["tidemark_device_seconds_total",]
    assert 0 < busy < held
    assert busy == pytest.approx(found["tidemark_step_duration_seconds_sum", "phase=execute"])
    status = server.status()
    assert abs(float(str(status["uptimeSeconds"])) - held) < 5


async def test_aborts_and_refusals_are_counted_once_and_nothing_goes_back(
    server: live.Server, watched: Watched
) -> None:
    before = watched.scrape()
    aborted, rejected = ("tidemark_requests_total", "outcome=aborted"), ("tidemark_requests_total", "outcome=rejected")
    async with httpx.AsyncClient(base_url=server.url, timeout=120, verify=live.CERTIFICATES) as client:
        body = GREEDY | {"stream": True, "max_tokens": 1500, "n": 2}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    break
            watched.scrape()
    await watched.until(*aborted, least=before[aborted] + 1)
    assert complete(server.url, temperature=9).status_code == 400
    after = watched.scrape()
    assert after[aborted] == before[aborted] + 1
    assert after[rejected] == before[rejected] + 1
    assert after["tidemark_requests_rejected_total", "reason=invalid"] >= 1
    assert after["tidemark_requests_total", "outcome=failed"] == 0
    await watched.until("tidemark_kv_pages", "state=free", least=1)
    assert complete(server.url).status_code == 200


def allow_large_steps(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60, verify=live.CERTIFICATES) as client:
        admin = {"authorization": "Bearer s3cret"}
        config = client.get("/admin/config", headers=admin).json()["config"]
        config["scheduler"]["maxNumBatchedTokens"] = 8192
        assert client.put("/admin/config", headers=admin, json=config).status_code == 200


def test_memory_runs_out_in_a_step_and_the_engine_goes_on(server: live.Server, watched: Watched) -> None:
    """The engine process may map hardly any more memory; four long prompts in one step want far more than its heap
    keeps from loading the model."""
    allow_large_steps(server.url)
    (engine,) = psutil.Process(server.process.pid).children()
    before = watched.scrape()
    unlimited = resource.prlimit(engine.pid, resource.RLIMIT_AS)
    resource.prlimit(engine.pid, resource.RLIMIT_AS, (engine.memory_info().vms + SLACK_BYTES, unlimited[1]))
    try:
        answer = complete(server.url, prompt=[list(range(at, at + 2000)) for at in range(4)], max_tokens=2)
    finally:
        resource.prlimit(engine.pid, resource.RLIMIT_AS, unlimited)
    assert answer.status_code == 500, answer.text
    error = answer.json()["error"]
    assert error["code"] == "engine_failed"
    assert "memory ran out in a step: " in error["message"]
    assert "\n" not in error["message"]
    assert complete(server.url).status_code == 200
    assert engine.is_running()
    after = watched.scrape()
    failed = ("tidemark_requests_total", "outcome=failed")
    assert after["tidemark_out_of_memory_total",] == before["tidemark_out_of_memory_total",] + 1
    assert after[failed] == before[failed] + 1, "one request"
    assert server.status()["outOfMemoryTotal"] == after["tidemark_out_of_memory_total",]
    given_up = r"step given up running=[1-4] waiting=[0-3] reason=memory ran out in a step"
    assert re.search(given_up, server.log), server.log


def test_a_killed_engine_takes_its_server_with_it(server: live.Server, watched: Watched) -> None:
    """So no counter can begin anew within a server's life: Prometheus sees a new process, and the operator its end."""
    watched.scrape()
    (engine,) = psutil.Process(server.process.pid).children()
    engine.kill()
    assert server.process.wait(30) == 1
    with pytest.raises(httpx.TransportError):
        watched.scrape()
    assert "tidemark serve: EngineDied: the engine process was killed (SIGKILL)" in server.log
