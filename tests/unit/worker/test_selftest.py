"""Before a worker is there its kernels are tested on the model itself, and what it tells is what ran."""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import made_models
import pytest
import torch

from tidemark_kernels import dispatch
from tidemark_runtime import config, errors
from tidemark_runtime.contract import status
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.model import sources
from tidemark_runtime.worker import loading, sampling_math, selftest, selftest_host, selftest_layers, swap, torch_worker

NO_COMPILER = "no C compiler found (looked for cc, gcc, clang); install gcc"


def settings(**sections: dict[str, Any]) -> config.EngineConfig:
    return config.EngineConfig(
        model=config.ModelConfig(**{"dtype": "float32", **sections.get("model", {})}),
        kv_cache=config.KVCacheConfig(**{"num_pages": 12, "block_size": 4, **sections.get("kv_cache", {})}),
        scheduler=config.SchedulerConfig(max_num_seqs=3),
        hardware=config.HardwareConfig(**{"threads": 1, **sections.get("hardware", {})}),
    )


def source(path: Path) -> sources.ModelSource:
    return sources.ModelSource("gguf" if path.suffix == ".gguf" else "huggingface", path, "made")


def load(path: Path, **sections: dict[str, Any]) -> loading.Loaded:
    return loading.load(settings(**sections), source(path), lambda _phase, _fraction: None)


def create(path: Path, **sections: dict[str, Any]) -> torch_worker.TorchWorker:
    return torch_worker.create(settings(**sections), source(path), lambda _phase, _fraction: None)


