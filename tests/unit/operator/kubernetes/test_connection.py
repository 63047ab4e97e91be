"""What is sent; how it is sent is tested against a real API server."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.cluster.kubernetes import connection


@pytest.mark.parametrize(
    "text", ["\U0001f4a5", "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "\\ud83d", '"\\"', "\x01\n"]
)
def test_odd_characters_are_the_same_in_yaml_and_json_b075(text: str) -> None:
    sent = connection.yaml_and_json({"annotations": {text: text}})
    assert yaml.safe_load(sent) == json.loads(sent) == {"annotations": {text: text}}


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers() | st.booleans() | st.none(), max_size=4)
)
def test_any_text_is_the_same_in_yaml_and_json_b075(document: dict[str, object]) -> None:
    sent = connection.yaml_and_json(document)
    assert yaml.safe_load(sent) == json.loads(sent) == document
