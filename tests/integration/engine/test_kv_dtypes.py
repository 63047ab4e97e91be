"""The real model in each KV dtype: text is what it is alone, whatever the engine does meanwhile.

The weights are loaded once; each dtype gets a slab and an engine of its own. The pool is so small that somebody always
has to give way, and counters prove that what is tested did happen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.evaluation import configurations, divergence, reader
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import sources
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.text import loading as text_loading
from tidemark_runtime.text import text_model
from tidemark_runtime.worker import interface, loading, slab, torch_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BLOCK, MAX_CONTEXT, NUM_SLOTS = 8, 256, 8
NUM_TOKENS = 12
BUDGET = 17
"""Tokens of a step."""
SHARED = "Tidemark keeps the memory of a conversation in pages, and a page holds all layers of sixteen tokens. "
ENDS = ("The tide", "北京是中国的", "def page(n):", "Who gives way?")
MAP = {
    "rules": [
        {"layers": ["0-2", 12], "kind": "k"},
        {"layers": 20, "heads": 1, "kind": "both", "dtype": "float16"},
        {"layers": 29, "kind": "v", "dtype": "fp8_e4m3"},
    ]
}
PLAIN = {name: (name, None) for name in sorted(set(page_layout.KV_DTYPES) - {"float32"})}
WAYS: dict[str, tuple[str, Mapping[str, Any] | None]] = {**PLAIN, "int8 + map": ("int8", MAP)}


@dataclass(frozen=True)
class Real:
    """The model without any KV memory, and its tokenizer."""

    model: batches.Model
    facts: interface.WorkerFacts
    encoder: text_model.TextModel

    def encode(self, text: str) -> list[int]:
        return list(self.encoder.encode(text, add_special=False))

    def segments(self, way: str) -> precision_map.Segments:
        dtype, given = WAYS[way]
        if given is None:
            return {}
        target = precision_map.Target(self.model.spec.kv_shape, dtype)
        return precision_map.segments_of(precision_map.parse(given), target)

    def worker(self, way: str, num_pages: int, num_host_pages: int) -> torch_worker.TorchWorker:
        layout = page_layout.PageLayout(self.model.spec.kv_shape, BLOCK, WAYS[way][0], self.segments(way))
        facts = dataclasses.replace(
            self.facts,
            layout=layout,
            num_pages=num_pages,
            num_host_pages=num_host_pages,
            max_context_tokens=MAX_CONTEXT,
        )
        memory = batches.KVMemory.of(slab.allocate(num_pages, layout.page_bytes), layout)
        return torch_worker.TorchWorker(self.model, memory, facts, NUM_SLOTS)


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Real:
    source = sources.resolve(str(smollm2_path), Path())
    settings = config_parsing.parse({"model": {"source": str(smollm2_path)}, "kvCache": {"numPages": 1}})
    loaded = loading.load(settings, source, lambda _what, _share: None)
    return Real(loaded.model, loaded.facts, text_loading.load(source))


class Engine:
    """One engine, asked by hand."""

    def __init__(
        self,
        worker: torch_worker.TorchWorker,
        *,
        budget: int = 512,
        mode: str = "recompute",
        prefix_caching: bool = False,
    ) -> None:
        settings = config_parsing.parse(
            {
                "scheduler": {
                    "maxNumSeqs": NUM_SLOTS,
                    "maxNumBatchedTokens": budget,
                    "preemptionMode": mode,
                    "queueWatermark": 1.0,
                    "preemptWatermark": 1.0,
                    "watermarkHysteresis": 0.0,
                }
            }
        )
        self.core = core_engine.CoreEngine(
            settings.scheduler,
            worker_thread.WorkerThread(lambda: worker),
            max_context_tokens=MAX_CONTEXT,
            prefix_caching=prefix_caching,
        )
        self._num = 0

    def ask(self, prompts: Sequence[list[int]], max_tokens: int) -> list[list[int]]:
        """All at once; what each gets."""
        parameters = sampling.SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_stop_tokens=True)
        names = [str(self._num + index) for index in range(len(prompts))]
        self._num += len(prompts)
        found: dict[str, list[int]] = {name: [] for name in names}
        requests = [
            messages.EngineRequest(name, prompt, parameters) for name, prompt in zip(names, prompts, strict=True)
        ]
        assert self.core.submit(requests) == []
        while self.core.has_work:
            for output in self.core.step():
                assert output.finish in (None, messages.FinishReason.LENGTH), output
                found[output.id] += output.token_ids
        self.core.check_integrity()
        return list(found.values())


@pytest.fixture
def engines() -> Iterator[list[Engine]]:
    """What a test opens is closed."""
    opened: list[Engine] = []
    yield opened
    for engine in opened:
        engine.core.close()


def prompts_of(real: Real) -> list[list[int]]:
    return [real.encode(SHARED + end) for end in ENDS]


@pytest.mark.parametrize("way", WAYS)
def test_text_is_what_it_is_alone(real: Real, engines: list[Engine], way: str) -> None:
    """Alone: one at a time, in one chunk. Together: chunks, too few pages, swapped or computed again, shared pages."""
    prompts = prompts_of(real)
    alone = Engine(real.worker(way, 12, 0))
    engines.append(alone)
    expected = [alone.ask([prompt], NUM_TOKENS)[0] for prompt in prompts]
    assert alone.core.stats().preemptions_total == 0
    assert len({tuple(text) for text in expected}) == len(prompts)

    needed = -(-(max(map(len, prompts)) + NUM_TOKENS) // BLOCK)
    assert min(map(len, prompts)) > BUDGET, "each in more than one chunk"
    for mode, host_pages in (("recompute", 0), ("swap", 30)):
        engine = Engine(real.worker(way, 3 * needed, host_pages), budget=BUDGET, mode=mode)
        engines.append(engine)
        assert engine.ask(prompts, NUM_TOKENS) == expected, mode
        stats = engine.core.stats()
        assert stats.preemptions_total > 0
        assert stats.preemptions_swap_total == (stats.preemptions_total if mode == "swap" else 0)
        assert (stats.swapped_in_pages_total > 0) == (mode == "swap")

    shared = Engine(real.worker(way, 30, 0), prefix_caching=True)
    engines.append(shared)
    assert shared.ask(prompts[:1], NUM_TOKENS) == expected[:1]
    assert shared.core.stats().prefix_hit_tokens_total == 0
    assert shared.ask(prompts, NUM_TOKENS) == expected
    beginning = divergence.common_prefix(prompts[0], prompts[1])
    assert shared.core.stats().prefix_hit_tokens_total >= len(prompts) * (beginning // BLOCK * BLOCK) > 0


# ---- B051 ------------------------------------------------------------------------------------------------------------

SPAIN = "The capital of Spain is Madrid, and the capital of Portugal is"
SPAIN_TOKENS = 40
LIMITS = {"int8": (0.003, 0.95), "fp8_e4m3": (0.01, 0.93)}
"""Mean KL in nats, at most; share of rows with the same likeliest token, at least."""


def rows_of(real: Real, dtype: str, text: list[int]) -> torch.Tensor:
    """Log-probabilities of each row of `text`."""
    layout = configurations.Configuration("", dtype).layout(real.model.spec.kv_shape)
    (read,) = reader.Reader(real.model, layout, MAX_CONTEXT).read(text)
    return divergence.log_probabilities(read.logits)


@pytest.fixture(scope="module")
def unquantized(real: Real) -> tuple[list[int], torch.Tensor]:
    """The question and its greedy answer with K and V in 32 bits, and the log-probabilities of their rows."""
    question = real.encode(SPAIN)
    layout = configurations.Configuration("", "float32").layout(real.model.spec.kv_shape)
    answer = reader.Reader(real.model, layout, MAX_CONTEXT).continue_greedily([question], SPAIN_TOKENS)[0]
    return [*question, *answer], rows_of(real, "float32", [*question, *answer])


@pytest.mark.parametrize("dtype", LIMITS)
def test_b051_the_first_answer_after_the_start_is_like_later_ones_and_like_the_unquantized(
    real: Real, engines: list[Engine], unquantized: tuple[list[int], torch.Tensor], dtype: str
) -> None:
    """No scale is taken from a warm-up or from whoever comes first; 50 others change nothing, shared pages neither."""
    worker = real.worker(dtype, 120, 0)
    worker.warm_up()
    engine = Engine(worker, prefix_caching=True)
    engines.append(engine)
    question = real.encode(SPAIN)
    (first,) = engine.ask([question], SPAIN_TOKENS)
    others = [real.encode(f"{index}. {SHARED[index:]}")[:6] for index in range(50)]
    engine.ask(others, 1)
    before = engine.core.stats().prefix_hit_tokens_total
    (later,) = engine.ask([question], SPAIN_TOKENS)
    assert later == first
    assert engine.core.stats().prefix_hit_tokens_total > before

    # Over the unquantized text, so that one early difference does not make all others.
    text, expected = unquantized
    sums = divergence.Divergence()
    sums.add(0, expected, rows_of(real, dtype, text), ())
    most_kl, least_agreement = LIMITS[dtype]
    assert sums.kl_sum / sums.tokens <= most_kl
    assert sums.agree / sums.tokens >= least_agreement
