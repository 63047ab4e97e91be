from __future__ import annotations

import pytest

from tidemark_operator import errors
from tidemark_operator.commands import operator_inputs


def test_labels_are_read_and_sorted() -> None:
    given = ["team=a", "release=mon", "example.com/x="]
    assert operator_inputs.labels("--l", given) == (("example.com/x", ""), ("release", "mon"), ("team", "a"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("release", "KEY=VALUE"),
        ("=mon", "KEY=VALUE"),
        ("release=a b", "KEY=VALUE"),
        ("tidemark.dev/service=x", "does not set itself"),
        ("app.kubernetes.io/name=x", "does not set itself"),
    ],
)
def test_a_label_that_cannot_be_set_is_told(text: str, words: str) -> None:
    with pytest.raises(errors.ManifestFileError) as told:
        operator_inputs.labels("--monitoring-label", [text])
    assert str(told.value).startswith(f"--monitoring-label: got {text!r}, expected ")
    assert words in str(told.value)


def test_namespaces_are_names_each_once() -> None:
    assert operator_inputs.namespaces("--n", ["monitoring", "a", "monitoring"]) == ("monitoring", "a")
    with pytest.raises(errors.ManifestFileError, match="--n: got 'A_b', expected the name of a namespace"):
        operator_inputs.namespaces("--n", ["A_b"])


@pytest.mark.parametrize(
    "text", ["", "wiki", "ftp://a", "http://", "http://a b", "http://[", "http://a/{{x}}", 'http://a/"']
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(errors.ManifestFileError, match=r"--runbook-base-url: got .* expected a URL such as"):
        operator_inputs.url("--runbook-base-url", text)
    assert operator_inputs.url("--u", "https://wiki/x") == "https://wiki/x"
