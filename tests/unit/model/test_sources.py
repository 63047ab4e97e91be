from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidemark_runtime import errors
from tidemark_runtime.model import sources


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_a_gguf_file_is_itself(tmp_path: Path) -> None:
    path = touch(tmp_path / "My-Model.Q4_1.gguf")
    assert sources.resolve(str(path), tmp_path / "store") == sources.ModelSource("gguf", path, "My-Model.Q4_1")


def test_a_folder_with_a_config_is_a_hugging_face_model(tmp_path: Path) -> None:
    touch(tmp_path / "tiny" / "config.json")
    found = sources.resolve(str(tmp_path / "tiny"), tmp_path / "store")
    assert found == sources.ModelSource("huggingface", tmp_path / "tiny", "tiny")


def test_a_name_is_looked_up_in_the_store(tmp_path: Path) -> None:
    file = touch(tmp_path / "smollm2-135m.gguf")
    touch(tmp_path / "mine" / "config.json")
    assert sources.resolve("smollm2-135m", tmp_path) == sources.ModelSource("gguf", file, "smollm2-135m")
    assert sources.resolve("mine", tmp_path) == sources.ModelSource("huggingface", tmp_path / "mine", "mine")
    assert sources.names_in(tmp_path) == ("mine", "smollm2-135m")


def test_a_known_name_that_was_not_fetched_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound) as caught:
        sources.resolve("smollm2-135m", tmp_path / "store")
    message = str(caught.value)
    assert "tidemark models fetch smollm2-135m" in message
    assert str(tmp_path / "store") in message


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    touch(tmp_path / "mine.gguf")
    with pytest.raises(errors.ModelNotFound, match=r"'smollm2-1b'.*Known names: mine, smollm2-135m; .*fetch NAME"):
        sources.resolve("smollm2-1b", tmp_path)


@pytest.mark.parametrize("name", ["model.bin", "model.pth", "model.onnx", "model.safetensors", "README"])
def test_other_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = touch(tmp_path / name)
    with pytest.raises(errors.UnsupportedModel, match=name):
        sources.resolve(str(path), tmp_path / "store")


def test_a_folder_without_a_config_hints_at_the_gguf_in_it(tmp_path: Path) -> None:
    touch(tmp_path / "folder" / "a.gguf")
    with pytest.raises(errors.UnsupportedModel, match=r"no config\.json.*It holds a\.gguf"):
        sources.resolve(str(tmp_path / "folder"), tmp_path / "store")


def test_what_is_wrong_with_a_draft_model_names_its_setting(tmp_path: Path) -> None:
    said = r"^speculative\.draftModel: got .*, expected .*ngram$"
    for name in ("", "gone", str(tmp_path / "gone.gguf")):
        with pytest.raises(errors.ModelNotFound, match=said) as caught:
            sources.resolve_draft(name, tmp_path / "store")
        assert repr(name) in str(caught.value)
        assert "model.source" not in str(caught.value)
    other = touch(tmp_path / "model.onnx")
    with pytest.raises(errors.UnsupportedModel, match=r"^speculative\.draftModel: got .*\.onnx are not supported"):
        sources.resolve_draft(str(other), tmp_path)
    file = touch(tmp_path / "small.gguf")
    assert sources.resolve_draft(str(file), tmp_path).path == file


def test_an_empty_source_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(errors.ModelNotFound, match=r"model\.source: got ''"):
        sources.resolve("", tmp_path)


def test_finding_and_describing_a_model_never_imports_torch() -> None:
    code = (
        "import sys; from tidemark_runtime import model_store; "
        "from tidemark_runtime.model import gguf_file, sources, spec; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
