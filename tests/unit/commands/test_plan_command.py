"""`tidemark plan` from the command line: tables, JSON, exit codes, and what it refuses to guess."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import made_models
import pytest

from tidemark_operator import cli
from tidemark_runtime.planning import known_models, weight_bytes

ROOT = Path(__file__).resolve().parents[3]
SMOLLM2 = str(ROOT / "examples/smollm2.yaml")
KNOWN = ["--model", "qwen2.5-7b"]


@pytest.fixture(autouse=True)
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has fetched must not change what is planned."""
    monkeypatch.setenv("TIDEMARK_MODELS", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "160")


def manifest(tmp_path: Path, *, source: dict[str, Any] | None = None, status: Any = None, **spec: Any) -> str:
    hardware = {"resourceName": "nvidia.com/gpu", "count": 1, "memory": "24Gi"}
    document = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "contracts"},
        "spec": {"model": {"source": source or {"pvc": {"claimName": "models"}}}, "hardware": hardware, **spec},
        **({"status": status} if status else {}),
    }
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(document))
    return str(file)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert cli.run(["plan", *arguments, "-o", "json"]) == code
    return dict(json.loads(capsys.readouterr().out))


def test_the_example_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", SMOLLM2]) == 0
    shown = capsys.readouterr().out
    for words in (
        "smollm2-135m",
        "weights",
        "activations",
        "none on a processor",
        "512+256",
        "Rule of thumb",
        "fits: 16",
    ):
        assert words in shown


def test_the_parts_and_what_is_left_are_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, SMOLLM2)
    assert sum(found["partsBytes"].values()) == found["totalBytes"]
    assert found["totalBytes"] + found["freeBytes"] + found["reserveBytes"] == found["device"]["bytes"] == 2 << 30
    assert found["partsBytes"]["kv"] == found["kv"]["pages"] * found["kv"]["pageBytes"]


def test_a_file_on_this_machine_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_models.write_folder(tmp_path / "m", made_models.LLAMA_CONFIG, made_models.llama_weights())
    of_path = manifest(tmp_path, source={"hostPath": {"path": str(folder)}}, kvCache={"dtype": "int8"})
    found, named = planned(capsys, of_path), planned(capsys, manifest(tmp_path), "--model", str(folder))
    assert found["model"]["name"] == named["model"]["name"] == "m"
    assert found["partsBytes"]["weights"] == named["partsBytes"]["weights"] > 0
    assert found["model"]["maxContextTokens"] == 64
    assert [row["length"] for row in found["concurrency"]] == ["48+16"]


@pytest.mark.parametrize("weights", weight_bytes.FORMATS)
def test_a_known_model_in_every_format(tmp_path: Path, weights: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, manifest(tmp_path), *KNOWN, "--weights", weights, "--device", "80Gi")
    own = known_models.MODELS["qwen2.5-7b"].matrices
    assert found["partsBytes"]["weights"] == weight_bytes.weights_bytes(own, weights)
    assert found["model"]["weights"].startswith(weights)


