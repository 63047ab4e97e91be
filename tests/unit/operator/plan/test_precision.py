"""The precision map in a ConfigMap is counted, page by page; one that engines would not take starts no pod."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator import api, names, plan
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_operator.plan import precision
from tidemark_runtime.planning import capacity, page_layout

SHAPE = capacity.KNOWN_SHAPES["smollm2-135m"]
RULES = "rules: [{layers: [0, 3-5], kind: k}, {layers: 29, heads: 2}]\n"
KEPT = [(layer, head, "k") for layer in (0, 3, 4, 5) for head in range(3)] + [(29, 2, "k"), (29, 2, "v")]


def service(*, precision: Any = None, **kv_cache: Any) -> api.InferenceService:
    found = precision or {"mapRef": {"name": "found"}}
    document = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "base"},
        "spec": {
            "model": {"source": {"package": {"name": "smollm2-135m"}}},
            "hardware": {"resourceName": "cpu", "memory": "4Gi"},
            "kvCache": {"dtype": "int8", "precision": found, **kv_cache},
        },
    }
    return api.parse(document)


def fit(text: str | None, asked: api.InferenceService | None = None, key: str = "precision.yaml") -> plan.Fit:
    asked = asked or service()
    return plan.fit(asked, {}, plan.read_map(asked, None if text is None else {"data": {key: text}}))


def test_the_page_has_the_bytes_of_the_map() -> None:
    asked = service()
    wanted = plan_capacity.wanted(asked, 4 << 30, None, plan.read_map(asked, {"data": {"precision.yaml": RULES}}))
    layout, _ = capacity.layout_and_demand(SHAPE, wanted)
    expected = page_layout.PageLayout(
        capacity.kv_shape(SHAPE),
        16,
        "int8",
        dict.fromkeys(KEPT, "bfloat16"),
        fixed_scales=False,  # type: ignore[arg-type]
    )
    assert layout.page_bytes == expected.page_bytes
    pages = capacity.plan(SHAPE, wanted).num_pages
    found = fit(RULES)
    assert found.fits
    assert f"in {pages:,} pages." in found.message
    assert "The precision map in ConfigMap found keeps 14 of 180 segments in bfloat16." in found.message
    assert pages < capacity.plan(SHAPE, plan_capacity.wanted(asked, 4 << 30)).num_pages


def test_it_is_the_sum_of_the_same_map_in_the_manifest() -> None:
    written = plan.fit(service(precision={"keepLayers": [1, 7], "keepHeads": {"9": [0]}}), {}).message
    read = fit("rules: [{layers: [1, 7]}, {layers: 9, heads: [0]}]").message
    assert read.startswith(written)
    short = fit("keepLayers: [1, 7]\nkeepHeads: {'9': [0]}").message
    assert short == read


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [{layers: seven}]", "ConfigMap found: precision.yaml.rules[0].layers: got 'seven', expected a number"),
        ("rules: [", "ConfigMap found: precision.yaml: got"),
        ("nonsense", "expected a mapping"),
        ("rules: []", "expected at least one rule"),
        ("rules: [{layers: 30}]", "rules[0]: layers: got [30], expected layers under 30"),
        ("rules: [{layers: 3, heads: 4}]", "heads: got [4], expected KV heads under 3"),
        (
            "rules: [{layers: 1}, {layers: 3, dtype: int4}]",
            "precision.yaml.rules[1].dtype: got int4, expected it only together with kvCache.allowLossy: true",
        ),
        ("{model: other, rules: [{layers: 30}]}", "The map is of another model (other, it says), or mistyped"),
    ],
)
def test_a_map_that_no_engine_takes_starts_no_pod(text: str, words: str) -> None:
    found = fit(text)
    assert (found.fits, found.reason) == (False, "PrecisionMapUnusable")
    assert words in found.message
    assert "Correct it, or change spec.kvCache.precision.mapRef. No pods are started for this spec." in found.message


def test_four_bits_that_are_allowed_are_counted() -> None:
    found = fit("rules: [{layers: 3, dtype: int4}]", service(allowLossy=True))
    assert found.fits
    assert "6 of 180 segments in int4" in found.message


def test_four_bits_are_refused_on_a_device_with_their_place() -> None:
    asked = service(allowLossy=True)
    document = asked.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    document["spec"]["hardware"] = {"resourceName": "nvidia.com/gpu", "count": 1, "memory": "24Gi"}
    on_device = api.parse({"apiVersion": names.API_VERSION, "kind": names.KIND, **document})
    found = fit("rules: [{layers: 1}, {layers: 3, dtype: int4}]", on_device)
    assert (found.fits, found.reason) == (False, "PrecisionMapUnusable")
    place = "ConfigMap found: precision.yaml.rules[1].dtype: got int4, expected another dtype on a device: no kernel"
    assert place in found.message
    assert fit("rules: [{layers: 1}]", on_device).fits


@pytest.mark.parametrize(("model", "told"), [("smollm2-135m", False), ("other", True)])
def test_a_map_that_was_found_for_another_model_is_told_of(model: str, told: bool) -> None:
    found = fit(f"{{model: {model}, rules: [{{layers: 1}}]}}")
    assert found.fits
    assert ("was found for the model other, by its own word, and this one is smollm2-135m" in found.message) == told


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"package": {"name": "smollm2-135m"}}, "smollm2-135m"),
        ({"hostPath": {"path": "/srv/models/Qwen2.5-7B/"}}, "Qwen2.5-7B"),
        ({"pvc": {"claimName": "c", "path": "a/b.gguf"}}, "b"),
        ({"pvc": {"claimName": "c"}}, ""),
    ],
)
def test_the_models_name_is_that_of_its_files(source: dict[str, Any], name: str) -> None:
    document = _of_path()
    document["spec"]["model"]["source"] = source
    assert precision.name_of_model(api.parse(document)) == name


def test_a_config_map_without_the_key_says_which_it_has() -> None:
    found = fit(RULES, key="map.json")
    assert found.refused
    assert "ConfigMap found: data has map.json, expected precision.yaml" in found.message
    empty = plan.fit(service(), {}, plan.read_map(service(), {"metadata": {}}))
    assert "ConfigMap found: data has nothing, expected precision.yaml" in empty.message


def test_one_that_is_missing_keeps_pods_waiting_and_nothing_is_guessed() -> None:
    found = fit(None)
    assert (found.fits, found.reason, found.refused) == (None, "ConfigMapNotFound", False)
    assert "ConfigMap found (spec.kvCache.precision.mapRef) does not exist" in found.message
    assert "Create it in the service's namespace" in found.message


def test_a_wrong_map_is_told_although_the_model_is_not_known() -> None:
    asked = service()
    unknown = api.parse({**asked.model_dump(by_alias=True, exclude_none=True), **_of_path()})
    assert fit("rules: 3", unknown).refused
    assert fit(RULES, unknown).fits is None


def _of_path() -> dict[str, Any]:
    spec = {
        "model": {"source": {"hostPath": {"path": "/models"}}},
        "hardware": {"resourceName": "cpu", "memory": "4Gi"},
        "kvCache": {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}},
    }
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "base"}, "spec": spec}


def test_a_service_without_a_reference_reads_nothing() -> None:
    assert plan.read_map(service(precision={"keepLayers": [1]}), None) is None