def by_op(paths: tuple[status.KernelPath, ...]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for each in paths:
        found.setdefault(each.op, []).append((each.path, each.dtype))
    return found


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> dispatch.Choice:
    chosen = dispatch.choose(find=lambda: None)
    monkeypatch.setattr(dispatch, "current", lambda: chosen)
    return chosen


class Broken:
    """The compiled library with an RMS norm whose first number is one too large."""

    def __init__(self, whole: object) -> None:
        self.__dict__.update(vars(whole))
        right = self.__dict__["rms_norm"]

        def wrong(*arguments: Any) -> None:
            right(*arguments)
            ctypes.c_float.from_address(arguments[4]).value += 1.0

        self.rms_norm = wrong


@pytest.fixture
def broken_norm(monkeypatch: pytest.MonkeyPatch) -> dispatch.Choice:
    chosen = dispatch.current()
    broken = dataclasses.replace(chosen, library=Broken(chosen.library), counts={})  # type: ignore[arg-type]
    monkeypatch.setattr(dispatch, "current", lambda: broken)
    return broken


# ----------------------------------------------------------------------------------------------- what is told


def test_paths_are_those_of_the_model(gguf_file: Path) -> None:
    paths = create(gguf_file, kv_cache={"dtype": "int8", "swap_space": 1 << 20}).facts.kernel_paths
    found = by_op(paths)
    assert found["paged_attention"] == found["rope_and_write"] == [("cpu-c", "int8")]
    assert found["rms_norm"] == found["silu_mul"] == [("cpu-c", "float32")]
    assert found["embedding"] == found["head"] == [("grouped8", "float32")]
    assert found["sampler"] == [("numpy", "float32")]
    assert found["swap_copy"] == [("numpy", "uint8")]
    assert "grouped_linear_int8" not in found, "only what the model uses"
    assert {each.self_test for each in paths} == {status.SelfTest.OK}
    assert all(0.0 <= each.largest_error <= each.tolerance for each in paths)
    assert all(each.is_planned and not each.reason for each in paths)


def test_without_swap_space_no_copy_is_told(folder: Path) -> None:
    assert "swap_copy" not in by_op(create(folder).facts.kernel_paths)


def test_a_map_gives_one_series_for_each_dtype(folder: Path) -> None:
    rule = config.PrecisionRule(layers="0", kind="k", dtype="bfloat16")
    found = by_op(create(folder, kv_cache={"dtype": "fp8_e5m2", "precision": (rule,)}).facts.kernel_paths)
    assert found["paged_attention"] == found["rope_and_write"] == [("cpu-c", "bfloat16"), ("cpu-c", "fp8_e5m2")]


def test_int8_weights_compute_in_int8(gguf_file: Path) -> None:
    paths = create(gguf_file, model={"quantization": "int8"}).facts.kernel_paths
    found = by_op(paths)
    assert found["grouped_linear_int8"] == [("cpu-c", "int8")]
    assert {dtype for _, dtype in found["linear"]} == {"int8"}
    assert {each.self_test for each in paths} == {status.SelfTest.OK}


def test_activations_in_bfloat16(gguf_file: Path) -> None:
    found = by_op(create(gguf_file, model={"dtype": "bfloat16"}).facts.kernel_paths)
    assert found["rms_norm"] == [("cpu-c", "bfloat16")]


def test_a_path_that_a_later_step_takes_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told is what ran, not what was decided."""
    worker = create(folder)
    assert by_op(worker.facts.kernel_paths)["rms_norm"] == [("cpu-c", "float32")]
    slow = dataclasses.replace(dispatch.current(), library=None, reason="it vanished")
    monkeypatch.setattr(dispatch, "current", lambda: slow)
    join = step_plan.Join(0, (5, 1, 40), 3, sampling.SamplingParams(max_tokens=1, temperature=0.0), pages=(0,))
    worker.execute(step_plan.StepPlan(step=1, joins=(join,), chunks=(step_plan.Chunk(0, 0, 3, True),)))
    norms = [each for each in worker.facts.kernel_paths if each.op == "rms_norm"]
    assert [(each.path, each.reason) for each in norms] == [("cpu-c", ""), ("torch", "it vanished")]
    with pytest.raises(errors.KernelPathError, match=r"rms_norm \(float32\).*it vanished"):
        selftest.refuse(worker.facts.kernel_paths)


def test_the_log_says_that_it_was_tested(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        selftest.run(load(folder))
    assert "op=paged_attention dtype=float32 ok=True" in caplog.text
    assert "failed=0" in caplog.text


# ------------------------------------------------------------------------------------------------ what is refused


def test_a_wrong_kernel_is_refused_by_name(folder: Path, broken_norm: dispatch.Choice) -> None:
    assert broken_norm.library is not None
    with pytest.raises(errors.SelfTestFailed) as caught:
        create(folder)
    message = str(caught.value)
    assert "rms_norm in float32 has an error of" in message
    assert "silu_mul" not in message
    assert f"Delete {broken_norm.library.path}" in message


def test_a_wrong_layer_is_refused_by_name(folder: Path) -> None:
    """The kernels are right, and what was loaded is not what the checkpoint says."""
    loaded = load(folder)
    number = next(place for place, each in enumerate(loaded.probes) if each.use == "linear")
    probe = loaded.probes[number]
    shifted = dataclasses.replace(probe, layer=lambda x: probe.layer(x).roll(1, dims=1))
    wrong = (*loaded.probes[:number], shifted, *loaded.probes[number + 1 :])
    with pytest.raises(errors.SelfTestFailed, match=rf"linear in float32 has an error of .*{probe.name}"):
        selftest.run(dataclasses.replace(loaded, probes=wrong))


def test_a_checkpoint_with_nan_is_no_fault_of_the_kernels(tmp_path: Path) -> None:
    weights = made_models.llama_weights()
    weights["model.embed_tokens.weight"].fill_(math.nan)
    path = made_models.write_folder(tmp_path / "nan", made_models.LLAMA_CONFIG, weights)
    with pytest.raises(errors.CorruptModel, match="the embedding: the checkpoint has an infinity or a NaN in it"):
        selftest.run(load(path))


@pytest.mark.parametrize("quantization", ["auto", "none", "int8", "int8_weight_only", "fp8_weight_only"])
@pytest.mark.parametrize("use", ["linear", "embedding", "head"])
def test_each_form_is_held_against_the_checkpoint(folder: Path, quantization: str, use: str) -> None:
    """A layer made of the rows above its own: right numbers at wrong places, in every form."""
    loaded = load(folder, model={"quantization": quantization})
    for probe in (each for each in loaded.probes if each.use == use):
        right = selftest_layers.run(probe, torch.float32).outcome
        assert right.ok, right
        moved = dataclasses.replace(probe, weight=probe.weight.roll(1, dims=0))
        assert not selftest_layers.run(moved, torch.float32).outcome.ok


def test_strict_kernels_refuse_before_anything_is_loaded(without_compiler: dispatch.Choice, tmp_path: Path) -> None:
    with pytest.raises(errors.KernelPathError) as caught:
        create(tmp_path / "missing", hardware={"strict_kernels": True})
    message = str(caught.value)
    assert "paged_attention" in message
    assert f"planned on cpu-c, but torch would run them: {NO_COMPILER}" in message
    assert "set hardware.strictKernels to false" in message


def test_without_strict_kernels_it_runs_and_says_so(folder: Path, without_compiler: dispatch.Choice) -> None:
    paths = create(folder).facts.kernel_paths
    slow = {each.op for each in paths if not each.is_planned}
    assert {"paged_attention", "rms_norm", "rope_and_write", "silu_mul"} <= slow
    assert {each.reason for each in paths if not each.is_planned} == {NO_COMPILER}
    assert {each.self_test for each in paths} == {status.SelfTest.OK}, "slow is not wrong"


def test_strict_kernels_pass_where_all_is_as_planned(folder: Path) -> None:
    assert create(folder, hardware={"strict_kernels": True}).facts.kernel_paths


@pytest.mark.parametrize(
    ("device", "strict_kernels", "wanted"),
    [("cpu", None, False), ("cuda", None, True), ("cpu", True, True), ("cuda", False, False)],
)
def test_strict_by_default_on_a_device_only(device: str, strict_kernels: bool | None, wanted: bool) -> None:
    assert selftest.is_strict(config.HardwareConfig(device=device, strict_kernels=strict_kernels)) is wanted


def test_reasons_are_told_once_with_their_ops() -> None:
    paths = [
        status.KernelPath("rms_norm", "cpu-c", "torch", "float32", reason="no compiler"),
        status.KernelPath("silu_mul", "cpu-c", "torch", "float32", reason="no compiler"),
        status.KernelPath("linear", "grouped4", "grouped4", "float32"),
    ]
    with pytest.raises(errors.KernelPathError, match=r"rms_norm \(float32\), silu_mul \(float32\): planned on cpu-c"):
        selftest.refuse(paths)
    selftest.refuse(paths[2:])


# ---------------------------------------------------------------------------------------------- what runs in numpy


def test_a_wrong_draw_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(outcome.ok for outcome in selftest_host.sampler())
    right = sampling_math.draw
    monkeypatch.setattr(sampling_math, "draw", lambda *arguments: right(*arguments) + 1)
    assert not all(outcome.ok for outcome in selftest_host.sampler())


def test_a_wrong_copy_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(outcome.ok for outcome in selftest_host.swap_copy(1024))
    right = swap.SwapSpace.copy_in
    monkeypatch.setattr(swap.SwapSpace, "copy_in", lambda space, copies: right(space, copies[:1]))
    (outcome,) = selftest_host.swap_copy(1024)
    assert not outcome.ok
    assert outcome.error == math.inf
