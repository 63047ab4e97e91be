"""Figures that contradict each other, names that nobody knows, files of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.core import step_time
from tidemark_runtime.simulation import devices, models, profiles, sizing
from tidemark_runtime.worker import step_cost


@pytest.mark.parametrize(("name", "has_bias"), [("7b", True), ("8b", False), ("70b", False)])
def test_parameters_are_those_of_the_shape(name: str, has_bias: bool) -> None:
    shape = models.MODELS[name].shape
    hidden, kv = shape.hidden_size, shape.num_kv_heads * shape.head_dim
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * shape.intermediate_size + 2 * hidden
    layer += (hidden + 2 * kv) if has_bias else 0
    total = 2 * shape.vocab_size * hidden + shape.num_layers * layer + hidden
    assert models.MODELS[name].num_params == total
    assert shape.weights_bytes == 2 * total


def test_quantized_weights_keep_embeddings_and_head() -> None:
    # Qwen2.5-7B-Instruct-AWQ's safetensors have 5.57 GB, Llama-3.1-8B-Instruct-FP8's 9.08 GB.
    assert models.MODELS["7b-4bit"].shape.weights_bytes == pytest.approx(5.57e9, rel=0.03)
    assert models.MODELS["8b-8bit"].shape.weights_bytes == pytest.approx(9.08e9, rel=0.01)


def test_one_token_step_of_an_8b_on_h200_beats_h100s_measured_one() -> None:
    """6.44 ms on H100 (vLLM blog, 2026-04-22) are what the efficiencies come from; H200 has 4.8 for 3.35 TB/s."""
    sized = sizing.size(profiles.load("h200/8b"), config.EngineConfig())
    seconds = sized.cost.seconds(step_time.Work(decodes=1, tokens_read=1), 0, 0).total
    assert seconds == pytest.approx((6.44e-3 - 1.1e-3) * 3.35 / 4.8 + 1.1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l40/8b", "a device before /8b: one of rtx4090"),
        ("l40s/9b", "a model after l40s/: one of 7b"),
        ("nothing", "DEVICE/MODEL such as l40s/8b"),
        ("missing.yaml", "a readable YAML or JSON file"),
    ],
)
def test_an_unknown_profile_is_told_what_there_is(text: str, words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        profiles.load(text)
    assert words in str(caught.value)
    assert repr(text) in str(caught.value)


def write(folder: Path, values: object) -> str:
    file = folder / "mine.json"
    file.write_text(json.dumps(values))
    return str(file)


def test_a_file_may_change_single_figures(tmp_path: Path) -> None:
    values = {"device": {"base": "l40s", "bandwidthBytesPerSecond": 1e12}, "model": {"base": "8b", "weightsBytes": 9e9}}
    found = profiles.load(write(tmp_path, values))
    assert found.name == "mine"
    assert found.device is not None
    assert (found.device.bandwidth, found.device.flops) == (1e12, devices.DEVICES["l40s"].flops)
    assert (found.model.shape.weights_bytes, found.model.shape.num_layers) == (9_000_000_000, 32)


MEASURED: dict[str, Any] = {
    "model": "smollm2-135m",
    "stepSeconds": {"base": 0.004, "decode": 0.001, "promptToken": 0.0005, "tokenRead": 1e-7, "pair": 0},
    "pages": {"num": 500, "numSwap": 20, "copySeconds": 0.0002},
    "hostSeconds": 0.0003,
}


def test_a_measured_profile_has_its_own_prices_and_pages(tmp_path: Path) -> None:
    sized = sizing.size(profiles.load(write(tmp_path, MEASURED)), config.EngineConfig())
    assert sized.cost == step_cost.LinearCost(
        base=0.004, decode=0.001, prompt_token=0.0005, token_read=1e-7, pair=0.0, page_copy_seconds=0.0002
    )
    facts = sized.facts
    assert (facts.num_pages, facts.num_host_pages, facts.page_copy_seconds) == (500, 20, 0.0002)
    assert (facts.max_context_tokens, sized.host_seconds) == (8192, 0.0003)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "l40s"}, "device: got 'both', expected either device"),
        ({"stepSeconds": None}, "device: got 'neither', expected either device"),
        ({"model": "9b"}, "model: got '9b', expected one of 7b"),
        ({"model": {"base": "9b"}}, "model.base: got '9b'"),
        ({"model": {"numLayers": 0}}, "model.numLayers: got 0, expected a whole number of at least 1"),
        ({"model": {"base": "8b", "layers": 3}}, "model.layers: got 'this key', expected a known key"),
        ({"model": 3}, "model: got 3, expected one of 7b"),
        ({"pages": None}, "pages: got None"),
        ({"pages": {"num": 0}}, "pages.num: got 0, expected a whole number of at least 1"),
        ({"pages": {"num": 1e8}}, "pages.num: got 100000000.0, expected a whole number of at least 1 and at most 1677"),
        ({"pages": {"num": 9, "numSwap": 10**9}}, "pages.numSwap: got 1000000000, expected a whole number"),
        ({"stepSeconds": {"base": -1}}, "stepSeconds.base: got -1, expected a number of at least 0"),
        ({"stepSeconds": {"base": 1}}, "stepSeconds.decode: got None"),
        ({"hostSecond": 1}, "hostSecond: got 'this key', expected a known key. Did you mean hostSeconds?"),
    ],
)
def test_a_wrong_figure_is_named(tmp_path: Path, change: dict[str, object], words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        profiles.load(write(tmp_path, MEASURED | change))
    assert words in str(caught.value)


def test_a_device_needs_every_figure_without_a_base(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        profiles.load(write(tmp_path, {"model": "8b", "device": {"name": "x", "memoryEfficiency": 2}}))
    told = str(caught.value)
    for key in ("memoryBytes", "bandwidthBytesPerSecond", "flopsPerSecond", "linkBytesPerSecond", "memoryEfficiency"):
        assert f"device.{key}: got" in told


def test_a_file_that_is_no_mapping(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="It holds no mapping"):
        profiles.load(write(tmp_path, [1]))


def test_what_does_not_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(errors.CapacityError, match=r"weights 134,571 MiB .* too much"):
        sizing.size(profiles.load("h200/70b"), config.EngineConfig())


def test_the_pages_are_the_planners_and_swap_is_the_hosts() -> None:
    plain = sizing.size(profiles.load("l40s/8b"), config.EngineConfig()).facts
    swapping = config_parsing.parse({"kvCache": {"swapSpace": "8Gi"}, "scheduler": {"maxNumSeqs": 64}})
    with_swap = sizing.size(profiles.load("l40s/8b"), swapping).facts
    assert plain.num_pages == with_swap.num_pages
    assert (plain.num_host_pages, plain.page_copy_seconds) == (0, 0.0)
    assert with_swap.num_host_pages == (8 << 30) // with_swap.layout.page_bytes
    assert with_swap.page_copy_seconds == pytest.approx(with_swap.layout.page_bytes / (32e9 * 0.78))
    assert sum(plain.memory_bytes.values()) <= plain.memory_limit_bytes * 0.9
    fixed = config_parsing.parse({"kvCache": {"numPages": 77}})
    assert sizing.size(profiles.load("l40s/8b"), fixed).facts.num_pages == 77


@pytest.mark.parametrize(("setting", "pages"), [({"numPages": 77}, 77), ({"memory": 20 << 20}, 56)])
def test_settings_may_change_a_measured_slab(tmp_path: Path, setting: dict[str, int], pages: int) -> None:
    settings = config_parsing.parse({"kvCache": setting})
    assert sizing.size(profiles.load(write(tmp_path, MEASURED)), settings).facts.num_pages == pages


def test_swap_without_a_measured_copy_is_refused(tmp_path: Path) -> None:
    profile = profiles.load(write(tmp_path, MEASURED | {"pages": {"num": 500, "numSwap": 20}}))
    with pytest.raises(errors.ConfigError, match=r"pages\.copySeconds: got 0"):
        sizing.size(profile, config.EngineConfig())


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"swapSpace": "9999Ti"}, "kvCache.swapSpace: got 10994016766132224, expected at most "),
        ({"memory": "9999Ti"}, "kvCache.memory: got 10994016766132224, expected at most "),
        ({"numPages": 10**9}, "kvCache.numPages: got 1000000000, expected at most 16,777,216 pages"),
    ],
)
def test_more_pages_than_a_simulation_can_list_are_refused(
    tmp_path: Path, setting: dict[str, object], words: str
) -> None:
    settings = config_parsing.parse({"kvCache": setting})
    with pytest.raises(errors.ConfigError) as caught:
        sizing.size(profiles.load(write(tmp_path, MEASURED)), settings)
    assert words in str(caught.value)


def test_a_device_that_nobody_has_is_refused_before_its_pages_are_made(tmp_path: Path) -> None:
    values = {"device": {"base": "l40s", "memoryBytes": 1e18}, "model": "smollm2-135m"}
    settings = config_parsing.parse(
        {"scheduler": {"maxNumSeqs": 4096, "maxNumBatchedTokens": 4096}, "kvCache": {"blockSize": 1}}
    )
    with pytest.raises(errors.ConfigError, match=r"device\.memoryBytes: got room for \d+ pages, expected at most"):
        sizing.size(profiles.load(write(tmp_path, values)), settings)
