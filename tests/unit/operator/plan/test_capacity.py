"""What the plan says before any pod exists."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator import api, names, plan
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_runtime.planning import capacity


def service(hardware: dict[str, Any], **spec: Any) -> api.InferenceService:
    document = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "base"},
        "spec": {"model": {"source": {"package": {"name": "smollm2-135m"}}}, "hardware": hardware, **spec},
    }
    return api.parse(document)


def test_it_fits_with_the_sum() -> None:
    found = plan.fit(service({"resourceName": "cpu", "memory": "4Gi"}), {})
    assert found.fits is True
    assert "weights 94 MiB + kv" in found.message
    assert "of 4,096 MiB: room for" in found.message


def test_it_does_not_fit_with_the_sum_and_the_remedy() -> None:
    found = plan.fit(service({"resourceName": "cpu", "memory": "600Mi"}), {})
    assert found.refused
    assert "The model does not fit: weights 93.8 MiB + activations" in found.message
    assert "Give the service at least" in found.message


def test_devices_share_the_model_and_each_has_its_own_framework() -> None:
    """Nine query heads over three KV heads divide by three; driver, libraries and graphs are on each device."""
    one = plan.fit(service({"resourceName": "nvidia.com/gpu", "count": 1, "memory": "2Gi"}), {})
    three = plan.fit(service({"resourceName": "nvidia.com/gpu", "count": 3, "memory": "2Gi"}), {})
    assert (one.fits, three.fits) == (True, True)
    assert "weights 94 MiB" in one.message
    assert "weights 31 MiB" in three.message
    assert "overhead 1,024 MiB" in three.message
    assert "of 2,048 MiB of each of 3 devices" in three.message
    assert tokens(three) > 3 * tokens(one)


def test_a_model_that_cannot_be_divided_is_refused_with_the_numbers_that_can() -> None:
    found = plan.fit(service({"resourceName": "nvidia.com/gpu", "count": 4, "memory": "24Gi"}), {})
    assert found.refused
    told = (
        "cannot be divided among 4 devices: 9 query heads; 3 KV heads do not divide. Set hardware.count to one of 1, 3"
    )
    assert told in found.message


def test_a_draft_model_whose_files_are_not_read_is_said() -> None:
    draft = {"speculative": {"method": "draft", "draftModel": "smollm2-135m"}}
    hardware = {"resourceName": "cpu", "memory": "4Gi"}
    known = plan.fit(service(hardware, **draft), {})
    draft["speculative"]["draftModel"] = "mine"
    unknown = plan.fit(service(hardware, **draft), {})
    said = "The draft model mine is not read by the operator, nor known by its name. Of guesses only their logits"
    assert known.fits is unknown.fits is True
    assert (said in unknown.message, "draft model" in known.message) == (True, False)
    assert tokens(unknown) > tokens(known), "only logits are counted"


def test_an_index_of_texts_is_in_the_memory_of_a_processor_and_not_in_that_of_a_device() -> None:
    guesses = {"speculative": {"method": "ngram", "tokens": 4}}
    for hardware, is_counted in (
        ({"resourceName": "cpu", "memory": "4Gi"}, True),
        ({"resourceName": "nvidia.com/gpu", "count": 1, "memory": "4Gi"}, False),
    ):
        wanted = plan_capacity.wanted(service(hardware, **guesses), 4 << 30)
        assert wanted.speculation.has_index == is_counted


@pytest.mark.parametrize(
    ("resource", "graphs", "expanded"),
    [("nvidia.com/gpu", True, False), ("gpu.intel.com/i915", False, False), ("huawei.com/Ascend910", False, True),
     ("example.com/new", True, False)],
)  # fmt: skip
def test_a_vendor_without_kernels_or_graphs_is_counted_as_its_engine_counts(
    resource: str, graphs: bool, expanded: bool
) -> None:
    asked = service({"resourceName": resource, "count": 1, "memory": "4Gi"})
    assert bool(plan_capacity.wanted(asked, 4 << 30).graphs_bytes) == graphs
    shape, _ = plan_capacity.known_shape(asked, {})
    assert shape is not None
    stored = capacity.KNOWN_SHAPES["smollm2-135m"].weights_bytes
    assert shape.weights_bytes == (pytest.approx(2 * 134_515_008, rel=0.001) if expanded else stored)


def test_several_devices_record_no_steps() -> None:
    asked = service({"resourceName": "nvidia.com/gpu", "count": 3, "memory": "4Gi"})
    assert plan_capacity.wanted(asked, 4 << 30).graphs_bytes == 0


def test_a_map_that_was_not_given_is_not_counted_and_the_message_says_so() -> None:
    hardware = {"resourceName": "cpu", "memory": "4Gi"}
    mapped = {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}}
    asked, plain = service(hardware, kvCache=mapped), service(hardware, kvCache={"dtype": "int8"})
    found = plan.fit(asked, {})
    assert tokens(found) == tokens(plan.fit(plain, {}))
    assert "ConfigMap found (spec.kvCache.precision.mapRef) was not given" in found.message
    kept = found.message.rpartition("would leave ")[2].partition(" tokens")[0]
    sixteen = plan.fit(service(hardware, kvCache={"dtype": "bfloat16"}), {})
    assert int(kept.replace(",", "")) == tokens(sixteen)
    assert "mapRef" not in sixteen.message


def test_without_a_limit_or_a_shape_nothing_is_guessed() -> None:
    assert plan.fit(service({"resourceName": "cpu"}), {}).fits is None
    unknown = service({"resourceName": "cpu", "memory": "1Gi"}, model={"source": {"hostPath": {"path": "/m"}}})
    assert plan.fit(unknown, {}).fits is None


SHAPE = {
    "source": "/models",
    "numLayers": 2,
    "numHeads": 2,
    "numKvHeads": 1,
    "headDim": 64,
    "hiddenSize": 128,
    "intermediateSize": 256,
    "vocabSize": 1000,
    "maxContextTokens": 4096,
    "weightsBytes": 2**31,
    "overheadBytes": 2**20,
}


def test_what_an_engine_measured_counts_while_the_source_stays() -> None:
    of_path = service({"resourceName": "cpu", "memory": "1Gi"}, model={"source": {"hostPath": {"path": "/m"}}})
    assert plan.fit(of_path, {"shape": SHAPE}).fits is False
    assert plan.fit(of_path, {"shape": {**SHAPE, "source": "/models/other.gguf"}}).fits is None
    assert plan.fit(of_path, {"shape": {**SHAPE, "numLayers": None}}).fits is None
    assert plan.fit(of_path, {"shape": "nonsense"}).fits is None


@pytest.mark.parametrize(("setting", "fewer"), [("blockSize", 16), ("memoryUtilization", 0.5)])
def test_the_settings_of_the_spec_count(setting: str, fewer: float) -> None:
    hardware = {"resourceName": "cpu", "memory": "2Gi"}
    usual, changed = service(hardware), service(hardware, kvCache={setting: fewer})
    if setting == "memoryUtilization":
        assert plan.fit(usual, {}).message != plan.fit(changed, {}).message
    else:
        assert plan.fit(usual, {}) == plan.fit(changed, {})


def test_more_context_needs_no_more_than_the_model_takes() -> None:
    shape = capacity.KNOWN_SHAPES["smollm2-135m"]
    wanted: dict[str, Any] = {
        "kv_dtype": "float32",
        "block_size": 16,
        "memory_utilization": 0.9,
        "max_num_seqs": 1,
        "max_num_batched_tokens": 64,
        "limit_bytes": 2**34,
    }
    most = capacity.plan(shape, capacity.Wanted(max_context_tokens=None, **wanted))
    over = capacity.plan(shape, capacity.Wanted(max_context_tokens=10**6, **wanted))
    assert most == over
    assert most.num_pages == shape.max_context_tokens // 16


def test_swap_space_is_a_part_of_the_pods_memory() -> None:
    hardware = {"resourceName": "cpu", "memory": "2Gi"}
    usual, swapping = (plan.fit(service(hardware, kvCache={"swapSpace": size}), {}) for size in ("0", "512Mi"))
    assert (usual.fits, swapping.fits) == (True, True)
    assert "swap" not in usual.message
    assert " + swap 512 MiB = " in swapping.message
    assert tokens(usual) > tokens(swapping) > 0


def test_too_much_swap_space_is_refused_with_what_would_fit() -> None:
    found = plan.fit(service({"resourceName": "cpu", "memory": "2Gi"}, kvCache={"swapSpace": "1.5Gi"}), {})
    assert found.refused
    assert "swap space 1,5" in found.message
    assert "Lower kvCache.swapSpace to at most" in found.message
    limit = int(found.message.partition("to at most ")[2].partition(" bytes")[0])
    assert plan.fit(service({"resourceName": "cpu", "memory": "2Gi"}, kvCache={"swapSpace": limit}), {}).fits


def test_swap_space_that_holds_no_page_is_refused_where_the_model_is_known() -> None:
    hardware = {"resourceName": "cpu", "memory": "2Gi"}
    found = plan.fit(service(hardware, kvCache={"swapSpace": "2Mi", "blockSize": 128}), {})
    assert found.refused
    assert found.message.startswith(
        "spec.kvCache.swapSpace: got 2097152, expected 0 or at least one page of 128 tokens"
    )


def test_swap_space_is_no_part_of_a_devices_memory() -> None:
    hardware = {"resourceName": "nvidia.com/gpu", "memory": "2Gi"}
    plain, swapping = (plan.fit(service(hardware, kvCache={"swapSpace": size}), {}) for size in ("0", "64Gi"))
    assert plain == swapping


def tokens(found: plan.Fit) -> int:
    """Of the message `... room for 1,234 tokens in ...`."""
    return int(found.message.partition("room for ")[2].partition(" tokens")[0].replace(",", ""))


def pages(kv_cache: dict[str, Any]) -> int:
    found = plan.fit(service({"resourceName": "cpu", "memory": "1500Mi"}, kvCache=kv_cache), {})
    assert found.fits is True
    words = found.message.replace(",", "").split()
    return int(words[words.index("room") + 2])


def test_eight_bits_make_room_for_almost_four_times_as_many_tokens() -> None:
    exact, quantized = pages({"dtype": "float32"}), pages({"dtype": "int8"})
    assert 3.6 < quantized / exact < 3.9  # 64 bytes and a scale of 4 in place of 256


def test_what_is_kept_at_16_bits_costs_its_bytes() -> None:
    quantized, mixed = pages({"dtype": "int8"}), pages({"dtype": "int8", "precision": {"keepLayers": [0, 1, 2]}})
    assert mixed < quantized
    assert mixed / quantized == pytest.approx(68 / (68 + 3 / 30 * 60), rel=0.01)


def test_a_map_of_another_model_does_not_fit() -> None:
    asked = service(
        {"resourceName": "cpu", "memory": "4Gi"}, kvCache={"dtype": "int8", "precision": {"keepLayers": [40]}}
    )
    found = plan.fit(asked, {})
    assert found.refused
    assert "layers under 30" in found.message
