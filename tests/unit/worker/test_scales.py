"""The scales file of an engine: plain or a ConfigMap, of this model or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import fixed_scales, page_layout
from tidemark_runtime.worker import scales

SHAPE = page_layout.KVShape(2, 2, 16)
LAYOUT = page_layout.PageLayout(SHAPE, 4, "int8", fixed_scales=True)


def kv_cache(**settings: object) -> config.KVCacheConfig:
    return config_parsing.parse({"kvCache": {"dtype": "int8", **settings}}).kv_cache


@pytest.fixture
def source(tmp_path: Path) -> sources.ModelSource:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights" * 100)
    (folder / "config.json").write_text("{}")
    return sources.ModelSource("huggingface", folder, "made")


def text(source: sources.ModelSource, dtype: str = "int8") -> str:
    places = {(each.layer, each.head, each.kind): 0.5 for each in LAYOUT.segments}
    found = fixed_scales.FixedScales("", "made", identity.of(source), dtype, SHAPE, 3000, places)
    return yaml.safe_dump(fixed_scales.to_mapping(found))


def test_without_a_file_every_token_has_its_own(source: sources.ModelSource) -> None:
    assert scales.choose(kv_cache(), LAYOUT, source) == scales.Chosen()


@pytest.mark.parametrize("form", ["plain", "ConfigMap"])
def test_a_scales_file(tmp_path: Path, source: sources.ModelSource, form: str) -> None:
    file = tmp_path / "scales.yaml"
    manifest = yaml.safe_dump({"kind": "ConfigMap", "data": {fixed_scales.CONFIG_MAP_KEY: text(source)}})
    file.write_text(text(source) if form == "plain" else manifest)
    chosen = scales.choose(kv_cache(scalesFile=str(file)), LAYOUT, source)
    assert chosen.scales[1, 1, "v"] == 0.5
    assert len(chosen.scales) == len(LAYOUT.segments)
    assert chosen.note.startswith(f"fixed for 8 heads, found on 3000 tokens, by {file}, sha256 ")


def test_another_checkpoint_of_the_same_shape_is_refused(tmp_path: Path, source: sources.ModelSource) -> None:
    file = tmp_path / "scales.yaml"
    file.write_text(text(source))
    (source.path / "model.safetensors").write_bytes(b"others!" * 100)
    with pytest.raises(errors.ConfigError, match=r"scales\.yaml: got scales of made with the weights"):
        scales.choose(kv_cache(scalesFile=str(file)), LAYOUT, source)


def test_the_same_weights_under_another_name_are_the_same(tmp_path: Path, source: sources.ModelSource) -> None:
    before = identity.of(source)
    (source.path / "model.safetensors").rename(source.path / "renamed.safetensors")
    (source.path / "README.md").write_text("more")
    assert identity.of(source) == before


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"scales: [", b"[1]", b"kind: ConfigMap\n", b""])
def test_a_file_without_scales_is_named(tmp_path: Path, source: sources.ModelSource, content: bytes | None) -> None:
    file = tmp_path / "scales.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=r"kvCache\.scalesFile: got '.*scales\.yaml'"):
        scales.choose(kv_cache(scalesFile=str(file)), LAYOUT, source)


@pytest.mark.parametrize("data", [None, [1], {"other.yaml": "x"}, {fixed_scales.CONFIG_MAP_KEY: 5}])
def test_a_config_map_of_something_else_says_which_key_is_missing(
    tmp_path: Path, source: sources.ModelSource, data: object
) -> None:
    file = tmp_path / "scales.yaml"
    file.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": data}))
    with pytest.raises(errors.ConfigError, match=r"a ConfigMap without a text at data\.scales\.yaml"):
        scales.choose(kv_cache(scalesFile=str(file)), LAYOUT, source)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path, source: sources.ModelSource) -> None:
    file = tmp_path / "scales.yaml"
    file.write_text(text(source) + "tokens: 4\n")
    with pytest.raises(errors.ConfigError, match="tokens: got two of it, on lines"):
        scales.choose(kv_cache(scalesFile=str(file)), LAYOUT, source)
