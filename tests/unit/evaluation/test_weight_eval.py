"""`tidemark eval --quantization` and `--baseline`: weights beside the unquantized ones, from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byte_tokenizer
import made_models
import packed_checkpoints
import pytest

from tidemark_operator import cli

SMALL = ["--tokens", "128", "--window", "64", "--prompts", "2", "--continuation", "4", "--threads", "1"]
CONFIG = {
    **made_models.LLAMA_CONFIG,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": byte_tokenizer.VOCAB_SIZE,
    "max_position_embeddings": 2048,
    "eos_token_id": byte_tokenizer.END_ID,
    "torch_dtype": "float16",
}
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def evaluate(*arguments: str, code: int = 0, parts: str = "text") -> dict[str, Any]:
        assert cli.run(["eval", *arguments, *SMALL, "--parts", parts, "--output", "json"]) == code
        return dict(json.loads(capsys.readouterr().out))

    return evaluate


@pytest.fixture(scope="session")
def model16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `model_folder`, in 16 bits."""
    folder = tmp_path_factory.mktemp("sixteen") / "m"
    weights = {name: (tensor * 4).half() for name, tensor in made_models.llama_weights(CONFIG).items()}
    made_models.write_folder(folder, CONFIG, weights)
    byte_tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def packed(model16: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    how = packed_checkpoints.Format(method="gptq", group_size=32, act_order=True)
    return packed_checkpoints.convert(model16, tmp_path_factory.mktemp("packed") / "m-gptq", how)


def test_weights_beside_the_unquantized_ones(run: Run, model16: Path) -> None:
    found = run(str(model16), "--quantization", "int8_weight_only", "--quantization", "fp8_weight_only")
    int8, fp8 = found["configurations"]
    assert [int8["name"], fp8["name"]] == ["weights int8_weight_only", "weights fp8_weight_only"]
    assert 0 < int8["text"]["meanKl"] < fp8["text"]["meanKl"]
    assert int8["kvTokenBytes"] == found["baseKvTokenBytes"], "only the weights differ"
    assert max(int8["weightsBytes"], fp8["weightsBytes"]) < found["baseWeightsBytes"] * 0.6
    assert found["about"]["baseWeights"] == "none"


def test_kv_memory_and_weights_in_one_run(run: Run, model16: Path) -> None:
    found = run(str(model16), "--quantization", "int8_weight_only", "--kv-cache-dtype", "int8", parts="text,greedy")
    kv, weights = found["configurations"]
    assert (kv["name"], kv["weights"], weights["weights"]) == ("int8", None, "int8_weight_only")
    assert kv["weightsBytes"] == found["baseWeightsBytes"]
    assert kv["kvTokenBytes"] < weights["kvTokenBytes"]
    assert weights["greedy"]["prompts"] == 2


def test_a_packed_checkpoint_beside_what_it_was_made_from(run: Run, model16: Path, packed: Path) -> None:
    found = run(str(packed), "--baseline", str(model16))
    (auto,) = found["configurations"]
    assert (auto["name"], auto["weights"], found["about"]["model"]) == ("weights auto", "auto", "m-gptq")
    assert auto["text"]["meanKl"] > 0
    assert auto["weightsBytes"] < found["baseWeightsBytes"] * 0.35
    again = run(str(packed), "--baseline", str(packed), "--quantization", "gptq")
    assert again["configurations"][0]["text"]["meanKl"] < 1e-6, "the same weights, expanded"
    assert again["about"]["weights"] != {}
    other = run(str(packed), "--baseline", str(model16), "--max-kl", "1e-9", code=1)
    assert "weights auto: mean KL" in other["over"][0]


def test_table_and_page_show_the_memory_of_weights(
    model16: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["eval", str(model16), "--quantization", "fp8_weight_only", *SMALL, "--parts", "text"]
    assert cli.run([*arguments, "--html", "page.html"]) == 0
    shown = capsys.readouterr().out
    assert "WEIGHTS MB" in shown
    assert "weights fp8_weight_only" in shown
    page = Path("page.html").read_text(encoding="utf-8")
    assert "accuracy of quantized weights" in page
    assert "MB of weights" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quantization", "int3"], "--quantization: got 'int3', expected one of auto, none, int8, int8_weight_only"),
        (["--quantization", "awq"], "model.quantization: got 'awq', expected auto: "),
        (["--quantization", "int8", "--precision-map", "m.yaml"], "--kv-cache-dtype: got none, expected a dtype"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(
    model16: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["eval", str(model16), *SMALL, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_baseline_that_is_not_there_is_named(
    model16: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["eval", str(model16), *SMALL, "--baseline", "missing"]) == 2
    assert "no model 'missing'" in capsys.readouterr().err


def test_a_baseline_of_another_model_is_refused(
    model16: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wider = {**CONFIG, "num_key_value_heads": 4}
    other = made_models.write_folder(tmp_path / "other", wider, made_models.llama_weights(wider))
    byte_tokenizer.save(other)
    assert cli.run(["eval", str(model16), *SMALL, "--baseline", str(other)]) == 2
    assert (
        "--baseline: got 'other', expected the model that m was made from. It has another shape"
        in capsys.readouterr().err
    )
