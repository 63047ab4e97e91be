"""The CRD says what the models say: every rule, every limit, every field of the status, every column."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import manifests
import pydantic
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator import api, names, status
from tidemark_operator.api import checks, crd, cron, describe, service
from tidemark_operator.api.crd import cel, definition, formats, rules, schema
from tidemark_operator.status import conditions

ROOT = Path(__file__).resolve().parents[4]
MAX_CLIENT_SIDE_BYTES = 200_000
"""`kubectl apply` keeps the whole object in an annotation, and an object's annotations hold 256 KiB."""
NOW = datetime.datetime(2025, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
VERSION: dict[str, Any] = crd.build()["spec"]["versions"][0]
WHOLE: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside `node`, with its path."""
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}".removeprefix("."))
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


SPEC = list(nodes(WHOLE["properties"]["spec"], "spec"))


def test_the_checked_in_file_is_current_and_small() -> None:
    text = (ROOT / crd.PATH).read_text(encoding="utf-8")
    assert text == crd.render()
    assert len(json.dumps(yaml.safe_load(text))) < MAX_CLIENT_SIDE_BYTES


def test_the_file_is_what_is_built_and_nothing_is_shared() -> None:
    assert yaml.safe_load(crd.render()) == crd.build()
    assert "&id" not in crd.render()
    crd.build()["spec"]["names"]["shortNames"].append("late")
    assert crd.build()["spec"]["names"]["shortNames"] == list(names.SHORT_NAMES)


def test_names_are_those_of_the_names_module() -> None:
    spec = crd.build()["spec"]
    assert f"{names.PLURAL}.{names.GROUP}" == definition.NAME
    assert f"{spec['group']}/{VERSION['name']}" == names.API_VERSION
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (names.KIND, names.PLURAL)


def test_every_rule_of_several_fields_has_its_cel() -> None:
    """A rule that is added to `checks` must be added to `crd.rules`."""
    assert {rule.mirrors for rule in rules.every()} - {""} == {rule.__name__ for rule in checks.RULES}


@pytest.mark.parametrize("rule", rules.every(), ids=lambda rule: f"{rule.at or 'root'}-{rule.mirrors}")
def test_each_rule_is_told_in_one_line_and_points_into_its_section(rule: cel.Rule) -> None:
    assert "\n" not in rule.text + rule.rule
    node = next(node for path, node in nodes(WHOLE) if path == rule.at)
    assert rule.dump() in node["x-kubernetes-validations"]
    for part in filter(None, rule.field.split(".")):
        node = node["properties"][part]


@pytest.mark.parametrize(("path", "node"), SPEC, ids=[path for path, _ in SPEC])
def test_each_field_of_the_spec_is_bounded_explained_and_without_default(path: str, node: dict[str, Any]) -> None:
    assert "default" not in node
    assert not ("nullable" in node and "enum" in node), "an API server refuses every null of an enum"
    if not path.endswith(("[]", "{}")):
        assert node["description"].endswith("."), path
    if node.get("type") == "string":
        assert "enum" in node or "maxLength" in node or path.endswith("keepHeads{}"), path
    if node.get("type") == "array":
        assert node["maxItems"]
    if "additionalProperties" in node:
        assert node["maxProperties"]


def test_the_schema_has_each_field_of_the_models_and_no_other() -> None:
    def of_models(cls: Any, prefix: str) -> Iterator[str]:
        for alias, info in describe.fields(cls).items():
            yield f"{prefix}.{alias}"
            hint, _ = describe.strip(info.annotation)
            for inner, mark in ((hint, ""), *((item, "[]") for item in getattr(hint, "__args__", ()))):
                if describe.is_model(inner):
                    yield from of_models(inner, f"{prefix}.{alias}{mark}")

    fields = {path for path, _ in nodes(WHOLE["properties"]["spec"], "spec") if not path.endswith(("[]", "{}"))}
    assert fields == {"spec", *of_models(service.Spec, "spec")}


def test_what_may_be_absent_may_be_null_but_for_enums_and_replicas() -> None:
    missing = set()
    for path, node in SPEC:
        for alias, inner in node.get("properties", {}).items():
            if alias not in node.get("required", []) and "enum" not in inner and not inner.get("nullable"):
                missing.add(f"{path}.{alias}")
            assert not (alias in node.get("required", []) and inner.get("nullable"))
    assert missing == {"spec.replicas"}


def test_a_check_that_only_python_knows_stops_the_rendering() -> None:
    class Odd(pydantic.BaseModel):
        field: Annotated[str, pydantic.AfterValidator(str.strip)]

    with pytest.raises(LookupError, match=r"crd/formats\.py"):
        schema.of_model(Odd)

    class OddList(pydantic.BaseModel):
        field: Annotated[list[str], pydantic.AfterValidator(sorted)]

    with pytest.raises(LookupError, match=r"crd/formats\.py"):
        schema.of_model(OddList)


def test_a_list_whose_items_differ_is_a_set_to_the_api_server() -> None:
    assert [path for path, node in SPEC if node.get("x-kubernetes-list-type") == "set"] == [
        "spec.kvCache.precision.keepLayers",
        "spec.kvCache.precision.keepHeads{}",
        "spec.overload.degrade[].keys",
    ]


def test_a_text_with_ranges_says_what_is_accepted_and_what_is_the_default() -> None:
    texts = {path: node.get("description") for path, node in nodes(WHOLE)}
    assert (
        texts["spec.kvCache.blockSize"]
        == "Tokens of one page. A whole number from 1 to 256, in tokens. Default: 16. A change restarts the engine."
    )
    assert texts["spec.scheduler.agingSeconds"].endswith("Default: 10.0. A change takes effect without a restart.")
    assert texts["spec.overload.degrade"].endswith(" A change takes effect without a restart.")
    assert texts["spec.suspend"] == "true: no pods, everything else stays. Default: false."
    assert texts["spec.kvCache.precision"] == "What stays at 16 bits."


WORDS = ["*", "0", "1", "5", "05", "07", "31", "23", "59", "7", "8", "12", "60", "jan", "MON", "fri", "*/5", "*/05",
         "*/0", "1-5", "5-1", "mon-fri", "0-59/10", "1,2", "1,,2", "-1", "5/2", "", "x", "*-5"]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), min_size=5, max_size=5) | st.lists(st.sampled_from(WORDS), max_size=6))
def test_the_pattern_of_a_schedule_is_what_cron_takes_but_for_ranges_that_fall(parts: list[str]) -> None:
    """That a range rises, CEL says. Blanks around and between the fields are no fields."""
    text = " ".join(parts)
    (pattern,) = [node["pattern"] for path, node in nodes(WHOLE) if path == "spec.evaluation.schedule"]
    rises = all(word != "5-1" for word in parts)
    matches = re.search(pattern, text) is not None
    assert (matches and rises) == (cron.problem(text) is None), text


@given(
    st.text("ab.-/", max_size=6), st.sampled_from([names.GROUP, "app.kubernetes.io", "kubernetes.io"]), st.booleans()
)
def test_keys_of_our_own_are_found_as_names_finds_them(prefix: str, domain: str, slash: bool) -> None:
    """The CEL is taken apart here: equal, begins with, or matches."""
    key = f"{prefix}{domain}{'/x' if slash else ''}"
    (rule,) = [rule.rule for rule in rules.every() if rule.at == "spec.podTemplate.labels"]
    equal, begins = re.findall(r"k == '([^']+)'", rule), re.findall(r"k\.startsWith\('([^']+)'\)", rule)
    patterns = re.findall(r"k\.matches\(r'([^']+)'\)", rule)
    assert equal
    assert begins
    assert patterns
    found = key in equal or key.startswith(tuple(begins)) or any(re.search(item, key) for item in patterns)
    assert found == names.is_own(key)


def sample() -> dict[str, Any]:
    """An object as a cluster holds it, with the status that the operator writes."""
    document = manifests.full()
    document["metadata"]["creationTimestamp"] = "2025-03-04T05:00:00Z"
    observed = status.Observed(wanted_hash="abc", url="http://contracts.legal.svc", warnings=("x",))
    document["status"] = status.compute(api.parse(document), observed, NOW) | {"kv": "int8, 12 % of 2000 pages"}
    return document


def read(document: dict[str, Any], path: str) -> Any:
    """The little of JSONPath that columns use: keys, and one filter for equality."""
    here: Any = document
    for key, field, wanted in re.findall(r'\.(\w+)(?:\[\?\(@\.(\w+)=="(\w+)"\)\])?', path):
        here = here[key]
        if field:
            (here,) = [item for item in here if item[field] == wanted]
    return here


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_each_column_finds_its_value_of_its_type(column: dict[str, Any]) -> None:
    value = read(sample(), column["jsonPath"])
    assert isinstance(value, int if column["type"] == "integer" else str)
    assert value != ""


def test_conditions_named_by_columns_exist() -> None:
    named = {
        name for column in VERSION["additionalPrinterColumns"] for name in re.findall(r'"(\w+)"', column["jsonPath"])
    }
    assert named
    assert named <= set(conditions.TYPES)


def test_scale_finds_its_values() -> None:
    scale = VERSION["subresources"]["scale"]
    assert read(sample(), scale["specReplicasPath"]) == 2
    assert read(sample(), scale["statusReplicasPath"]) == 0
    assert read(sample(), scale["labelSelectorPath"]) == "tidemark.dev/service=contracts"


def test_every_field_that_the_operator_writes_is_in_the_schema() -> None:
    """The API server drops what it does not know, without a word."""

    def check(value: Any, node: dict[str, Any], path: str) -> None:
        kind = {dict: "object", list: "array", str: "string", int: "integer"}[type(value)]
        assert node.get("type") == kind, path
        for key, inner in value.items() if kind == "object" else ():
            assert key in node["properties"], f"{path}.{key}"
            check(inner, node["properties"][key], f"{path}.{key}")
        for inner in value if kind == "array" else ():
            check(inner, node["items"], f"{path}[]")
        assert value in node.get("enum", [value])

    check(sample()["status"], WHOLE["properties"]["status"], "status")
    check(status.invalid(sample(), [], NOW), WHOLE["properties"]["status"], "status")


def test_texts_of_one_line_are_refused_where_pythons_spaces_are_more_than_ascii() -> None:
    assert formats.pattern(r"[^\s\p{Cc}]") == r"[^\s\v\x{85}\p{Z}\p{Cc}]"
