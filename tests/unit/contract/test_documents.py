"""A key that stands twice is refused in every document, with its whole name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_runtime import errors
from tidemark_runtime.contract import documents


def read(text: str) -> object:
    return documents.read_yaml(text, "body", "it", "a mapping")


def refused(text: str) -> list[str]:
    with pytest.raises(errors.ConfigError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "a: got two of it, on lines 1 and 3, expected each key once. Remove one of them."),
        ("s: {x: 1, x: 1}", "s.x: got two of it, on lines 1 and 1"),
        ("s:\n- {}\n- x: 1\n  x: 2\n", "s[1].x: got two of it, on lines 3 and 4"),
        ('{"a": 1, a: 2}', "a: got two of it"),
        ("a: &x {k: 1, k: 2}\nb: *x\n", "a.k: got two of it"),
    ],
)
def test_yaml(text: str, words: str) -> None:
    (problem,) = refused(text)
    assert problem.startswith(words)


def test_all_of_them_at_once() -> None:
    assert len(refused("a: 1\na: 2\nb: {c: 1, c: 2}\n")) == 2


def test_what_is_right_is_read_as_before() -> None:
    assert read("a: &x {k: 1}\nb: {<<: *x, k: 2}\n") == {"a": {"k": 1}, "b": {"k": 2}}
    assert read("") is None
    assert read("# nothing") is None


@pytest.mark.parametrize("text", ["a: [", "a: 2020-99-99", "[" * 5000, "!!python/object/apply:os.getpid []", "a: \0"])
def test_what_is_no_yaml_is_named(text: str) -> None:
    (problem,) = refused(text)
    assert problem.startswith("body: got 'it', expected a mapping. It says: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "rules:\n  - {layers: [0, 3-5], kin",
            "line 2, column 27: not valid YAML: expected ',' or '}', but got the end of the text, in a mapping in { } "
            "that begins in line 2, column 5. Is it cut off?",
        ),
        (
            "rules:\n  - {layers: [0, 3",
            "line 2, column 19: not valid YAML: expected ',' or ']', but got the end of the text, in a list in [ ] "
            "that begins in line 2, column 14. Is it cut off?",
        ),
        (
            'rules:\n  - layers: "0',
            "line 2, column 15: not valid YAML: expected a closing quotation mark, but got the end of the text, in a "
            "quoted text that begins in line 2, column 13. Is it cut off?",
        ),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: not valid YAML: a second document begins, expected one. Remove one"),
        ("a: b: c", "line 1, column 5: not valid YAML: mapping values are not allowed here."),
        ("a: 1\n  b\x07", "line 2, column 4: not valid YAML: it has the control character U+0007. Remove it."),
    ],
)
def test_where_and_why_it_is_no_yaml_is_one_sentence(text: str, words: str) -> None:
    (problem,) = refused(text)
    assert words in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "a.b: got two of it, expected each key once"),
        (b'{"a": [{}, {"b": 1, "b": 2}]}', "a[1].b: got two of it"),
    ],
)
def test_json(body: bytes, words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        documents.check_json(body)
    assert str(caught.value).startswith(words)
    documents.check_json(b'{"a": {"b": 1}, "c": {"b": 2}}')


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.ConfigError, match=r"--config: got .*x\.yaml.*codec"):
        documents.read_file(file, "--config", "a file")
    file.write_text("[]")
    with pytest.raises(errors.ConfigError, match="It holds no mapping"):
        documents.read_file(file, "--config", "a file")
    file.write_text("")
    assert documents.read_file(file, "--config", "a file") == {}
