"""From settings and files to a worker: what is decided, what is refused, and that the whole generates as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_steps
import pytest
import torch

from tidemark_runtime import config, errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import linear, sources
from tidemark_runtime.worker import cpu, loading, torch_worker

MIB = 1 << 20
PAGES = (7, 2, 9, 4)
"""Of the sequence that `generate` runs."""


def settings(**sections: dict[str, Any]) -> config.EngineConfig:
    return config.EngineConfig(
        model=config.ModelConfig(**{"dtype": "float32", **sections.get("model", {})}),
        kv_cache=config.KVCacheConfig(**{"num_pages": 12, "block_size": 4, **sections.get("kv_cache", {})}),
        scheduler=config.SchedulerConfig(**{"max_num_seqs": 3, **sections.get("scheduler", {})}),
        hardware=config.HardwareConfig(**{"threads": 1, **sections.get("hardware", {})}),
    )


def source(path: Path) -> sources.ModelSource:
    return sources.ModelSource("gguf" if path.suffix == ".gguf" else "huggingface", path, "made")


def create(path: Path, **sections: dict[str, Any]) -> torch_worker.TorchWorker:
    return torch_worker.create(settings(**sections), source(path), lambda _phase, _fraction: None)


def generate(worker: torch_worker.TorchWorker, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    params = sampling.SamplingParams(max_tokens=num_tokens, temperature=0.0)
    join = step_plan.Join(0, prompt, len(prompt), params, pages=PAGES)
    chunk = step_plan.Chunk(0, 0, len(prompt), True)
    found = list(worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(chunk,))).token_ids)
    for step in range(num_tokens - 1):
        found += worker.execute(step_plan.StepPlan(step=2 + step, decodes=(0,))).token_ids
    return found


def recomputed(path: Path, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    """The same model without worker, slots and slab of its own: everything anew for each token."""
    model = made_steps.load(path)
    tokens = list(prompt)
    for _ in range(num_tokens):
        memory = made_steps.new_memory(model, 8)
        pages = range(-(-len(tokens) // made_steps.BLOCK_SIZE))
        with torch.inference_mode():
            logits = model.forward(made_steps.batch_of([made_steps.Chunk(pages, tokens)]), memory)
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :]


def test_a_folder_generates_what_its_model_says(folder: Path) -> None:
    assert generate(create(folder), (5, 1, 40), 6) == recomputed(folder, (5, 1, 40), 6)


def test_a_quantized_file_generates_what_its_model_says(gguf_file: Path) -> None:
    assert generate(create(gguf_file), (5, 1, 40), 6) == recomputed(gguf_file, (5, 1, 40), 6)


def test_facts(gguf_file: Path) -> None:
    facts = create(gguf_file).facts
    assert (facts.kind, facts.device, facts.dtype, facts.layout.dtype) == ("torch", "cpu", "float32", "float32")
    assert (facts.num_pages, facts.max_context_tokens) == (12, 64)
    assert facts.memory_bytes["kv"] == 12 * facts.layout.page_bytes
    assert facts.memory_bytes["weights"] > 0
    assert {each.path for each in facts.kernel_paths if each.op == "embedding"} == {"grouped8"}
    assert "linearMeasured" not in facts.notes, "one form is exact, and needs no measuring"
    assert "paged_attention" in {each.op for each in facts.kernel_paths}
    assert facts.notes["threads"] == "1"


def test_settings_reach_the_layout_and_the_tables(folder: Path) -> None:
    facts = create(folder, kv_cache={"dtype": "float16"}, model={"max_context_tokens": 20}).facts
    assert facts.layout.dtype == "float16"
    assert facts.max_context_tokens == 20


def test_swap_space_is_whole_pages_and_its_speed_is_measured(folder: Path) -> None:
    plain = create(folder).facts
    assert (plain.num_host_pages, plain.page_copy_seconds) == (0, 0.0)
    assert "swap" not in plain.memory_bytes
    facts = create(folder, kv_cache={"swap_space": 5 * plain.layout.page_bytes - 1}).facts
    assert facts.num_host_pages == 4
    assert facts.memory_bytes["swap"] == 4 * plain.layout.page_bytes
    assert 0 < facts.page_copy_seconds < 1


def test_a_sequence_that_was_swapped_out_goes_on_as_if_nothing_had_happened(folder: Path) -> None:
    """To the host, its pages written by another, and back to other pages: the KV is the same to the byte."""
    page_bytes = create(folder).facts.layout.page_bytes
    loaded = loading.load(
        settings(kv_cache={"swap_space": 3 * page_bytes}), source(folder), lambda _phase, _fraction: None
    )
    worker = torch_worker.TorchWorker(loaded.model, loaded.memory, loaded.facts, 3)
    prompt, slab = (5, 1, 40, 7, 9, 2), loaded.memory.slab
    found = generate(worker, prompt, 3)
    held, back = [7, 2], [11, 0]
    kept = slab[held].clone()
    out = tuple(step_plan.Copy(page, 2 - place) for place, page in enumerate(held))
    worker.execute(step_plan.StepPlan(step=10, swaps_out=out))
    generate(worker, (1, 2, 3, 4, 5, 6, 7), 2)
    assert not torch.equal(slab[held], kept)
    swaps_in = tuple(step_plan.Copy(back[place], 2 - place) for place in range(2))
    worker.execute(step_plan.StepPlan(step=20, swaps_in=swaps_in))
    assert torch.equal(slab[back], kept)
    params = sampling.SamplingParams(max_tokens=6, temperature=0.0)
    join = step_plan.Join(1, (*prompt, *found), len(prompt), params, pages=(*back, 5))
    found += worker.execute(step_plan.StepPlan(step=21, joins=(join,), decodes=(1,))).token_ids
    for step in (22, 23):
        found += worker.execute(step_plan.StepPlan(step=step, decodes=(1,))).token_ids
    assert found == recomputed(folder, prompt, 6)


def test_bfloat16_runs_on_any_processor(gguf_file: Path) -> None:
    worker = create(gguf_file, model={"dtype": "bfloat16"})
    assert (worker.facts.dtype, worker.facts.layout.dtype) == ("bfloat16", "bfloat16")
    assert len(generate(worker, (1, 2, 3), 4)) == 4


@pytest.mark.parametrize("quantization", ["none", "int8"])
def test_quantization_is_what_was_asked_for(gguf_file: Path, quantization: str) -> None:
    worker = create(gguf_file, model={"quantization": quantization})
    paths = {each.path for each in worker.facts.kernel_paths if each.op == "linear"}
    assert all(path.startswith("int8-grouped" if quantization == "int8" else "float32") for path in paths)
    assert paths
    assert len(generate(worker, (1, 2, 3), 4)) == 4


def test_a_forced_form_is_taken_and_nothing_is_measured(gguf_file: Path) -> None:
    forms = {storage: linear.FormsByRows.always(linear.Form.PLAIN) for storage in linear.Storage}
    policy = linear.LinearPolicy(torch.float32, forms)
    loaded = loading.load(settings(), source(gguf_file), lambda _phase, _fraction: None, policy)
    assert {probe.path for probe in loaded.probes if probe.use == "linear"} == {"float32"}
    assert "linearMeasured" not in loaded.facts.notes


def test_progress_ends_with_everything_loaded(folder: Path) -> None:
    seen: list[tuple[str, float]] = []
    torch_worker.create(settings(), source(folder), lambda phase, fraction: seen.append((phase, fraction)))
    assert seen[-1] == ("warming up", 1.0)
    assert all(0.0 <= fraction <= 1.0 for _, fraction in seen)


def test_without_a_wish_the_slab_never_exceeds_what_can_be_used(folder: Path) -> None:
    facts = create(folder, kv_cache={"num_pages": None}).facts
    assert facts.num_pages == 3 * 16
    assert facts.notes["pagesDecidedBy"] == "maxNumSeqs"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"max_context_tokens": 65}}, r"model\.maxContextTokens: got 65, expected at most 64"),
        ({"model": {"dtype": "float16"}}, r"model\.dtype: got 'float16', expected auto, float32 or bfloat16"),
        ({"hardware": {"memory": 1 << 50}}, r"hardware\.memory: got 1125899906842624, expected at most \d+ bytes"),
        (
            {"kv_cache": {"swap_space": 100}},
            r"kvCache\.swapSpace: got 100, expected 0 or at least one page of 4 tokens, \d+ bytes\. Raise it, or set",
        ),
    ],
)
def test_settings_that_the_model_or_the_machine_cannot_hold(
    folder: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        create(folder, **sections)


def test_too_little_memory_is_refused_with_the_sum(folder: Path) -> None:
    with pytest.raises(errors.CapacityError, match=r"weights .* \+ workspace .* \+ overhead .* \+ KV"):
        create(folder, hardware={"memory": 50 * MIB}, kv_cache={"num_pages": None})


def test_swap_space_larger_than_the_memory_is_refused_with_the_sum(folder: Path) -> None:
    """It would be backed page by page, and the process killed later, under load."""
    with pytest.raises(errors.CapacityError, match=r"\+ swap space [\d,]+ MiB \+ KV .* Lower kvCache\.swapSpace to at"):
        create(folder, kv_cache={"swap_space": 1 << 50})


def test_the_number_of_threads_is_what_the_process_may_use(folder: Path) -> None:
    assert create(folder, hardware={"threads": None}).facts.notes["threads"] == str(cpu.usable_cores())
