"""Whatever KV memory is kept in: text does not depend on company, chunks, preemption, swapping or shared pages.

A made Llama on the real worker: K and V are rounded when they are written, so the same whoever writes them.
"""

from __future__ import annotations

import random
from pathlib import Path

import made_models
import made_steps
import pytest
import random_plans
import torch

from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import interface, slab, torch_worker

CONFIG = {**made_models.LLAMA_CONFIG, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
NUM_SLOTS = 4
MAX_CONTEXT = 64
MIXED: dict[tuple[int, int, page_layout.Kind], str] = {
    (0, 0, "k"): "bfloat16",
    (1, 0, "v"): "fp8_e5m2",
    (1, 1, "k"): "int4",
}
LAYOUTS: list[tuple[str, dict[tuple[int, int, page_layout.Kind], str]]] = [
    (name, {}) for name in sorted(page_layout.KV_DTYPES)
] + [("int8", MIXED), ("int8 + fixed", {}), ("fp8_e4m3 + fixed", {(0, 0, "k"): "bfloat16"})]
GREEDY = sampling.SamplingParams(max_tokens=12, temperature=0.0, ignore_stop_tokens=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> batches.Model:
    folder: Path = tmp_path_factory.mktemp("llama")
    return made_steps.load(made_models.write_folder(folder, CONFIG, made_models.llama_weights(CONFIG)))


def make_worker(
    model: batches.Model, dtype: str, precision: dict[tuple[int, int, page_layout.Kind], str], num_pages: int
) -> torch_worker.TorchWorker:
    """`dtype` with `+ fixed`: one scale for all tokens of a head, instead of each its own."""
    dtype, _, fixed = dtype.partition(" + ")
    layout = page_layout.PageLayout(model.spec.kv_shape, 4, dtype, precision, fixed == "fixed")
    scales = {(each.layer, each.head, each.kind): 0.02 for each in layout.segments}
    facts = interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype="float32",
        layout=layout,
        num_pages=num_pages,
        num_host_pages=20,
        max_context_tokens=MAX_CONTEXT,
        memory_bytes={},
    )
    memory = batches.KVMemory.of(slab.allocate(num_pages, layout.page_bytes), layout, scales)
    return torch_worker.TorchWorker(model, memory, facts, NUM_SLOTS)


def alone(worker: torch_worker.TorchWorker, prompt: list[int]) -> list[int]:
    """One chunk, then token by token."""
    pages = tuple(range(16))
    join = step_plan.Join(0, tuple(prompt), len(prompt), GREEDY, pages)
    chunk = step_plan.Chunk(0, 0, len(prompt), samples=True)
    tokens = [*worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(chunk,))).token_ids]
    for step in range(2, GREEDY.max_tokens + 1):
        tokens += worker.execute(step_plan.StepPlan(step=step, decodes=(0,))).token_ids
    return tokens


@pytest.mark.parametrize(("dtype", "precision"), LAYOUTS)
def test_text_is_what_it_is_alone(
    model: batches.Model, dtype: str, precision: dict[tuple[int, int, page_layout.Kind], str]
) -> None:
    solo = make_worker(model, dtype, precision, 16)
    swapped = shared = 0
    for seed in range(4):
        chance = random.Random(seed)
        vocabulary = model.spec.vocab_size
        beginning = [chance.randrange(vocabulary) for _ in range(20)]
        sequences = [
            random_plans.Running(
                beginning[: chance.randint(0, 20)]
                + [chance.randrange(vocabulary) for _ in range(chance.randint(1, 9))],
                GREEDY,
            )
            for _ in range(6)
        ]
        worker = make_worker(model, dtype, precision, 24)
        driver = random_plans.Driver(chance, sequences, worker.facts, NUM_SLOTS)
        driver.run(worker)
        swapped += driver.num_swapped_pages
        shared += driver.num_shared_pages
        for sequence in sequences:
            assert sequence.tokens[len(sequence.prompt) :] == alone(solo, sequence.prompt)
    assert swapped > 10
    assert shared > 10


@pytest.mark.parametrize("dtype", ["int8", "fp8_e4m3", "fp8_e5m2", "int4"])
def test_rounding_changes_logits_a_little_and_not_at_all_where_a_layer_is_kept(
    model: batches.Model, dtype: str
) -> None:
    def logits(layout: page_layout.PageLayout) -> torch.Tensor:
        memory = batches.KVMemory.of(torch.zeros(8, layout.page_bytes, dtype=torch.uint8), layout)
        chunk = made_steps.Chunk(range(8), [token % model.spec.vocab_size for token in range(5, 35)])
        return model.forward(made_steps.batch_of([chunk], layout.block_size), memory)

    shape = model.spec.kv_shape
    exact = logits(page_layout.PageLayout(shape, 4, "float32"))
    rounded = logits(page_layout.PageLayout(shape, 4, dtype))
    segments = page_layout.PageLayout(shape, 4, dtype).segments
    kept = {(each.layer, each.head, each.kind): "float32" for each in segments}
    assert not torch.equal(rounded, exact)
    assert float((rounded - exact).abs().max()) < 0.2 * float(exact.std())
    assert torch.equal(logits(page_layout.PageLayout(shape, 4, dtype, kept)), exact)


def test_a_scale_that_is_missing_is_never_assumed(model: batches.Model) -> None:
    layout = page_layout.PageLayout(model.spec.kv_shape, 4, "int8", fixed_scales=True)
    scales = {(each.layer, each.head, each.kind): 0.02 for each in layout.segments}
    del scales[1, 1, "v"]
    with pytest.raises(ValueError, match=r"a segment of torch.int8 has its scales at byte -1"):
        batches.KVMemory.of(torch.zeros(2, layout.page_bytes, dtype=torch.uint8), layout, scales)
