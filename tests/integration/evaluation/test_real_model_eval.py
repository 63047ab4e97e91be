"""`tidemark eval` on the small real model: what the accuracy page promises, on as little text as shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import cli

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SMALL = ["--tokens", "128", "--window", "64", "--threads", "1", "--output", "json"]


def evaluate(model: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert cli.run(["eval", str(model), *SMALL, *arguments]) == 0
    return list(json.loads(capsys.readouterr().out)["configurations"])


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_int8_finds_what_the_model_finds(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--parts", "text,retrieval", "--lengths", "400", "--max-kl", "0.005"]
    (int8,) = evaluate(smollm2_path, capsys, *arguments)
    assert int8["text"]["argmaxAgreement"] > 0.9
    assert abs(int8["text"]["perplexityRise"]) < 0.02
    assert 5 < int8["text"]["basePerplexity"] < 200, "the made text is language, to a model that knows language"
    assert int8["retrieval"]["baseRight"] >= 0.3
    assert int8["retrieval"]["same"] >= 0.9


def test_the_dearest_head_is_worth_its_bytes(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 90 KV heads' keys one costs a seventh of all that fp8_e5m2 loses."""
    Path("map.yaml").write_text("rules: [{layers: 1, heads: 0, kind: k}]", encoding="utf-8")
    arguments = ["--parts", "text", "--kv-cache-dtype", "fp8_e5m2", "--precision-map", "map.yaml"]
    plain, mapped = evaluate(smollm2_path, capsys, *arguments)
    assert mapped["text"]["meanKl"] < 0.95 * plain["text"]["meanKl"]
    assert mapped["kvTokenBytes"] < 1.01 * plain["kvTokenBytes"]
