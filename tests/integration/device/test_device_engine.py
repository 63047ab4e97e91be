"""The whole engine on a device that is Triton's interpreter: the same text as on the processor, whatever happens.

A tiny model, a pool so small that somebody has to give way, a budget so small that prompts come in chunks. Counters
prove that what is tested did happen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import made_models
import pytest
import quick_interpreter

from tidemark_runtime import config, config_parsing
from tidemark_runtime.core import guess_value, sampling, speculation
from tidemark_runtime.engine import core_engine, device_threads, messages, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.worker import accelerators, device_loading, device_selftest, interface, torch_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG: Mapping[str, Any] = {**made_models.LLAMA_CONFIG, "num_attention_heads": 2, "num_key_value_heads": 2}
SHARED = [3, 14, 15, 9, 26, 5, 35, 8]
"""One page."""
PARAMS = (
    sampling.SamplingParams(max_tokens=6, temperature=0.0, ignore_stop_tokens=True),
    sampling.SamplingParams(max_tokens=5, temperature=0.9, seed=11, top_p=0.95, ignore_stop_tokens=True),
    sampling.SamplingParams(
        max_tokens=5, temperature=0.0, repetition_penalty=1.3, num_logprobs=2, ignore_stop_tokens=True
    ),
)
PROMPTS = ([*SHARED, 7, 1], [*SHARED, 2, 2, 8, 4, 4], [5, 9, 1])
Asked = tuple[list[int], sampling.SamplingParams]
ASKED: Sequence[Asked] = tuple(zip(PROMPTS, PARAMS, strict=True))


@dataclass(frozen=True)
class Told:
    """What came of some requests."""

    tokens: dict[str, list[int]]
    logprobs: dict[str, list[float]]
    stats: messages.EngineStats


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_models.write_folder(tmp_path_factory.mktemp("model"), CONFIG, made_models.llama_weights(CONFIG, seed=4))


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quick_interpreter.install(patch)
        yield


def settings_of(folder: Path, speculative: Mapping[str, Any] | None = None, **kv_cache: Any) -> config.EngineConfig:
    return config_parsing.parse(
        {
            "speculative": dict(speculative or {}),
            "model": {"source": str(folder), "dtype": "float32"},
            "kvCache": {"blockSize": 8, "numPages": 5, **kv_cache},
            "scheduler": {
                "maxNumSeqs": 3,
                "maxNumBatchedTokens": 7,
                "preemptionMode": "swap",
                "queueWatermark": 1.0,
                "preemptWatermark": 1.0,
                "watermarkHysteresis": 0.0,
            },
            "hardware": {"device": "cpu", "threads": 1},
        }
    )


def on_device(settings: config.EngineConfig) -> config.EngineConfig:
    return dataclasses.replace(
        settings, hardware=dataclasses.replace(settings.hardware, device=accelerators.INTERPRETER)
    )


def ask(settings: config.EngineConfig, steps: worker_thread.Steps, asked: Sequence[Asked] = ASKED) -> Told:
    """All together, then the first again."""
    core = core_engine.CoreEngine(
        settings.scheduler,
        steps,
        max_context_tokens=steps.facts.max_context_tokens,
        prefix_caching=settings.kv_cache.prefix_caching,
        speculative=settings.speculative,
    )
    tokens: dict[str, list[int]] = {}
    logprobs: dict[str, list[float]] = {}
    names = [f"first {index}" for index in range(len(asked))]
    for batch in ([(name, *each) for name, each in zip(names, asked, strict=True)], [("again", *asked[0])]):
        requests = [messages.EngineRequest(name, list(prompt), params) for name, prompt, params in batch]
        for request in requests:
            assert core.submit([request]) == []
        while core.has_work:
            for output in core.step():
                assert output.finish in (None, messages.FinishReason.LENGTH, messages.FinishReason.STOP), output
                tokens.setdefault(output.id, []).extend(output.token_ids)
                for each in output.logprobs or ():
                    if each is not None:
                        logprobs.setdefault(output.id, []).extend((each.chosen, *each.top))
        core.check_integrity()
    stats = core.stats()
    core.close()
    return Told(tokens, logprobs, stats)


def quiet(_what: str, _share: float) -> None:
    """Nobody looks at the progress."""


def compared(folder: Path, **kv_cache: Any) -> tuple[Told, interface.WorkerFacts]:
    """What the device says, after it was found to be what the processor says."""
    settings, source = settings_of(folder, **kv_cache), sources.resolve(str(folder), Path())
    want = ask(settings, worker_thread.WorkerThread(lambda: torch_worker.create(settings, source, quiet)))
    threads = device_threads.DeviceThreads(lambda: device_loading.create(on_device(settings), source, quiet))
    facts = threads.facts
    have = ask(settings, threads)
    assert have.tokens == want.tokens
    assert have.logprobs.keys() == want.logprobs.keys()
    for name, values in want.logprobs.items():
        assert have.logprobs[name] == pytest.approx(values, abs=2e-2 if kv_cache.get("dtype") else 1e-4)
    return have, facts


GUESSING: Sequence[Asked] = (
    ([*SHARED, 7, 1], sampling.SamplingParams(max_tokens=18, temperature=0.0, ignore_stop_tokens=True)),
    (
        [*SHARED, 2, 8],
        sampling.SamplingParams(max_tokens=16, temperature=0.9, seed=11, presence_penalty=0.4, ignore_stop_tokens=True),
    ),
    (
        [3, 18, 30, 16, 1, 2, 18, 16, 9, 1, 3, 4, 5, 9, 1],
        sampling.SamplingParams(max_tokens=14, temperature=0.0, num_logprobs=1, ignore_stop_tokens=True),
    ),
    ([*SHARED, 7, 1], sampling.SamplingParams(max_tokens=18, temperature=0.0, stop_token_ids=(1,))),
)
"""The greedy ones run in circles; the third prompt holds pairs of tokens of theirs, with others after them. The last
one stops among what is guessed."""


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether guesses pay on an interpreter is not the question: they cost nothing."""
    monkeypatch.setattr(guess_value.Price, "seconds", lambda self, token_seconds: 0.0)
    monkeypatch.setattr(speculation, "FIRST_PLAIN_STEPS", 2)
    monkeypatch.setattr(speculation, "FIRST_PAUSE_TOKENS", 1)


