"""Manifest files: what cannot be read says why, what is wrong says on which line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import manifests
import pytest
import yaml

from tidemark_operator import api, errors
from tidemark_operator.api import files

GOOD = """apiVersion: tidemark.dev/v1alpha1
kind: InferenceService
metadata: {name: NAME}
spec:
  model:
    source: {package: {name: smollm2-135m}}
"""


def refused(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "service.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((errors.ManifestFileError, errors.ManifestError)) as caught:
        api.load_file(file)
    return str(caught.value)


def test_several_documents_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("---\n" + GOOD.replace("NAME", "b") + "---\n---\n" + GOOD.replace("NAME", "a") + "---\n")
    assert [service.name for service in api.load_file(file)] == ["b", "a"]


def test_json_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_bytes(b"\xef\xbb\xbf" + yaml.safe_dump(manifests.small(), default_flow_style=True).encode())
    assert api.load_file(file)[0].name == "demo"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("10", 10),
        ("0x10", 16),
        ("010", 8),
        ("0", 0),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        (".5", 0.5),
        ("1.", 1.0),
        (".inf", math.inf),
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("2024-01-01", "2024-01-01"),
        ("=", "="),
        ("09", "09"),
        ("1e", "1e"),
        ("+", "+"),
        ("1.2.3", "1.2.3"),
        ("yes", True),
        ("~", None),
    ],
)
def test_values_without_quotes_are_read_as_kubectl_reads_them(written: str, read: Any) -> None:
    [(document, _)] = files._documents(f"a: {written}\n", "x")
    assert document == {"a": read}
    assert type(document["a"]) is type(read)


def test_a_size_may_be_any_number_that_is_whole() -> None:
    [service] = api.load_text(GOOD.replace("NAME", "a") + "  hardware: {resourceName: cpu, memory: 1e9}\n", "x")
    assert service.spec.hardware.memory == "1000000000"


def test_the_second_of_two_equal_names_is_pointed_at(tmp_path: Path) -> None:
    message = refused(tmp_path, f"{GOOD.replace('NAME', 'a')}---\n{GOOD.replace('NAME', 'a')}")
    line = GOOD.count("\n") + 1 + GOOD[: GOOD.index("NAME")].count("\n") + 1
    assert f"line {line}: metadata.name: got 'a', expected each name once in a file" in message


def test_anchors_are_read(tmp_path: Path) -> None:
    file = tmp_path / "anchor.yaml"
    file.write_text(GOOD.replace("NAME", "a") + "  podTemplate: {labels: &l {a: b}, annotations: *l}\n")
    template = api.load_file(file)[0].spec.pod_template
    assert template.labels == template.annotations == {"a": "b"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ("there is no document in it", "examples/smollm2.yaml")),
        ("# only a comment\n---\n", ("there is no document in it",)),
        ("spec: [1, 2\nx: y\n", ("line 2", "not valid YAML")),
        ("a:\n\tb: 1\n", ("line 2", "not valid YAML", "spaces, not tabs")),
        ("a: 1\nb: 2\na: 3\n", ("line 3", "the key 'a' stands here and on line 1", "Remove one")),
        ("a: {b: 1, b: 2}\n", ("the key 'b' stands here",)),
        ("a: !!python/object:os.system x\n", ("line 1", "not valid YAML")),
        ('a: !!int "x"\n', ("line 1, column 4", "the value cannot be read as int")),
        (f"a: {'9' * 5000}\n", ("line 1, column 4", "the value cannot be read as int")),
        ("a: !site x\n", ("line 1, column 4", "the tag '!site' is not known. Remove it.")),
        ("a:\n  b: x\x07\n", ("line 2, column 7", "the control character U+0007. Remove it.")),
        ("name: {{ .Values.name }}\n", ("line 1", "Is it a template")),
        ("kind: List\napiVersion: v1\nitems: []\n", ("got 'List'", "a document of its own, with a line ---")),
        ("kind: InferenceServiceList\n", ("a document of its own, with a line ---",)),
        ("a: *nowhere\n", ("line 1", "undefined alias")),
        ("? [1]\n: 2\n", ("line 1", "a key is a list or a mapping, expected text")),
        ("[" * 700, ("nested too deeply",)),
        (b"\x00\x01\x02GGUF", ("is a binary file",)),
        (b"name: \xff\xfe", ("is not UTF-8 text (byte 6)",)),
        (b"x" * (4 * 2**20 + 1), ("larger than 4 MiB", "model file")),
        ("just text\n", ("line 1", "got 'just text'", "a mapping with apiVersion")),
        ("apiVersion: v1\nkind: ConfigMap\n", ("line 2", "kind: got 'ConfigMap'", "apply this one with kubectl")),
        ("&a {kind: InferenceService, apiVersion: tidemark.dev/v1alpha1, spec: *a}", ("levels of nesting",)),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, str | bytes) else None,
)
def test_what_cannot_be_read_says_why(tmp_path: Path, text: str | bytes, parts: tuple[str, ...]) -> None:
    message = refused(tmp_path, text)
    assert message.startswith(str(tmp_path / "service.yaml"))
    for part in parts:
        assert part in message


def test_problems_name_their_line_in_any_document(tmp_path: Path) -> None:
    text = GOOD.replace("NAME", "a") + "  replicas: -1\n---\n" + GOOD.replace("NAME", "B") + "  kvCache:\n    size: 1\n"
    message = refused(tmp_path, text)
    assert "3 problems" in message
    assert "line 7: spec.replicas: got -1" in message
    assert "line 11: metadata.name: got 'B'" in message
    assert "line 16: spec.kvCache.size: got an unknown key" in message


def test_unquoted_values_are_not_taken_for_texts(tmp_path: Path) -> None:
    """B075: YAML reads `on` as true and `0123` as 83; a date stays text."""
    text = GOOD.replace("NAME", "a") + (
        "  podTemplate:\n    env:\n    - {name: A, value: on}\n    - {name: B, value: 0123}\n"
        "    - {name: C, value: 2024-01-01}\n"
    )
    message = refused(tmp_path, text)
    assert "line 9: spec.podTemplate.env[0].value: got true" in message
    assert "line 10: spec.podTemplate.env[1].value: got 83" in message
    assert "2 problems" in message


def test_one_name_twice_is_refused(tmp_path: Path) -> None:
    assert "each name once" in refused(tmp_path, GOOD.replace("NAME", "a") + "---\n" + GOOD.replace("NAME", "a"))


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(errors.ManifestFileError, match=r"nope\.yaml: there is no such file.*looked for in"):
        api.load_file(tmp_path / "nope.yaml")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ManifestFileError, match="is a folder"):
        api.load_file(tmp_path)


def test_an_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(errors.ManifestFileError, match="may not be read by this user"):
        api.load_file(tmp_path / "secret.yaml")


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(errors.ManifestFileError, match="cannot be read"):
        api.load_file(Path("a\0b"))
