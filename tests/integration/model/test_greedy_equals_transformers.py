"""The real model against transformers on the same weights, in float32: 20 prompts, 64 tokens each.

Greedy decoding is compared by induction: transformers sees the prompt with our tokens behind it, and at each position
its most likely token must be the one we took. That is the same as comparing with its own `generate`, in one pass
instead of 64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.model import sources
from tidemark_runtime.text import loading
from tidemark_runtime.worker import torch_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NUM_TOKENS = 64

PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a small village by the sea, there lived",
    "The three primary colours are red,",
    "In 1969, the first humans walked on the moon.",
    "A contract is a legally binding agreement between",
    "Photosynthesis is the process by which plants",
    "To make a good cup of tea, first",
    "The quick brown fox jumps over the lazy dog. The",
    "List three prime numbers: 2, 3,",
    "My favourite season is autumn because",
    "import numpy as np\n\n# compute the mean of an array\n",
    "Dear Sir or Madam,\n\nI am writing to",
    "The mitochondria is the powerhouse of the cell.",
    "Q: What is the largest ocean on Earth?\nA:",
    "She opened the old wooden door and saw",
    "SELECT name, age FROM customers WHERE",
    "北京是中国的首都。",
    "The meeting is scheduled for Monday at 10:30. " * 12,
)


@pytest.fixture(scope="module")
def prompts(smollm2_path: Path) -> list[list[int]]:
    text = loading.load(sources.resolve(str(smollm2_path), Path()))
    return [list(text.encode(prompt, add_special=False)) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def worker(smollm2_path: Path) -> Iterator[torch_worker.TorchWorker]:
    settings = config_parsing.parse(
        {
            "model": {"source": str(smollm2_path), "dtype": "float32", "maxContextTokens": 1024},
            "scheduler": {"maxNumSeqs": 16},
            "kvCache": {"numPages": 512},
        }
    )
    made = torch_worker.create(settings, sources.resolve(str(smollm2_path), Path()), lambda phase, fraction: None)
    yield made
    made.close()


class _Borrowed:
    """The module's worker, for an engine that must not close it."""

    def __init__(self, worker: torch_worker.TorchWorker) -> None:
        self._worker = worker
        self.facts = worker.facts
        self.execute = worker.execute

    def close(self) -> None:
        pass


def generate(
    worker: torch_worker.TorchWorker, prompts: list[list[int]], *, together: int, budget: int
) -> list[list[int]]:
    settings = dataclasses.replace(
        config_parsing.parse({"scheduler": {"maxNumSeqs": 16}}).scheduler,
        max_num_seqs=together,
        max_num_batched_tokens=budget,
    )
    engine = core_engine.CoreEngine(
        settings, worker_thread.WorkerThread(lambda: _Borrowed(worker)), max_context_tokens=1024
    )
    parameters = sampling.SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0)
    engine.submit([messages.EngineRequest(str(index), ids, parameters) for index, ids in enumerate(prompts)])
    outputs: list[list[int]] = [[] for _ in prompts]
    while engine.has_work:
        for output in engine.step():
            outputs[int(output.id)].extend(output.token_ids)
    engine.check_integrity()
    engine.close()
    return outputs


@pytest.fixture(scope="module")
def alone(worker: torch_worker.TorchWorker, prompts: list[list[int]]) -> list[list[int]]:
    return generate(worker, prompts, together=1, budget=512)


def most_likely(model: Any, sequences: Sequence[list[int]]) -> list[list[int]]:
    """What transformers takes at the last `NUM_TOKENS` positions of each; padded behind, where nobody looks."""
    longest = max(len(tokens) for tokens in sequences)
    padded = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in sequences])
    with torch.inference_mode():
        states = model.model(padded, use_cache=False).last_hidden_state
        ends = [each[len(tokens) - NUM_TOKENS : len(tokens)] for each, tokens in zip(states, sequences, strict=True)]
        return [model.lm_head(end).argmax(-1).tolist() for end in ends]


def test_every_token_is_the_one_transformers_takes(
    reference: Any, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    assert {len(output) for output in alone} == {NUM_TOKENS}
    seen = [prompt + output[:-1] for prompt, output in zip(prompts, alone, strict=True)]
    wanted = most_likely(reference, seen[:-1]) + most_likely(reference, seen[-1:])  # the last is longer than the rest
    for output, most_likely_output in zip(alone, wanted, strict=True):
        assert output == most_likely_output


@pytest.mark.parametrize("budget", [512, 48], ids=["whole prompts", "chunks of at most 48 tokens"])
def test_sixteen_together_get_what_each_gets_alone(
    worker: torch_worker.TorchWorker, prompts: list[list[int]], alone: list[list[int]], budget: int
) -> None:
    assert generate(worker, prompts, together=16, budget=budget) == alone
