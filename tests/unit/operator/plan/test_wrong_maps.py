"""Wrong precision maps as whoever writes a manifest meets them: before any pod, with the place and a remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import api, cli, names, plan


def document(kv_cache: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": "base"},
        "spec": {
            "model": {"source": {"package": {"name": "smollm2-135m"}}},
            "hardware": {"resourceName": "cpu", "memory": "4Gi"},
            "kvCache": kv_cache,
        },
    }


@pytest.mark.parametrize(
    ("kv_cache", "place", "remedy"),
    [
        (
            {"dtype": "int8", "precision": {"mapRef": {"name": "m"}, "keepHeads": {"1": [0]}}},
            "spec.kvCache.precision: got mapRef and keepHeads, expected either mapRef or the lists",
            "Remove one of them",
        ),
        (
            {"dtype": "int8", "precision": {"keepLayers": [1], "keepHeads": {"1": [0]}}},
            "spec.kvCache.precision.keepHeads.1: got heads of layer 1, expected a layer that is not in keepLayers",
            "Remove it from one of the two",
        ),
        ({"dtype": "int7"}, "spec.kvCache.dtype: got 'int7', expected one of auto, ", "Did you mean int8?"),
        (
            {"dtype": "bfloat16", "precision": {"mapRef": {"name": "m"}}},
            "spec.kvCache.precision: got a precision map, expected none with kvCache.dtype bfloat16",
            "Remove it, or set dtype: int8",
        ),
        (
            {"dtype": "int8", "precision": {"keepLayers": [-1]}},
            "spec.kvCache.precision.keepLayers[0]: got -1",
            "",
        ),
        (
            {"dtype": "int8", "precision": {"mapRef": {"name": "Not A Name"}}},
            "spec.kvCache.precision.mapRef.name: got 'Not A Name'",
            "",
        ),
    ],
)
def test_render_refuses_with_place_and_remedy(
    kv_cache: dict[str, Any], place: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(json.dumps(document(kv_cache)))
    assert cli.run(["render", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert place in said.err
    assert remedy in said.err


@pytest.mark.parametrize(
    ("precision", "place", "remedy"),
    [
        ({"keepLayers": [0, 30]}, "layers: got [30], expected layers under 30", "find one with `tidemark eval"),
        ({"keepHeads": {"31": [0]}}, "layers: got [31], expected layers under 30", "find one with `tidemark eval"),
        ({"keepHeads": {"3": [4]}}, "heads: got [4], expected KV heads under 3", "4 reads KV head 1. Name that one"),
        ({"keepHeads": {"3": [9]}}, "heads: got [9], expected KV heads under 3", ""),
        (
            {"keepLayers": list(range(30))},
            "got 'all layers and heads kept', expected some segments without a rule",
            "leave layers out of the map, or set kvCache.dtype itself",
        ),
    ],
)
def test_a_map_that_the_known_model_cannot_have_starts_no_pod(
    precision: dict[str, Any], place: str, remedy: str
) -> None:
    found = plan.fit(api.parse(document({"dtype": "int8", "precision": precision})), {})
    assert found.refused
    assert place in found.message
    assert remedy in found.message
