"""Precision maps: what they mean, and that a wrong one is refused with its place and what to do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.planning import page_layout, precision_map

SHAPE = page_layout.KVShape(num_layers=4, num_kv_heads=3, head_dim=8)
TARGET = precision_map.Target(SHAPE, "fp8_e5m2", num_query_heads=9)


def segments(values: object, target: precision_map.Target = TARGET) -> dict[tuple[int, int, str], str]:
    return {**precision_map.segments_of(precision_map.parse(values, "map.yaml"), target)}


def refusal(values: object, target: precision_map.Target = TARGET) -> str:
    with pytest.raises(errors.ConfigError) as caught:
        segments(values, target)
    return str(caught.value)


def test_a_rule_names_layers_heads_and_kind() -> None:
    found = segments({"rules": [{"layers": [0, "2-3"], "heads": [1], "kind": "v", "dtype": "int8"}]})
    assert found == {(0, 1, "v"): "int8", (2, 1, "v"): "int8", (3, 1, "v"): "int8"}


def test_all_heads_both_kinds_and_sixteen_bits_where_left_out() -> None:
    found = segments({"rules": [{"layers": 1}]})
    assert found == {(1, head, kind): "bfloat16" for head in range(3) for kind in "kv"}


def test_auto_is_what_the_model_keeps() -> None:
    target = precision_map.Target(SHAPE, "int8", keep_dtype="float16")
    assert set(segments({"rules": [{"layers": 1, "dtype": "auto"}]}, target).values()) == {"float16"}


def test_the_short_forms() -> None:
    found = segments({"keepLayers": [0], "keepHeads": {"2": [0, 2]}, "model": "made", "kvDtype": "int8"})
    assert found == {(0, head, kind): "bfloat16" for head in range(3) for kind in "kv"} | {
        (2, head, kind): "bfloat16" for head in (0, 2) for kind in "kv"
    }


def test_rules_may_share_a_layer_but_no_segment() -> None:
    found = segments({"rules": [{"layers": 0, "kind": "k"}, {"layers": 0, "kind": "v", "dtype": "int8"}]})
    assert len(found) == 6


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rules": [{"layers": 4}]}, "map.yaml.rules[0]: layers: got [4], expected layers under 4. The map is of ano"),
        ({"keepLayers": ["2-7"]}, "map.yaml.keepLayers: layers: got [4, 5, 6, 7], expected layers under 4"),
        ({"rules": [{"layers": 0, "heads": [3]}]}, "got [3], expected KV heads under 3. These are query heads, 3 of"),
        ({"rules": [{"layers": 0, "heads": [8]}]}, "8 reads KV head 2. Name that one"),
        ({"rules": [{"layers": 0, "heads": [9]}]}, "map.yaml.rules[0]: heads: got [9], expected KV heads under 3"),
        ({"rules": [{"layers": 0, "kind": "q"}]}, "map.yaml.rules[0].kind: got 'q', expected k (keys), v (values) or"),
        ({"rules": [{"layers": 0, "dtype": "int3"}]}, "map.yaml.rules[0].dtype: got 'int3', expected one of auto"),
        ({"rules": [{"layers": 0, "dtype": "fp8_e5m2"}]}, "expected another dtype than kvCache.dtype. All other se"),
        (
            {"rules": [{"layers": "0-1", "kind": "k"}], "keepHeads": {1: [2]}},
            "map.yaml.keepHeads.1: got 'layer 1, head 2, k', expected segments that no other rule names. "
            "map.yaml.rules[0] names it too. Take it out of one of the two",
        ),
        ({"keepLayers": ["0-3"]}, "map.yaml: got 'all layers and heads kept', expected some segments without a rule"),
        ({"rules": []}, "map.yaml: got {'rules': []}, expected at least one rule"),
        ({"rules": {"layers": 0}}, "map.yaml.rules: got {'layers': 0}, expected a list of rules"),
        ({"rules": [3]}, "map.yaml.rules[0]: got 3, expected a mapping with layers, heads, kind, dtype"),
        ({"rules": [{"kind": "k"}]}, "map.yaml.rules[0].layers: got None, expected a number from 0"),
        ({"rules": [{"layers": "5-3"}]}, "map.yaml.rules[0].layers: got '5-3', expected a number from 0, a range"),
        ({"rules": [{"layers": -1}]}, "map.yaml.rules[0].layers: got -1, expected a number from 0"),
        ({"rules": [{"layers": True}]}, "map.yaml.rules[0].layers: got True"),
        ({"rules": [{"layers": [1, "0-2"]}]}, "map.yaml.rules[0].layers: got [1, '0-2'], expected a number"),
        ({"rules": [{"layers": "0-99999999999"}]}, "map.yaml.rules[0].layers: got '0-99999999999'"),
        ({"rules": [{"layers": 0, "head": 1}]}, "map.yaml.rules[0].head: got 'this key', expected one of layers, hea"),
        ({"keepHeads": [1]}, "map.yaml.keepHeads: got [1], expected layers and their heads"),
        ({"keepHeads": {"x": [1]}}, "map.yaml.keepHeads.x: got 'x', expected a number from 0"),
        ({"layers": [1]}, "map.yaml.layers: got 'this key', expected one of rules, keepLayers, keepHeads"),
        ([1], "map.yaml: got [1], expected a mapping. Such as: rules"),
    ],
)
def test_a_wrong_map_is_refused_with_place_and_remedy(values: object, words: str) -> None:
    assert words in refusal(values)


def test_a_dtype_that_the_rest_has_too_is_told_once_for_all_rules() -> None:
    rules = [{"layers": layer, "dtype": "int8"} for layer in range(3)]
    target = precision_map.Target(SHAPE, "int8")
    told = "map.yaml.rules[0] and 2 more: dtype: got 'int8', expected another dtype than kvCache.dtype. "
    why = "All other segments are int8 too, so nothing would change. Remove these rules"
    assert refusal({"rules": rules}, target) == f"{told}{why}"
    assert refusal({"rules": rules, "kvDtype": "int8"}, target) == f"{told}{why}"
    assert refusal({"rules": rules, "kvDtype": "of another time"}, target) == f"{told}{why}"
    noted = refusal({"rules": rules, "kvDtype": "int4"}, target)
    assert noted == f"{told}{why}, or set kvCache.dtype to int4, which the map was found for"


def test_sixteen_bits_under_sixteen_bits_want_fewer_for_the_rest() -> None:
    target = precision_map.Target(SHAPE, "bfloat16")
    plain = refusal({"keepLayers": [0]}, target)
    assert plain.endswith("Set kvCache.dtype to one of 8 bits; or give the rule another dtype, or leave the map out")
    noted = refusal({"keepLayers": [0], "kvDtype": "fp8_e4m3"}, target)
    assert "Set kvCache.dtype to fp8_e4m3, which the map was found for; or give the rule another dtype" in noted


def test_all_problems_are_told_at_once() -> None:
    assert len(refusal({"rules": [{"layers": 9}, {"layers": 0, "heads": [7]}]}).splitlines()) == 2


def test_what_is_written_is_what_was_meant() -> None:
    chance = random.Random(5)
    places = [(layer, head, kind) for layer in range(4) for head in range(3) for kind in page_layout.KINDS]
    for _ in range(50):
        chosen = chance.sample(places, chance.randint(1, len(places) - 1))
        wanted = {place: chance.choice(("bfloat16", "int8")) for place in chosen}
        assert segments(precision_map.to_mapping(wanted, SHAPE)) == wanted


def test_rules_are_the_same_as_settings() -> None:
    rules = [{"layers": [0, "2-3"], "heads": [1, 2], "kind": "v", "dtype": "int8"}, {"layers": 1}]
    read = precision_map.parse({"rules": rules, "keepHeads": {"0": [0]}}, "map.yaml")
    written = precision_map.of_settings(precision_map.to_settings(read))
    assert precision_map.segments_of(written, TARGET) == precision_map.segments_of(read, TARGET)


def test_what_is_written_is_short() -> None:
    wanted: dict[tuple[int, int, page_layout.Kind], str] = {
        (layer, head, kind): "bfloat16" for layer in (0, 1, 2) for head in range(3) for kind in page_layout.KINDS
    }
    written: dict[str, Any] = precision_map.to_mapping(wanted | {(3, 1, "k"): "bfloat16"}, SHAPE)
    assert written == {
        "rules": [
            {"layers": ["0-2"], "kind": "both", "dtype": "bfloat16"},
            {"layers": [3], "heads": [1], "kind": "k", "dtype": "bfloat16"},
        ]
    }