def test_what_an_engine_has_reported_comes_before_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = {
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
    found = planned(capsys, manifest(tmp_path, status={"shape": shape}))
    assert (found["partsBytes"]["weights"], found["partsBytes"]["overhead"]) == (2**31, 2**20)


def test_users_are_planned_backwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = manifest(tmp_path, kvCache={"dtype": "bfloat16"})
    arguments = [*KNOWN, "--users", "50", "--length", "2048+512"]
    found = planned(capsys, file, *arguments, code=1)
    (goal,) = found["goals"]
    needs = {need["kvDtype"]: need for need in goal["needs"]}
    assert not needs["bfloat16"]["fits"]
    assert needs["int8"]["fits"]
    assert "Set kvCache.dtype to int8 or fp8_e4m3, or give" in found["verdict"]
    more = ["--device", str(needs["bfloat16"]["deviceBytes"])]
    assert planned(capsys, file, *arguments, *more)["verdict"].startswith("fits: 50 users of 2048+512")


def test_places_are_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = manifest(tmp_path, scheduler={"maxNumSeqs": 4})
    found = planned(capsys, file, *KNOWN, "--users", "5", "--length", "100+28", code=1)
    assert "not the places. Set scheduler.maxNumSeqs to at least 5" in found["verdict"]


def test_several_devices_are_planned_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = {"resourceName": "nvidia.com/gpu", "count": 2, "memory": "24Gi"}
    one = planned(capsys, manifest(tmp_path), *KNOWN)
    both = planned(capsys, manifest(tmp_path, hardware=two), *KNOWN)
    assert both["partsBytes"]["weights"] == -(-one["partsBytes"]["weights"] // 2)
    assert both["kv"]["pageBytes"] * 2 == one["kv"]["pageBytes"]
    assert both["undivided"]
    assert one["undivided"] == []
    assert one["refusals"] == both["refusals"] == []
    assert both["partsBytes"]["graphs"] == 0 < one["partsBytes"]["graphs"]  # sums over devices are not recorded


def test_groups_that_devices_would_cut_are_refused_with_the_numbers_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """qwen2.5-7b: an MLP of 18,944 inputs, which is 148 groups of 128."""
    eight = {"resourceName": "nvidia.com/gpu", "count": 4, "memory": "24Gi"}
    file = manifest(tmp_path, hardware=eight)
    packed = ["--model", "qwen2.5-7b", "--weights", "awq"]
    assert cli.run(["plan", file, *packed, "--group-size", "128"]) == 0
    capsys.readouterr()
    seven = manifest(tmp_path, hardware={**eight, "count": 14})
    assert cli.run(["plan", seven, *packed, "--group-size", "128"]) != 0
    told = " ".join(capsys.readouterr().err.split())
    assert "qwen2.5-7b in awq cannot be divided among 14 devices: down_proj has 18944 inputs in groups of 128" in told
    assert "Set hardware.count to one of 1, 2, 4" in told


def test_weights_that_are_cut_off_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    made_models.write_folder(folder, made_models.LLAMA_CONFIG, made_models.llama_weights())
    weights = folder / "model.safetensors"
    size = weights.stat().st_size
    assert cli.run(["plan", manifest(tmp_path), "--model", str(folder)]) == 0
    os.truncate(weights, size - 4)
    capsys.readouterr()
    assert cli.run(["plan", manifest(tmp_path), "--model", str(folder)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"the file has {size - 4} bytes, but by its header {size}, where the tensor" in told


def test_what_the_engine_refuses_is_shown_beside_the_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", manifest(tmp_path, kvCache={"blockSize": 12}), *KNOWN]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Beside the memory: spec.kvCache.blockSize: 12: the engine refuses to start" in shown
    assert "set it to 16" in shown
    assert shown.endswith("memory alone: the engine refuses to start because of spec.kvCache.blockSize, see above")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "expected a model that this machine can look into. Name it: --model NAME"),
        (["--model", "gpt-2"], 2, "--model: got 'gpt-2', expected a path on this machine, or one of qwen2.5-0.5b"),
        (["--model", "qwen2.5-7b", "--weights", "int3"], 2, "--weights: got 'int3', expected one of float32"),
        (["--model", "qwen2.5-7b", "--weights", "awq", "--group-size", "100"], 2, "--group-size: got 100, expected -1"),
        (["--weights", "awq"], 2, "--weights: got 'awq', expected a model beside it: --model NAME"),
        (["--model", "qwen2.5-7b", "--length", "2048"], 2, "--length: got '2048'"),
        (["--model", "qwen2.5-7b", "--length", "9999999999+1"], 2, "together at most 1,073,741,824"),
        (["--model", "qwen2.5-7b", "--device", "big"], 2, "--device: got 'big', expected a size such as 80Gi"),
        (["--model", "qwen2.5-7b", "--device", "0"], 2, "--device: got '0', expected a size such as 80Gi, above 0"),
        (["--model", "qwen2.5-7b", "--users", "0"], 2, "Invalid value for '--users'"),
        (["--model", __file__], 2, "expected a .gguf file, a Hugging Face folder, or its config.json"),
    ],
)
def test_nothing_is_guessed(
    tmp_path: Path, arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", manifest(tmp_path), *arguments]) == code
    shown = capsys.readouterr()
    assert words in " ".join(shown.err.replace("│", " ").split())
    assert shown.out == ""


def test_a_device_whose_memory_nobody_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = manifest(tmp_path, hardware={"resourceName": "nvidia.com/gpu"})
    assert cli.run(["plan", file, *KNOWN]) == 2
    assert "spec.hardware.memory: got nothing, expected the memory to plan with. Set it, or give --device SIZE" in (
        capsys.readouterr().err
    )


def test_weights_that_leave_no_room_for_one_request_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    one = planned(capsys, SMOLLM2, "--length", "512+256", "--users", "1")["goals"][0]["needs"][0]["deviceBytes"]
    found = planned(capsys, SMOLLM2, "--device", str(one - (1 << 20)), code=1)
    assert found["kv"]["pages"] > 0
    assert found["concurrency"][0]["requests"] == 0
    assert found["verdict"].startswith("does not fit: one request of 512+256 needs ")
    arguments = [SMOLLM2, "--length", "100+10", "--length", "8000+10", "--device", str(one)]
    assert "one request of 8000+10 needs" in planned(capsys, *arguments, code=1)["verdict"]
    usual = planned(capsys, SMOLLM2, "--device", str(one))
    assert [row["requests"] for row in usual["concurrency"][:2]] == [1, 0]
    assert usual["fits"]


@pytest.mark.parametrize("users", [1, 12])
def test_the_memory_that_a_verdict_names_is_enough(users: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [SMOLLM2, "--length", "2048+512", "--users", str(users)]
    verdict = planned(capsys, *arguments, "--device", "1000Mi", code=1)["verdict"]
    needed = re.search(r"needs? (\S+) with float32", verdict)
    assert needed
    assert planned(capsys, *arguments, "--device", needed[1])["fits"]


def test_no_figure_is_cut_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["plan", SMOLLM2, "--length", "4096+2048", "--users", "100"]) == 1
    shown = capsys.readouterr().out
    assert "fp8_e4m3" in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    ("device", "length", "words"),
    [
        ("12Gi", "100+28", "MiB too much. Give the service at least"),
        ("80Gi", "32768+1", "model.maxContextTokens allows 32,768"),
    ],
)
def test_what_does_not_fit_says_so_in_one_line(
    tmp_path: Path, device: str, length: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", manifest(tmp_path), *KNOWN, "--device", device, "--length", length]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert words in shown


def test_a_model_that_devices_cannot_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three = {"resourceName": "nvidia.com/gpu", "count": 3, "memory": "24Gi"}
    assert cli.run(["plan", manifest(tmp_path, hardware=three), *KNOWN]) == 2
    assert "cannot be divided among 3 devices" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "row", "assumed"),
    [
        ({"method": "ngram"}, "logits of guesses; on a processor an index of each text", False),
        (
            {"method": "draft", "draftModel": "small.gguf"},
            "logits of guesses; weights, pages and step of a draft model",
            True,
        ),
    ],
)
def test_what_guesses_take_is_said_by_method(
    tmp_path: Path, section: dict[str, str], row: str, assumed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", manifest(tmp_path, speculative=section), *KNOWN]) == 0
    shown = capsys.readouterr().out
    (line,) = (line for line in shown.splitlines() if "logits of guesses" in line and "Assumed" not in line)
    assert line.rstrip(" │┃").endswith(row)
    assert ("Assumed: The draft model small.gguf is not on this machine (it is in a volume" in shown) == assumed


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder with a model in it."""
    folder = tmp_path / "models"
    folder.mkdir()
    made_models.write_folder(folder / "large", made_models.LLAMA_CONFIG, made_models.llama_weights())
    return folder


DRAFT = {"method": "draft", "draftModel": "small"}


def test_a_draft_models_files_are_read_where_they_are(
    tmp_path: Path, beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, hardware = {"hostPath": {"path": str(beside / "large")}}, {"resourceName": "cpu", "memory": "4Gi"}
    file = manifest(tmp_path, source=source, hardware=hardware, speculative=DRAFT)
    without = planned(capsys, file)
    assert f"The draft model small is not on this machine (no {beside / 'small'})" in str(without["assumptions"])
    made_models.write_folder(beside / "small", made_models.LLAMA_CONFIG, made_models.llama_weights())
    found = planned(capsys, file)
    assert "draft model" not in str(found["assumptions"])
    # It is the model itself: its weights and pages once more.
    once_more = found["partsBytes"]["weights"] + found["partsBytes"]["kv"]
    assert found["partsBytes"]["speculation"] - without["partsBytes"]["speculation"] > once_more
    (beside / "small" / "config.json").write_text("{}")
    broken = planned(capsys, file)
    assert "The draft model small cannot be read: model: got" in str(broken["assumptions"])
    assert broken["partsBytes"]["speculation"] == without["partsBytes"]["speculation"]
    named = planned(capsys, file, "--draft-model", str(beside / "large"))
    assert named["partsBytes"]["speculation"] == found["partsBytes"]["speculation"]


def test_a_draft_model_is_looked_for_in_the_store_and_known_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speculative = {"method": "draft", "draftModel": "smollm2-135m"}
    file = manifest(tmp_path, source={"package": {"name": "smollm2-135m"}}, speculative=speculative)
    known = planned(capsys, file)
    assert known["partsBytes"]["speculation"] > known["partsBytes"]["weights"]
    store = tmp_path / "store"
    store.mkdir()
    (store / "smollm2-135m.gguf").write_text("no model")
    broken = planned(capsys, file, *KNOWN)
    assert "The draft model smollm2-135m cannot be read" in str(broken["assumptions"])


@pytest.mark.parametrize(
    ("section", "given", "words"),
    [
        (DRAFT, "nowhere", "--draft-model: got 'nowhere', expected a path on this machine, or one of smollm2-135m"),
        (DRAFT, __file__, "expected a .gguf file, a Hugging Face folder, or its config.json"),
        ({"method": "ngram"}, "smollm2-135m", "expected nothing: spec.speculative has no draftModel"),
    ],
)
def test_a_wrong_draft_model_is_named(
    tmp_path: Path, section: dict[str, str], given: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["plan", manifest(tmp_path, speculative=section), *KNOWN, "--draft-model", given]) == 2
    assert words in capsys.readouterr().err


def test_a_device_without_our_kernels_holds_weights_expanded_and_records_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ascend = {"resourceName": "huawei.com/Ascend910", "count": 1, "memory": "64Gi", "strictKernels": False}
    found = planned(capsys, manifest(tmp_path, hardware=ascend), *KNOWN, "--weights", "awq")
    sixteen = planned(capsys, manifest(tmp_path), *KNOWN, "--weights", "bfloat16")
    assert found["partsBytes"]["weights"] == sixteen["partsBytes"]["weights"]
    assert (found["partsBytes"]["graphs"], sixteen["partsBytes"]["graphs"]) == (0, 512 << 20)
    assert found["model"]["weights"] == "awq, expanded to bfloat16: no kernel of ours runs there"
    assert cli.run(["plan", manifest(tmp_path, hardware=ascend), *KNOWN]) == 0
    assert "none: every step is launched there" in capsys.readouterr().out


def test_float32_files_are_held_at_16_bits_on_a_device(
    tmp_path: Path, beside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (beside / "large" / "config.json").write_text(json.dumps({**made_models.LLAMA_CONFIG, "dtype": "float32"}))
    found = planned(capsys, manifest(tmp_path, source={"hostPath": {"path": str(beside / "large")}}))
    assert found["model"]["weights"] == "bfloat16"


def test_a_map_that_is_not_read_is_an_assumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapped = {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}}
    found = planned(capsys, manifest(tmp_path, kvCache=mapped), *KNOWN)
    assert any("ConfigMap found" in sentence for sentence in found["assumptions"])


MAPPED = {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}}


def test_a_map_that_is_given_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "map.yaml"
    given.write_text("rules: [{layers: 0-9, kind: k}]")
    found = planned(capsys, manifest(tmp_path, kvCache=MAPPED), *KNOWN, "--configmap", f"found={given}")
    plain = planned(capsys, manifest(tmp_path, kvCache={"dtype": "int8"}), *KNOWN)
    # 10 layers of 28, 4 KV heads of 128: two bytes instead of one and a scale for each of 16 tokens.
    assert found["kv"]["pageBytes"] == plain["kv"]["pageBytes"] + 10 * 4 * 16 * (2 * 128 - 128 - 4)
    assert "keeps 40 of 224 segments in bfloat16" in found["assumptions"][0]


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("rules: [{layers: seven}]", "found", "map.yaml.rules[0].layers: got 'seven'"),
        ("rules: [{layers: 2, dtype: int4}]", "found", "rules[0].dtype: got int4, expected it only together with kvC"),
        ("rules: [{layers: 2}]", "lost", "expected a ConfigMap that spec.kvCache.precision.mapRef names: found"),
        ("rules: [{layers: 28}]", "found", "ConfigMap found: precision.yaml.rules[0]: layers: got [28]"),
    ],
)
def test_a_map_that_cannot_be_counted_says_why(
    tmp_path: Path, text: str, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "map.yaml"
    given.write_text(text)
    file = manifest(tmp_path, kvCache=MAPPED)
    assert cli.run(["plan", file, *KNOWN, "--configmap", f"{name}={given}"]) == 2
    assert words in capsys.readouterr().err


def test_a_map_with_4_bits_is_refused_on_a_device_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "map.yaml"
    given.write_text("rules: [{layers: 3}, {layers: 2, dtype: int4}]")
    file = manifest(
        tmp_path,
        kvCache={**MAPPED, "allowLossy": True},
        hardware={"resourceName": "nvidia.com/gpu", "count": 1, "memory": "24Gi"},
    )
    assert cli.run(["plan", file, *KNOWN, "--configmap", f"found={given}"]) == 2
    shown = capsys.readouterr().err
    assert "precision.yaml.rules[1].dtype: got int4, expected another dtype on a device: no kernel" in shown


def test_a_map_of_a_model_of_another_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "map.yaml"
    told = "was found for the model other-7b, by its own word, and this one is qwen2.5-7b"
    for name, is_told in (("other-7b", True), ("Qwen2.5-7B", False)):
        given.write_text(f"{{model: {name}, rules: [{{layers: 2}}]}}")
        found = planned(capsys, manifest(tmp_path, kvCache=MAPPED), *KNOWN, "--configmap", f"found={given}")
        assert any(told in sentence for sentence in found["assumptions"]) == is_told