def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test takes the interpreter 10 s, and has tests of its own."""
    monkeypatch.setattr(device_selftest, "run", lambda subject: device_selftest.untested(subject.choices))


def test_text_is_that_of_the_processor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untested(monkeypatch)
    told, facts = compared(folder, swapSpace=64 * 1024)
    assert told.stats.preemptions_swap_total > 0
    assert told.stats.resumes_swap_total > 0
    assert told.stats.prefix_hit_tokens_total >= 8
    assert told.stats.prompt_tokens_total > 0
    assert [len(tokens) for tokens in told.tokens.values()] == [6, 5, 5, 6]
    assert told.tokens["again"] == told.tokens["first 0"]
    assert (facts.kind, facts.device, facts.dtype) == ("triton", "interpreter", "float32")
    assert {path.path for path in facts.kernel_paths} == {"triton"}
    assert facts.page_copy_seconds > 0


def test_text_is_that_of_the_processor_with_eight_bits_and_a_map(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untested(monkeypatch)
    rules = [{"layers": "0", "heads": "1", "kind": "k", "dtype": "float16"}]
    told, facts = compared(folder, dtype="int8", precision=rules)
    assert told.stats.preemptions_total > told.stats.preemptions_swap_total == 0
    assert {path.dtype for path in facts.kernel_paths if path.op == "paged_attention"} == {"float16", "int8"}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("method", ["ngram", "draft"])
def test_text_with_guesses_is_that_without(folder: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """The draft is the model itself: it is right each time, as far as it reads what it should."""
    untested(monkeypatch)
    source = sources.resolve(str(folder), Path())
    drafted = {"draftModel": str(folder)} if method == "draft" else {}
    plain = settings_of(folder, swapSpace=64 * 1024)
    settings = settings_of(folder, {"method": method, "tokens": 3, **drafted}, swapSpace=64 * 1024)
    want = ask(plain, worker_thread.WorkerThread(lambda: torch_worker.create(plain, source, quiet)), GUESSING)
    for made in (
        worker_thread.WorkerThread(lambda: torch_worker.create(settings, source, quiet)),
        device_threads.DeviceThreads(lambda: device_loading.create(on_device(settings), source, quiet)),
    ):
        have = ask(settings, made, GUESSING)
        assert have.tokens == want.tokens
        for name, values in want.logprobs.items():
            assert have.logprobs[name] == pytest.approx(values, abs=1e-4)
        assert have.stats.preemptions_swap_total > 0
        assert have.stats.prefix_hit_tokens_total >= 8
        assert have.stats.steps < want.stats.steps
        proposed, accepted = have.stats.guesses_proposed_total, have.stats.guesses_accepted_total
        if method == "draft":
            assert accepted > 0.9 * proposed > 10
        else:
            assert 0 < accepted < proposed
    lengths = {"first 0": 18, "first 1": 16, "first 2": 14, "first 3": 4, "again": 18}
    assert {name: len(tokens) for name, tokens in want.tokens.items()} == lengths
