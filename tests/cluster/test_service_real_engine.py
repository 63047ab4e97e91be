"""The real engine with the real model as an InferenceService: it answers, and goes on answering while it is changed."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import operator_runner
import pytest
from bed import images

if TYPE_CHECKING:
    from bed.running import Bed

NAME = "smollm2"
IMAGE = "localhost/tidemark-bed/engine:1"
REQUESTS = 300
START_SECONDS = 400.0
"""The kernels are compiled in the pod; the machine may be busy with other things."""
QUESTION: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
}
SHORT = {**QUESTION, "max_tokens": 2}
LONG = {**QUESTION, "max_tokens": 80, "ignore_eos": True, "stream": True}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]


def service(max_num_seqs: int = 8, max_queued_requests: int = 100, **model: Any) -> dict[str, Any]:
    return operator_runner.small(
        NAME,
        hardware={"memory": "2Gi"},
        podTemplate={"resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"cpu": "2"}}},
        rollout={"drainSeconds": 120},
        scheduler={"maxNumSeqs": max_num_seqs},
        overload={"maxQueuedRequests": max_queued_requests},
        **model,
    )


@pytest.fixture(scope="module")
def bench(
    smollm2_path: Path, node_bed: Bed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[operator_runner.Bench]:
    """With one service that is Ready; every test leaves it Ready."""
    image = node_bed.load(images.host_python(IMAGE, ["tidemark"]))
    with operator_runner.bench(node_bed, tmp_path_factory.mktemp("operator"), image) as made:
        made.start()
        made.apply(service())
        made.until_ready(NAME, START_SECONDS)
        yield made


def test_a_chat_is_answered_and_streamed_through_the_service(bench: operator_runner.Bench) -> None:
    url = f"{bench.url(NAME)}/v1/chat/completions"
    answer = httpx.post(url, json={**QUESTION, "max_tokens": 24}, timeout=120, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    with httpx.stream("POST", url, json={**QUESTION, "max_tokens": 24, "stream": True}, timeout=120) as streamed:
        lines = [line for line in streamed.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    pieces = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-1]]
    assert "Paris" in "".join(piece.get("content") or "" for piece in pieces)


def test_a_hot_change_is_confirmed_by_the_engine_itself(bench: operator_runner.Bench) -> None:
    before = set(bench.pods(NAME))
    bench.apply(service(max_queued_requests=101))
    said = bench.until_condition(NAME, "ConfigApplied", "True")["message"]
    engine = httpx.get(f"{bench.url(NAME)}/status", timeout=30, trust_env=False).json()["config"]
    assert said == f"1 of 1 engines run the configuration {engine['hash']}."
    assert engine["generation"] == 2
    bench.until_settled(NAME)
    assert set(bench.pods(NAME)) == before


@pytest.mark.parametrize("killed", [False, True], ids=["operator-stays", "operator-killed-in-the-roll"])
def test_no_request_fails_while_the_pods_are_replaced(bench: operator_runner.Bench, killed: bool) -> None:
    """B024 and more: connections that are kept alive, new ones, and streams, across the whole roll."""
    bench.until_settled(NAME)
    before = set(bench.pods(NAME))
    load = Load(f"{bench.url(NAME)}/v1/chat/completions")
    with load.running():
        bench.until("the load runs", lambda: len(load.streams) > 0 and load.done > 10)
        bench.apply(service(max_num_seqs=10 if killed else 9))
        bench.until("a new pod", lambda: set(bench.pods(NAME)) - before)
        if killed:
            bench.kill()
            bench.start()
        bench.until("the old pod is told to end", lambda: not before & set(bench.pods(NAME)), START_SECONDS)
        ended = time.monotonic()
        bench.until("it is gone", lambda: not before & {pod["metadata"]["uid"] for pod in bench.of("pods", NAME)})
        bench.until(f"{REQUESTS} requests", lambda: load.done >= REQUESTS, START_SECONDS)
    assert load.failures == []
    assert load.counts["fresh"] > 50, load.counts
    assert load.counts["kept"] > 50, load.counts
    assert any(begun < ended < finished for begun, finished in load.streams), "no stream ran when the old pod was ended"
    bench.until_settled(NAME)


def test_a_model_that_is_missing_is_named(bench: operator_runner.Bench) -> None:
    document = operator_runner.small("missing", model={"source": {"package": {"name": "no-such-model"}}})
    bench.apply(document)
    said = bench.until_condition("missing", "Ready", "False", "ModelNotFound", START_SECONDS)["message"]
    assert "no-such-model" in said
    assert "exit code" in said
    assert "Check spec.model.source." in said
    bench.delete("tide", "missing")


@dataclass
class Load:
    """Requests of three kinds until told to stop; what failed is kept in words."""

    url: str
    failures: list[str] = field(default_factory=list)
    streams: list[tuple[float, float]] = field(default_factory=list)
    """When each began and was complete."""
    counts: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def running(self) -> Load:
        return self

    def __enter__(self) -> None:
        kinds = {"fresh": self._fresh, "kept": self._kept, "streamed": self._streamed}
        self._threads = [
            threading.Thread(target=self._repeat, args=(name, make), name=name)
            for name, make in kinds.items()
            for _ in range(2)
        ]
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)
        assert not any(thread.is_alive() for thread in self._threads)

    def _repeat(self, name: str, make: Callable[[httpx.Client | None], None]) -> None:
        with httpx.Client(timeout=120, trust_env=False) as client:
            while not self._stop.is_set():
                begun = time.monotonic()
                try:
                    make(client)
                except (httpx.HTTPError, AssertionError, ValueError) as error:
                    self.failures.append(f"{name} after {time.monotonic() - begun:.1f} s: {error!r}")
                    self._stop.wait(0.5)
                else:
                    self.counts[name] += 1

    def _fresh(self, _: httpx.Client | None) -> None:
        answer = httpx.post(self.url, json=SHORT, timeout=120, trust_env=False)
        assert answer.status_code == 200, answer.text

    def _kept(self, client: httpx.Client | None) -> None:
        assert client is not None
        answer = client.post(self.url, json=SHORT)
        assert answer.status_code == 200, answer.text

    def _streamed(self, _: httpx.Client | None) -> None:
        begun = time.monotonic()
        with httpx.stream("POST", self.url, json=LONG, timeout=120, trust_env=False) as answer:
            assert answer.status_code == 200
            lines = [line for line in answer.iter_lines() if line]
        assert lines[-1] == "data: [DONE]", lines[-1]
        pieces = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        reasons = [choice["finish_reason"] for piece in pieces for choice in piece["choices"]]
        assert reasons[-1] == "length", reasons[-1]
        self.streams.append((begun, time.monotonic()))
