"""How many requests compute at once in the same bytes of KV memory: the section `concurrency` of kv_memory.py.

The real engine and the real model; the weights are loaded once, each way of keeping K and V gets a slab of the same
bytes. Everybody is there from the start, and answers end where their length says, far before `max_tokens`, as real
answers do: nobody can know it beforehand. Counts are of steps, so that they are the same on every machine.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import kv_accuracy
import real_engine
from kv_table import Check, Row, Table, at_least

from tidemark_runtime import config_parsing
from tidemark_runtime.core import sampling
from tidemark_runtime.engine import core_engine, messages, worker_thread
from tidemark_runtime.evaluation import configurations, subject
from tidemark_runtime.model import batch as batches
from tidemark_runtime.worker import interface, slab, torch_worker

SEED = 6
NUM_REQUESTS = 60
PROMPT_TOKENS = (32, 96)
ANSWER_TOKENS = (16, 96)
MAX_TOKENS = 256
"""What clients ask for."""
CONTEXT_TOKENS = 512
"""Short for a context: a longer one is worse for who reserves it."""
NUM_CONTEXTS = 2
"""Whole contexts that the slab holds at 16 bits."""
NUM_SLOTS = 64
NUM_ALONE = 6
"""Answers that are computed once more, alone on an empty engine."""
LEAST_TIMES = 5.0

SCHEDULER = {
    "maxNumSeqs": NUM_SLOTS,
    "maxNumBatchedTokens": 256,
    "queueWatermark": 0.98,
    "preemptWatermark": 0.99,
    "watermarkHysteresis": 0.01,
    "maxQueueSeconds": 86_400,
    "preemptionMode": "recompute",
}


@dataclass(frozen=True, slots=True)
class Way:
    """One column of the comparison."""

    name: str
    kept: configurations.Configuration
    reserve: int | None = None
    """Tokens of pages that a request must be given before it starts; None: pages are given as they are written. 0: its
    prompt and the `max_tokens` that it asks for."""


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: list[int]
    answer_tokens: int


@dataclass(slots=True)
class Run:
    """What one way brought."""

    num_pages: int = 0
    answers: dict[str, list[int]] = field(default_factory=dict)
    computing: list[int] = field(default_factory=list)
    """Sequences of each step while somebody waits."""
    peak: int = 0
    used: list[float] = field(default_factory=list)
    """Share of the pages, as above."""
    waste: list[float] = field(default_factory=list)
    steps: int = 0
    preemptions: int = 0
    cpu_seconds: float = 0.0

    @property
    def concurrency(self) -> float:
        return statistics.fmean(self.computing)


def requests() -> list[Asked]:
    """Ordinary token ids, lengths evenly spread; the same in every run."""
    chance = random.Random(SEED)
    return [
        Asked(
            [chance.randrange(real_engine.VOCABULARY) for _ in range(chance.randint(*PROMPT_TOKENS))],
            chance.randint(*ANSWER_TOKENS),
        )
        for _ in range(NUM_REQUESTS)
    ]


def ways(tested: subject.Subject) -> list[Way]:
    """The naive one first."""
    plain = configurations.Configuration("bfloat16", "bfloat16")
    int8, with_map = configurations.chosen(["int8"], kv_accuracy.read_map(), tested.target("int8"))
    return [
        Way("naive: the whole context is reserved, bfloat16", plain, CONTEXT_TOKENS),
        Way("naive: prompt and `max_tokens` are reserved, bfloat16", plain, 0),
        Way("paged, bfloat16", plain),
        Way("paged, int8", int8),
        Way("paged, int8 + map", with_map),
    ]


def concurrency(tested: subject.Subject) -> tuple[bool, list[str]]:
    """The table, and whether int8 runs enough more at once than a naive server."""
    wanted = ways(tested)
    page_bytes = wanted[0].kept.layout(tested.model.spec.kv_shape).page_bytes
    slab_bytes = NUM_CONTEXTS * CONTEXT_TOKENS // configurations.BLOCK_SIZE * page_bytes
    runs = {way.name: run(tested, way, slab_bytes) for way in wanted}
    answers: dict[str, list[list[int]]] = {}
    for way in wanted:
        if way.kept.name not in answers:
            answers[way.kept.name] = alone(tested, way, runs[way.name].num_pages)
    return describe(tested, slab_bytes, runs, answers)


def describe(
    tested: subject.Subject, slab_bytes: int, runs: Mapping[str, Run], answers: Mapping[str, list[list[int]]]
) -> tuple[bool, list[str]]:
    """The table of `runs` by way, with the first `answers` that each configuration gives without company."""
    wanted = ways(tested)
    naive = runs[wanted[0].name]
    rows = [_row(tested, way, runs[way.name], naive, answers[way.kept.name]) for way in wanted]
    head = (
        "pages",
        "sequences that compute, mean",
        "times naive",
        "peak",
        "pages in use",
        "of these, room without a token",
        "preemptions",
        "steps",
        "output tokens a CPU second",
        "mean KL to 16 bits",
        "answers as alone",
    )
    table = Table(f"In {slab_bytes / 2**20:.1f} MiB of KV memory", head, rows)
    words = (
        f"{NUM_REQUESTS} requests at once (seed {SEED}): prompts of {PROMPT_TOKENS[0]} to {PROMPT_TOKENS[1]} tokens, "
        f"answers that end after {ANSWER_TOKENS[0]} to {ANSWER_TOKENS[1]}, `max_tokens` {MAX_TOKENS}, a context limit "
        f"of {CONTEXT_TOKENS:,}, pages of {configurations.BLOCK_SIZE} tokens, no prefix cache. A naive server gives a "
        "request room for the whole context when it starts, and starts it only then; a kinder one room for the prompt "
        "and `max_tokens`. Both are this engine and scheduler with `maxPreemptionsPerRequest: 0`. Means are over the "
        f"steps while somebody waits. *As alone*: the first {NUM_ALONE} answers are those of the same engine with "
        "nobody else in it, token by token. The KL is the worse of the two texts under *Accuracy*."
    )
    return table.met, [words, "", *table.lines()]


def _row(tested: subject.Subject, way: Way, found: Run, naive: Run, expected: Sequence[list[int]]) -> Row:
    same = sum(found.answers[str(index)] == answer for index, answer in enumerate(expected))
    is_plain = way.kept.dtype == "bfloat16"
    times = found.concurrency / naive.concurrency
    cells = (
        f"{found.num_pages}",
        f"{found.concurrency:.1f}",
        f"{times:.1f}",
        f"{found.peak}",
        f"{statistics.fmean(found.used):.0%}",
        f"{statistics.fmean(found.waste):.1%}",
        f"{found.preemptions}",
        f"{found.steps:,}",
        f"{sum(map(len, found.answers.values())) / found.cpu_seconds:.0f}",
        "0" if is_plain else f"{kv_accuracy.mean_kl(tested, way.kept.name):.5f}",
        f"{same} of {NUM_ALONE}",
    )
    checks = [Check("as alone", same == NUM_ALONE)]
    if not is_plain:
        checks.append(at_least(f"≥ {LEAST_TIMES:g} × naive", times, LEAST_TIMES))
    return Row(way.name, cells, checks)


def run(tested: subject.Subject, way: Way, slab_bytes: int) -> Run:
    """All requests to their ends."""
    asked = requests()
    layout = way.kept.layout(tested.model.spec.kv_shape)
    found = Run(num_pages=slab_bytes // layout.page_bytes)
    engine = _engine(tested, way, found.num_pages)
    started = time.process_time()
    engine.submit([_request(str(index), one, way) for index, one in enumerate(asked)])
    while engine.has_work:
        _take(found, engine, {str(index): one.answer_tokens for index, one in enumerate(asked)}, engine.step())
        stats = engine.stats()
        if stats.steps == found.steps:
            continue
        found.steps = stats.steps
        found.peak = max(found.peak, stats.step_sequences)
        if stats.requests_waiting and stats.pages_used:
            room = stats.pages_used * layout.block_size
            found.computing.append(stats.step_sequences)
            found.used.append(stats.pages_used / stats.pages_total)
            found.waste.append(1.0 - stats.tokens_in_used_pages / room)
        if found.steps % 50 == 0:
            engine.check_integrity()
            print(f"\r\033[K{way.name}: step {found.steps}, {stats.requests_waiting} wait", end="", file=sys.stderr)
    found.cpu_seconds = time.process_time() - started
    found.preemptions = engine.stats().preemptions_total
    engine.check_integrity()
    engine.close()
    return found


def alone(tested: subject.Subject, way: Way, num_pages: int) -> list[list[int]]:
    """The first answers, one after the other on an engine without company."""
    engine = _engine(tested, way, num_pages)
    answers = Run()
    for index, one in enumerate(requests()[:NUM_ALONE]):
        name = str(index)
        engine.submit([_request(name, one, Way("", way.kept))])
        while engine.has_work:
            _take(answers, engine, {name: one.answer_tokens}, engine.step())
    engine.close()
    return list(answers.answers.values())


def _take(
    found: Run,
    engine: core_engine.CoreEngine,
    lengths: Mapping[str, int],
    outputs: Sequence[messages.SequenceOutput],
) -> None:
    """Keep what came; whoever has its whole answer leaves, as a client does at a stop string."""
    for output in outputs:
        answer = found.answers.setdefault(output.id, [])
        answer += output.token_ids
        if output.finish is None and len(answer) >= lengths[output.id]:
            engine.abort([output.id])


def _request(name: str, one: Asked, way: Way) -> messages.EngineRequest:
    max_tokens = way.reserve - len(one.prompt) if way.reserve else MAX_TOKENS
    params = sampling.SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_stop_tokens=True)
    return messages.EngineRequest(name, one.prompt, params)


def _engine(tested: subject.Subject, way: Way, num_pages: int) -> core_engine.CoreEngine:
    layout = way.kept.layout(tested.model.spec.kv_shape)
    facts = interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype=tested.dtype,
        layout=layout,
        num_pages=num_pages,
        max_context_tokens=CONTEXT_TOKENS,
        memory_bytes={},
    )
    memory = batches.KVMemory.of(slab.allocate(num_pages, layout.page_bytes), layout)
    settings = {**SCHEDULER, **({} if way.reserve is None else {"maxPreemptionsPerRequest": 0})}
    return core_engine.CoreEngine(
        config_parsing.parse({"scheduler": settings}).scheduler,
        worker_thread.WorkerThread(lambda: torch_worker.TorchWorker(tested.model, memory, facts, NUM_SLOTS)),
        max_context_tokens=CONTEXT_TOKENS,
        prefix_caching=False,
    )
