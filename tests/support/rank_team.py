"""Ranks of one model as threads of a test: real sockets, real gloo, real workers, and no time spent on processes."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import made_models

from tidemark_runtime import config, config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources
from tidemark_runtime.worker import follower, interface, parallel, process_group, rank_links, ranks, torch_worker

CONFIG: Mapping[str, Any] = {
    **made_models.LLAMA_CONFIG,
    "hidden_size": 48,
    "head_dim": 16,
    "intermediate_size": 96,
    "num_attention_heads": 12,
    "num_key_value_heads": 6,
    "num_hidden_layers": 2,
    "vocab_size": 101,
    "max_position_embeddings": 128,
}
"""Can be divided among 2, 3, 6 and 12 ranks; its tokens cannot."""
WAIT_SECONDS = 20.0
MEMORY_BYTES = 4 << 30
"""Of each rank; here each counts the whole process as its overhead."""
Spoil = Callable[[int, torch_worker.TorchWorker], None]
"""Rank and its worker, before the first step."""


def write(folder: Path, changes: Mapping[str, Any] | None = None) -> Path:
    made = {**CONFIG, **(changes or {})}
    return made_models.write_folder(folder, made, made_models.llama_weights(made, seed=3))


def settings_of(folder: Path, sections: Mapping[str, Mapping[str, Any]] | None = None) -> config.EngineConfig:
    values: dict[str, dict[str, Any]] = {
        "model": {"source": str(folder)},
        "scheduler": {"maxNumSeqs": 4, "maxNumBatchedTokens": 24},
        "kvCache": {"numPages": 12, "blockSize": 8, "prefixCaching": False},
        "hardware": {"device": "cpu", "threads": 1},
    }
    for name, section in (sections or {}).items():
        values[name] = {**values.get(name, {}), **section}
    return config_parsing.parse(values)


class Team:
    """`size` ranks; `worker` is what an engine would be given."""

    def __init__(
        self,
        folder: Path,
        settings: config.EngineConfig,
        size: int,
        *,
        spoil: Spoil = lambda _rank, _worker: None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`folder`: private, for sockets and files of the ranks."""
        folder.mkdir(exist_ok=True)
        self._source = sources.resolve(settings.model.source, folder)
        self._folder, self._size, self._spoil, self._wait_seconds = folder, size, spoil, wait_seconds
        self._settings = ranks.settings_of(settings, size, size * MEMORY_BYTES, size)
        self._threads = concurrent.futures.ThreadPoolExecutor(size - 1, thread_name_prefix="rank")
        self.link = rank_links.FirstLink(folder, size, lambda: None)
        self.others = [self._threads.submit(self._follow, rank) for rank in range(1, size)]
        try:
            start, group = self._start(0), self._group(0)
            self.worker: interface.Worker = parallel.create(start, lambda _phase, _share: None, group, self.link)
        except BaseException:
            self.let_go()
            raise

    def close(self) -> None:
        """Raises what ended a rank."""
        self.worker.close()
        for other in self.others:
            other.result(WAIT_SECONDS)
        self.let_go()

    def let_go(self) -> None:
        self.link.close()
        self._threads.shutdown(wait=False)

    def _group(self, rank: int) -> process_group.GlooGroup:
        return process_group.GlooGroup(model_parallel.Shard(rank, self._size), self._folder, self._wait_seconds)

    def _start(self, rank: int) -> parallel.Start:
        def load(*given: Any) -> torch_worker.TorchWorker:
            made = torch_worker.load(*given)
            self._spoil(rank, made)
            return made

        return parallel.Start(self._settings, self._source, load)

    def _follow(self, rank: int) -> None:
        link = rank_links.OtherLink(self._folder, rank)
        try:
            follower.Follower(self._start(rank), self._group(rank), link).run()
        finally:
            link.close()


class Asked:
    """An engine around a worker, turned by hand, and what it answered."""

    def __init__(
        self, worker: interface.Worker | None, settings: config.EngineConfig, steps: worker_thread.Steps | None = None
    ) -> None:
        """`steps`: of a device, instead of a worker."""
        self.thread = steps or worker_thread.WorkerThread(lambda: _given(worker))
        self.core = core_engine.CoreEngine(
            settings.scheduler,
            self.thread,
            max_context_tokens=self.thread.facts.max_context_tokens,
            prefix_caching=settings.kv_cache.prefix_caching,
            speculative=settings.speculative,
        )
        self.outputs: dict[str, list[messages.SequenceOutput]] = {}

    def submit(self, prompts: Sequence[Sequence[int]], params: Sequence[sampling.SamplingParams]) -> None:
        for index, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
            self.outputs[f"r{index}"] = []
            self._take(self.core.submit([messages.EngineRequest(f"r{index}", list(prompt), one)]))

    def run(self) -> dict[str, list[int]]:
        """Until all have ended; tokens by name."""
        while self.core.has_work:
            self._take(self.core.step())
        self.core.check_integrity()
        return {
            name: [token for output in outputs for token in output.token_ids] for name, outputs in self.outputs.items()
        }

    def _take(self, outputs: Sequence[messages.SequenceOutput]) -> None:
        for output in outputs:
            self.outputs[output.id].append(output)


def _given(worker: interface.Worker | None) -> interface.Worker:
    assert worker is not None
    return worker


PROMPTS = [[(7 * index + 3 * place) % 101 for place in range(9 + 6 * index)] for index in range(5)]
PARAMS = [
    sampling.SamplingParams(max_tokens=30, temperature=0.0),
    sampling.SamplingParams(max_tokens=30, temperature=0.9, seed=5, top_p=0.9),
    sampling.SamplingParams(max_tokens=30, temperature=0.0, num_logprobs=3),
    sampling.SamplingParams(max_tokens=30, temperature=1.0, seed=7, top_k=20, repetition_penalty=1.2),
    sampling.SamplingParams(max_tokens=30, temperature=0.7, seed=9, presence_penalty=0.5),
]
"""Greedy and sampled, in one batch that does not fit the slab of `settings_of`."""
