"""The ranking and the search, over losses that are known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidemark_runtime.evaluation import configurations, journal, sensitivity
from tidemark_runtime.planning import page_layout

SHAPE = page_layout.KVShape(num_layers=4, num_kv_heads=2, head_dim=32)
DEAR = {(1, 0, "k"): 0.5, (3, 1, "k"): 0.2, (2, 0, "v"): 0.1}
"""Loss of segments when quantized; all others lose 0.001."""


@dataclass
class KnownLosses:
    """Losses add up."""

    measured: list[str] = field(default_factory=list)
    shape: page_layout.KVShape = SHAPE
    base_dtype: str = "float32"
    tokens: int = 100

    def kl(self, configuration: configurations.Configuration) -> float:
        self.measured.append(configuration.dtype)
        layout = configuration.layout(self.shape)
        return sum(
            DEAR.get((segment.layer, segment.head, segment.kind), 0.001)
            for segment in layout.segments
            if segment.dtype.name == "int8"
        )


def search(folder: Path, losses: KnownLosses, resume: bool = False, keep_dtype: str = "bfloat16") -> sensitivity.Search:
    kept = journal.Journal(folder, resume=resume)
    return sensitivity.Search(losses, "int8", keep_dtype, kept, lambda _what, _done, _total: None)


@pytest.mark.parametrize("method", sensitivity.METHODS)
def test_heads_are_ranked_and_the_fewest_are_kept(tmp_path: Path, method: str) -> None:
    found = search(tmp_path, KnownLosses()).run(0.2, None, method, sensitivity.HEADS)
    assert [cost.unit.name for cost in found.ranking[:3]] == [
        "layer 1 head 0 k",
        "layer 3 head 1 k",
        "layer 2 head 0 v",
    ]
    assert found.ranking[0].kl == pytest.approx(0.5)
    assert found.plain.kl == pytest.approx(0.8 + 13 * 0.001)
    assert set(found.segments) == {(1, 0, "k"), (3, 1, "k")}
    assert set(found.segments.values()) == {"bfloat16"}
    assert found.chosen is not None
    assert found.chosen.kl == pytest.approx(0.1 + 13 * 0.001)


def test_auto_looks_into_the_dear_layers_only(tmp_path: Path) -> None:
    losses = KnownLosses()
    found = search(tmp_path, losses).run(0.2, None, sensitivity.QUANTIZE, sensitivity.AUTO)
    assert set(found.segments) == {(1, 0, "k"), (3, 1, "k")}
    assert [cost.unit.head for cost in found.ranking if cost.unit.layer == 0] == [None, None]
    layers, heads = 8, 4
    assert losses.measured.count("float32") == layers + heads


def test_layers_keep_whole_layers(tmp_path: Path) -> None:
    found = search(tmp_path, KnownLosses()).run(0.2, None, sensitivity.QUANTIZE, sensitivity.LAYERS)
    assert set(found.segments) == {(layer, head, "k") for layer in (1, 3) for head in range(2)}


def test_the_default_limit_is_half_of_the_loss(tmp_path: Path) -> None:
    found = search(tmp_path, KnownLosses()).run(None, None, sensitivity.QUANTIZE, sensitivity.HEADS)
    assert found.limit == pytest.approx(found.plain.kl / 2)
    assert set(found.segments) == {(1, 0, "k")}


def test_no_map_where_none_is_needed(tmp_path: Path) -> None:
    found = search(tmp_path, KnownLosses()).run(5.0, None, sensitivity.QUANTIZE, sensitivity.HEADS)
    assert found.chosen == found.plain
    assert found.segments == {}


def test_a_budget_of_bytes_bounds_the_map(tmp_path: Path) -> None:
    losses = KnownLosses()
    allowed = search(tmp_path / "enough", losses).run(0.2, 0.2, sensitivity.QUANTIZE, sensitivity.HEADS)
    assert allowed.chosen is not None
    assert allowed.chosen.kv_token_bytes <= allowed.plain.kv_token_bytes * 1.2
    refused = search(tmp_path / "little", losses).run(0.2, 0.05, sensitivity.QUANTIZE, sensitivity.HEADS)
    assert refused.chosen is None
    assert all(point.kv_token_bytes <= refused.plain.kv_token_bytes * 1.05 for point in refused.points)


def test_another_8_bit_dtype_takes_no_more_bytes(tmp_path: Path) -> None:
    found = search(tmp_path, KnownLosses(), keep_dtype="fp8_e4m3").run(0.2, 0.0, "quantize", sensitivity.HEADS)
    assert set(found.segments) == {(1, 0, "k"), (3, 1, "k")}
    assert found.chosen is not None
    assert found.chosen.kv_token_bytes == found.plain.kv_token_bytes


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    first = search(tmp_path, KnownLosses()).run(0.2, None, sensitivity.QUANTIZE, sensitivity.AUTO)
    again = KnownLosses()
    assert search(tmp_path, again, resume=True).run(0.2, None, sensitivity.QUANTIZE, sensitivity.AUTO) == first
    assert again.measured == []


def test_not_all_may_be_kept(tmp_path: Path) -> None:
    found = search(tmp_path, KnownLosses()).run(0.0, None, sensitivity.QUANTIZE, sensitivity.HEADS)
    assert found.chosen is None
    assert max(point.kept for point in found.points) == len(found.ranking) - 1
