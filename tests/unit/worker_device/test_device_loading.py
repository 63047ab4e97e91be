"""What a device refuses before it loads anything, and what it says of itself."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import made_models
import pytest
import torch

from tidemark_kernels import device_dispatch
from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import status
from tidemark_runtime.model import sources
from tidemark_runtime.worker import accelerators, device_loading, device_selftest, device_worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_models.write_folder(
        tmp_path_factory.mktemp("model"), made_models.LLAMA_CONFIG, made_models.llama_weights()
    )


@pytest.fixture(autouse=True)
def untested(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test takes the interpreter 10 s; `test_device_selftest` has it."""
    monkeypatch.setattr(device_selftest, "run", lambda subject: device_selftest.untested(subject.choices))


def settings_of(folder: Path, **sections: Any) -> config.EngineConfig:
    made: dict[str, dict[str, Any]] = {
        "model": {"source": str(folder), "dtype": "float32"},
        "kvCache": {"blockSize": 8, "numPages": 4},
        "hardware": {"device": "cpu", "threads": 1},
    }
    for name, values in sections.items():
        made[name] = {**made.get(name, {}), **values}
    parsed = config_parsing.parse(made)
    hardware = dataclasses.replace(parsed.hardware, device=accelerators.INTERPRETER)
    return dataclasses.replace(parsed, hardware=hardware)


def load(folder: Path, accelerator: accelerators.Accelerator | None = None, **sections: Any) -> device_worker.Loaded:
    source = sources.resolve(str(folder), Path())
    device = accelerator or accelerators.Interpreter()
    return device_loading.load(settings_of(folder, **sections), source, lambda _what, _share: None, device)


@pytest.mark.parametrize(
    ("sections", "key", "told"),
    [
        ({"model": {"quantization": "int8"}}, "model.quantization", "Only a processor rounds activations"),
        ({"kvCache": {"dtype": "int4", "allowLossy": True}}, "kvCache.dtype", "No kernel of a device reads 4 bits"),
        (
            {
                "kvCache": {
                    "dtype": "int8",
                    "allowLossy": True,
                    "precision": [{"layers": "0", "kind": "v", "dtype": "int4"}],
                }
            },
            "kvCache.precision: layer 0, head 0, v",
            "No kernel of a device reads 4 bits",
        ),
        ({"hardware": {"memory": 1 << 50}}, "hardware.memory", "Lower it or leave it out"),
    ],
)
def test_what_only_a_processor_has_is_refused(folder: Path, sections: dict[str, Any], key: str, told: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        load(folder, **sections)
    assert [problem.key for problem in raised.value.problems] == [key]
    assert told in str(raised.value)


def test_the_slab_is_sized_by_the_planner(folder: Path) -> None:
    loaded = load(folder, kvCache={"numPages": None, "memoryUtilization": 0.5})
    facts = loaded.facts
    assert facts.memory_limit_bytes == accelerators.Interpreter().memory().total_bytes
    assert facts.notes["pagesDecidedBy"] == "maxNumSeqs"  # all that can ever be used: the model is tiny
    assert loaded.memory.slab.shape == (facts.num_pages, facts.layout.page_bytes)
    assert not loaded.memory.slab.any()
    assert facts.memory_bytes["kv"] == loaded.memory.slab.numel()
    assert facts.planned_bytes["swap"] == 0


def test_too_little_memory_is_refused_with_the_sum(folder: Path) -> None:
    with pytest.raises(errors.CapacityError, match="weights"):
        load(folder, kvCache={"numPages": None}, hardware={"memory": 1 << 16})


@pytest.mark.parametrize(
    ("wanted", "of_model", "expected"),
    [
        ("auto", "float32", torch.bfloat16),
        ("auto", "bfloat16", torch.bfloat16),
        ("auto", "float16", torch.float16),
        ("float32", "bfloat16", torch.float32),
        ("float16", "float32", torch.float16),
    ],
)
def test_activations_are_of_two_bytes_unless_asked_otherwise(wanted: str, of_model: str, expected: torch.dtype) -> None:
    assert device_loading.activations_dtype(wanted, of_model) is expected


class WithoutTriton(accelerators.Interpreter):
    kernels = "no Triton for this device"


def test_without_kernels_strict_engines_stop_before_they_load(folder: Path) -> None:
    with pytest.raises(errors.KernelPathError, match="no Triton for this device"):
        load(folder, WithoutTriton())


def test_without_kernels_others_serve_by_torch_and_say_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load(folder, WithoutTriton(), hardware={"strictKernels": False})
    assert {path.path for path in loaded.paths} == {device_dispatch.TORCH}
    assert not any(path.is_planned for path in loaded.paths)
    told = [record for record in caplog.records if "kernel op=" in record.message]
    assert len(told) == len(loaded.paths)
    assert {record.levelname for record in told} == {"WARNING"}
    assert "no Triton for this device" in told[0].message


def test_a_page_that_no_kernel_reads_is_told_with_its_setting(folder: Path) -> None:
    with pytest.raises(errors.KernelPathError, match=r"paged_attention.*kvCache.blockSize is 6"):
        load(folder, kvCache={"blockSize": 6})


def test_paths_are_known_before_the_first_step(folder: Path) -> None:
    loaded = load(folder)
    assert {(path.op, path.path) for path in loaded.paths} == {
        (op, device_dispatch.TRITON) for op in device_dispatch.OPS
    }
    assert {path.self_test for path in loaded.paths} == {status.KernelPath("", "", "", "").self_test}


def test_a_draft_model_is_loaded_beside_and_counted_in_its_own_part(folder: Path) -> None:
    guessing = {"method": "draft", "tokens": 3, "draftModel": str(folder)}
    plain, loaded = load(folder), load(folder, speculative=guessing, kvCache={"swapSpace": "64Ki"})
    assert (plain.num_guesses, plain.draft) == (0, None)
    assert loaded.num_guesses == 3
    draft, facts = loaded.draft, loaded.facts
    assert draft is not None
    assert draft.memory.slab.shape[0] == facts.num_pages == 4
    assert draft.num_host_pages == facts.num_host_pages > 0
    assert "speculation" not in plain.facts.memory_bytes
    page_bytes, weights_bytes = draft.memory.layout.page_bytes, facts.memory_bytes["weights"]
    assert facts.memory_bytes["speculation"] > weights_bytes + 4 * page_bytes
    assert facts.memory_bytes["overhead"] == plain.facts.memory_bytes["overhead"]
    assert facts.memory_bytes["swap"] == 2 * facts.num_host_pages * page_bytes


def test_a_draft_model_for_shorter_texts_is_refused(folder: Path, tmp_path: Path) -> None:
    short = {**made_models.LLAMA_CONFIG, "max_position_embeddings": 32}
    small = made_models.write_folder(tmp_path / "small", short, made_models.llama_weights(short))
    with pytest.raises(errors.ConfigError, match=r"speculative.draftModel.*64 tokens; it is for 32"):
        load(folder, speculative={"method": "draft", "draftModel": str(small)})
