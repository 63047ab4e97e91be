"""The files that stand for Secrets and ConfigMaps of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidemark_operator import effects, errors
from tidemark_operator.api import parse
from tidemark_operator.commands import up, up_inputs
from tidemark_runtime.contract import settings

MAP = "model: smollm2-135m\nkvDtype: int8\nrules:\n- {layers: [0, 3-5], kind: k}\n"
MANIFEST = """
apiVersion: tidemark.dev/v1alpha1
kind: InferenceService
metadata: {name: a}
spec:
  model: {source: {package: {name: smollm2-135m}}}
  hardware: {resourceName: cpu, count: 1}
  kvCache: {dtype: int8, precision: {mapRef: {name: found}}}
"""


def config_map(data: object) -> str:
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "found"}, "data": data})


def test_a_map_becomes_the_key_that_engines_read(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(MAP)
    assert up_inputs.config_map(file) == {"precision.yaml": MAP}


def test_a_manifest_of_a_config_map_is_taken_with_all_its_keys(tmp_path: Path) -> None:
    file = tmp_path / "found.yaml"
    file.write_text(config_map({"precision.yaml": MAP, "note": "of March"}))
    assert up_inputs.config_map(file) == {"precision.yaml": MAP, "note": "of March"}


def test_scales_are_told_from_a_map(tmp_path: Path) -> None:
    file = tmp_path / "scales.yaml"
    shape = {"layers": 1, "kvHeads": 2, "headDim": 8}
    given = {"model": "m", "weights": "w", "kvDtype": "int8", "shape": shape, "tokens": 100}
    file.write_text(yaml.safe_dump({**given, "scales": {"k": [[0.1, 0.2]], "v": [[0.3, 0.4]]}}))
    assert up_inputs.config_map(file) == {"scales.yaml": file.read_text()}
    file.write_text(yaml.safe_dump({**given, "scales": {"k": [[0.1]], "v": [[0.3, 0.4]]}}))
    with pytest.raises(settings.ConfigError, match=r"scales\.yaml\.scales\.k"):
        up_inputs.config_map(file)


@pytest.mark.parametrize("wrong", ["found", "=file", "found=", ""])
def test_a_config_map_without_name_or_file_is_refused(wrong: str) -> None:
    expected = rf"--configmap: got '{wrong}', expected NAME=FILE, for example found=./map.yaml"
    with pytest.raises(errors.ManifestFileError, match=expected):
        up_inputs.parse_pairs("--configmap", [wrong], "found=./map.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [{layers: x}]", "map.yaml.rules[0].layers: got 'x', expected a number from 0"),
        ("rules: [{layers: 0, dtype: int3}]", "map.yaml.rules[0].dtype: got 'int3', expected one of auto"),
        ("rules: [{layers: 0}]\nrules: [{layers: 1}]", "rules: got two of it, on lines 1 and 2"),
        ("rules: []", "expected at least one rule. Name the layers to keep at 16 bits"),
        ("- 1", "map.yaml: got [1], expected a mapping"),
        ("rules: [", "map.yaml"),
        (config_map({"precision.yaml": "rules: [{layers: x}]"}), "map.yaml.rules[0].layers: got 'x'"),
        (config_map({"map.yaml": MAP}), "the ConfigMap has map.yaml, expected precision.yaml or scales.yaml"),
        (config_map(None), "the ConfigMap has no keys, expected precision.yaml or scales.yaml"),
    ],
)
def test_a_wrong_map_is_refused_with_its_file_and_place(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(text)
    with pytest.raises((settings.ConfigError, errors.ManifestFileError)) as caught:
        up_inputs.config_map(file)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
async def test_an_unreadable_map_is_named_before_anything_starts(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(MANIFEST)
    if content is not None:
        (tmp_path / "map.yaml").write_bytes(content)
    options = up.Options(file=file, root=tmp_path / "state", config_maps={"found": tmp_path / "map.yaml"})
    with pytest.raises(errors.ManifestFileError, match=r"map\.yaml: the ConfigMap's file cannot be read"):
        await up.run(options)
    assert not (tmp_path / "state").exists()


def test_a_map_acts_on_one_machine_too() -> None:
    assert effects.unsupported(parse(yaml.safe_load(MANIFEST)), local=True) == []
