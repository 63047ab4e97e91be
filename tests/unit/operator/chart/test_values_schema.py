"""The schema of the chart's values: closed everywhere, and agreeing with the defaults. helm itself is asked, with the
same tables, in tests/cluster/test_chart.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import chart
import json_schema
import pytest

SCHEMA: dict[str, Any] = json.loads((chart.CHART / "values.schema.json").read_text())
FREE = {"", "/global"}
"""Keys of the schema that the defaults do not have."""


def objects(rule: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of the schema that describes an object with known keys."""
    if isinstance(rule, dict):
        if isinstance(rule.get("properties"), dict) and "type" in rule:
            yield path, rule
        for key, inner in rule.items():
            yield from objects(inner, f"{path}/{key}")


def paths(values: dict[str, Any], path: str = "") -> set[str]:
    found = {path}
    for key, value in values.items():
        found |= paths(value, f"{path}/{key}") if isinstance(value, dict) else {f"{path}/{key}"}
    return found


def known(rule: dict[str, Any], path: str = "") -> set[str]:
    """Paths of values that the schema knows, lists taken whole."""
    if "$ref" in rule:
        rule = SCHEMA["definitions"][rule["$ref"].rpartition("/")[2]]
    inner = rule.get("properties", {})
    return {path}.union(*(known(value, f"{path}/{key}") for key, value in inner.items()))


def test_a_misspelt_key_is_refused_everywhere() -> None:
    """B095."""
    closed = dict(objects(SCHEMA))
    assert len(closed) > 10
    assert [path for path, rule in closed.items() if rule.get("additionalProperties") is not False] == []


def test_schema_and_defaults_have_the_same_keys() -> None:
    optional = {
        "/affinity",
        "/resources",
        "/inspection/resources",
        "/monitoring/dashboards/labels",
    }  # as Kubernetes has them: shown in part
    in_defaults = {path for path in paths(chart.defaults()) if path.rpartition("/")[0] not in optional}
    in_schema = {path for path in known(SCHEMA) if path.rpartition("/")[0] not in optional} - FREE
    assert {path for path in in_defaults - {""} if "/resources/" not in path} == in_schema


def test_every_default_is_explained_by_a_value_of_its_type() -> None:
    assert json_schema.problems(SCHEMA, chart.defaults()) == []


@pytest.mark.parametrize("case", chart.GOOD_VALUES)
def test_good_values_are_accepted(case: str) -> None:
    assert json_schema.problems(SCHEMA, chart.merged(chart.GOOD_VALUES[case])) == []


@pytest.mark.parametrize("case", chart.BAD_VALUES)
def test_bad_values_are_refused_where_they_stand(case: str) -> None:
    values, path = chart.BAD_VALUES[case]
    problems = json_schema.problems(SCHEMA, chart.merged(values))
    assert problems
    assert [problem for problem in problems if not problem.startswith(path)] == []
