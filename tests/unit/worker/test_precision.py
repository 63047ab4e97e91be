"""Which segments are kept apart: rules of the configuration, or a map file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import page_layout, precision_map
from tidemark_runtime.worker import precision

TARGET = precision_map.Target(page_layout.KVShape(4, 2, 64), "int8", num_query_heads=6)


def kv_cache(**settings: object) -> config.KVCacheConfig:
    return config_parsing.parse({"kvCache": settings}).kv_cache


def test_nothing_is_kept_apart_unless_asked_for() -> None:
    assert precision.choose(kv_cache(), TARGET) == precision.Chosen()


def test_rules_of_the_configuration() -> None:
    rules = [{"layers": "0"}, {"layers": "2-3", "heads": "1", "kind": "k", "dtype": "float16"}]
    chosen = precision.choose(kv_cache(precision=rules), TARGET)
    whole_layer = {(0, head, kind): "bfloat16" for head in (0, 1) for kind in ("k", "v")}
    assert chosen.segments == {**whole_layer, (2, 1, "k"): "float16", (3, 1, "k"): "float16"}
    assert chosen.note == "6 of 16 segments in bfloat16, float16, by kvCache.precision"


@pytest.mark.parametrize("form", ["plain", "ConfigMap"])
def test_a_map_file(tmp_path: Path, form: str) -> None:
    file = tmp_path / "map.yaml"
    rules = "rules:\n- {layers: 1, kind: v}\n"
    text = (
        rules
        if form == "plain"
        else f"kind: ConfigMap\ndata:\n  precision.yaml: |\n    {rules.replace(chr(10), chr(10) + '    ')}\n"
    )
    file.write_text(text)
    chosen = precision.choose(kv_cache(precisionFile=str(file)), TARGET)
    assert chosen.segments == {(1, 0, "v"): "bfloat16", (1, 1, "v"): "bfloat16"}
    assert chosen.note.startswith(f"2 of 16 segments in bfloat16, by {file}, sha256 ")


@pytest.mark.parametrize(
    ("rules", "key", "words"),
    [
        ([{"layers": "4"}], "kvCache.precision[0]: layers", "layers under 4"),
        ([{}], "kvCache.precision[0].layers", "a number from 0"),
        ([{"layers": "x"}], "kvCache.precision[0].layers", "a range such as 3-5"),
        ([{"layers": "0", "heads": "4"}], "kvCache.precision[0]: heads", "4 reads KV head 1"),
        (
            [{"layers": "0-1"}, {"layers": "1", "kind": "k"}],
            "kvCache.precision[1]",
            "kvCache.precision[0] names it too",
        ),
        ([{"layers": "0", "dtype": "int8"}], "kvCache.precision[0]: dtype", "another dtype than kvCache.dtype"),
        ([{"layers": "0-3"}], "kvCache.precision", "Nothing is left for int8"),
    ],
)
def test_a_map_that_does_not_fit_is_refused_with_its_place(rules: list[dict[str, str]], key: str, words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        precision.choose(kv_cache(precision=rules), TARGET)
    assert caught.value.problems[0].key == key
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"rules: [", b"[1]", b"kind: ConfigMap\n", b""])
def test_a_file_that_is_no_map_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "map.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=r"map\.yaml"):
        precision.choose(kv_cache(precisionFile=str(file)), TARGET)


def test_a_key_that_stands_twice_in_a_map_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("rules: [{layers: 0}]\nrules: [{layers: 1}]\n")
    with pytest.raises(errors.ConfigError, match="rules: got two of it, on lines 1 and 2"):
        precision.choose(kv_cache(precisionFile=str(file)), TARGET)


def test_rules_and_a_file_together_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"either kvCache\.precision or kvCache\.precisionFile"):
        kv_cache(precision=[{"layers": "0"}], precisionFile="map.yaml")


def test_a_dtype_of_a_rule_is_one_of_the_settings() -> None:
    with pytest.raises(errors.ConfigError, match=r"kvCache.precision\[0\].dtype: got 'int3'"):
        kv_cache(precision=[{"layers": "0", "dtype": "int3"}])


def test_a_lossy_dtype_in_a_map_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"kvCache.precision\[0\].dtype: got 'int4'.*kvCache.allowLossy: true"):
        kv_cache(precision=[{"layers": "0", "dtype": "int4"}])
    file = tmp_path / "map.yaml"
    file.write_text("rules: [{layers: 0, kind: v, dtype: int4}]\n")
    with pytest.raises(errors.ConfigError, match=r"map\.yaml.rules\[0\].dtype: got 'int4', .*kvCache.allowLossy: true"):
        precision.choose(kv_cache(precisionFile=str(file)), TARGET)
    chosen = precision.choose(kv_cache(precisionFile=str(file), allowLossy=True), TARGET)
    assert chosen.segments == {(0, 0, "v"): "int4", (0, 1, "v"): "int4"}


def test_a_map_of_other_weights_is_told_of_with_both_names(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = tmp_path / "small.gguf"
    weights.write_bytes(b"weights")
    source = sources.ModelSource("gguf", weights, "small")
    file = tmp_path / "map.yaml"
    file.write_text("{model: large, weights: abc, rules: [{layers: 1}]}")
    note = precision.choose(kv_cache(precisionFile=str(file)), TARGET, source).note
    own = identity.of(source)
    told = f"The map was found for large with the weights abc, and small with the weights {own} runs"
    assert told in note
    assert told in caplog.text
    file.write_text(f"{{model: large, weights: '{own}', rules: [{{layers: 1}}]}}")
    assert "was found for" not in precision.choose(kv_cache(precisionFile=str(file)), TARGET, source).note


def test_lossy_dtypes_of_a_map_are_refused_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text("rules: [{layers: 1, dtype: int4}, {layers: 2}, {layers: 3, dtype: int4}]")
    with pytest.raises(errors.ConfigError) as caught:
        precision.choose(kv_cache(precisionFile=str(file)), TARGET)
    assert [problem.key for problem in caught.value.problems] == [f"{file}.rules[0].dtype", f"{file}.rules[2].dtype"]
