"""Right manifests: defaults, null, types that stay, and no crash whatever comes."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Annotated, Any

import manifests
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark_operator import api, errors, names
from tidemark_operator.api import describe, service


def test_the_small_one_has_the_documented_defaults() -> None:
    parsed = api.parse(manifests.small())
    spec = parsed.spec
    assert (parsed.name, parsed.namespace, parsed.model_name, parsed.replicas) == ("demo", "team-a", "demo", 1)
    assert (spec.kv_cache.block_size, spec.kv_cache.memory_utilization, spec.kv_cache.dtype) == (16, 0.9, "auto")
    assert (spec.watermarks.queue, spec.watermarks.preempt, spec.watermarks.hysteresis) == (0.7, 0.9, 0.05)
    assert spec.rollout.canary is None
    assert not spec.suspend


def test_the_full_one_is_read_completely() -> None:
    document = manifests.full()
    parsed = api.parse(document)
    assert parsed.spec.model_dump(by_alias=True, exclude_unset=True) == document["spec"]
    assert parsed.model_name == "contracts-7b"


def test_b059_null_is_the_default_everywhere() -> None:
    """Null and absent mean the same, in a section and in a field."""
    with_null = manifests.small()
    for alias in describe.fields(service.Spec):
        with_null["spec"].setdefault(alias, None)
    with_null["spec"]["hardware"] |= {"nodeSelector": None, "tolerations": None, "runtimeClassName": None}
    with_null["spec"]["rollout"] = {"canary": None, "drainSeconds": None}
    with_null["metadata"]["labels"] = None
    with_null["status"] = None
    parsed = api.parse(with_null)
    assert parsed.spec == api.parse(manifests.small()).spec
    assert "autoscaling" not in parsed.spec.model_fields_set


def test_b075_texts_stay_texts() -> None:
    document = manifests.full()
    parsed = api.parse(document)
    values = {item.name: item.value for item in parsed.spec.pod_template.env}
    assert values == {item["name"]: item.get("value") for item in document["spec"]["podTemplate"]["env"]}
    assert parsed.spec.hardware.tolerations[0].value == "true"
    assert parsed.spec.hardware.node_selector["disk"] == "1e3"


@pytest.mark.parametrize("status", ["junk", 7, [1], None, {"conditions": []}], ids=repr)
def test_any_status_is_accepted(status: Any) -> None:
    parsed = api.parse(manifests.small() | {"status": status})
    assert parsed.status == (status if isinstance(status, dict) else {})


def test_the_document_is_left_alone_and_nothing_is_shared() -> None:
    document = manifests.full()
    before = copy.deepcopy(document)
    parsed = api.parse(document)
    document["spec"]["hardware"]["nodeSelector"]["late"] = "x"
    assert "late" not in parsed.spec.hardware.node_selector
    del document["spec"]["hardware"]["nodeSelector"]["late"]
    assert document == before


def test_a_parsed_service_never_changes() -> None:
    parsed = api.parse(manifests.small())
    with pytest.raises(pydantic.ValidationError):
        parsed.spec.replicas = 4  # type: ignore[misc]


@pytest.mark.parametrize("name", ["a", "a1", "a-b", "x" * 40])
def test_good_names(name: str) -> None:
    assert api.parse(manifests.changed("metadata.name", name)).name == name


@pytest.mark.parametrize(
    "key", ["team", "example.com/team", "x" * 63, f"{'d' * 253}/{'x' * 63}", "A", "a.b-c_d", "0/0"]
)
@pytest.mark.parametrize("value", ["", "x" * 63, "A.b-c_d", "0"])
def test_labels_that_kubernetes_takes(key: str, value: str) -> None:
    metadata = api.parse(manifests.changed("metadata.labels", {key: value})).metadata
    assert metadata.labels == {key: value}


def test_annotations_that_kubernetes_takes() -> None:
    """Any text as a value, and capital letters in the domain: kubectl writes many lines, other tools many names."""
    given = {"kubectl.kubernetes.io/last-applied-configuration": '{"a":\n1}\n', "Acme.Com/x": "", "y": "\t"}
    assert api.parse(manifests.changed("metadata.annotations", given)).metadata.annotations == given


@pytest.mark.parametrize("name", ["a", "Qwen2 7B (int8)", "modèle", "模型", "org/model:tag"])
def test_model_names_of_one_line(name: str) -> None:
    assert api.parse(manifests.changed("spec.model.name", name)).model_name == name


def test_every_text_of_one_line_refuses_what_would_break_it() -> None:
    """Any field of text but annotations' values, which may have lines, and a variable's value."""
    many_lines = {"spec.podTemplate.env.value"}
    for path, hint, metadata in texts(service.Spec, ("spec",)):
        adapter = pydantic.TypeAdapter(Annotated[hint, *metadata] if metadata else hint)
        refused = []
        for text in ("a\nb", "a\x1bb", "/a\nb", "https://a\nb"):
            with contextlib.suppress(pydantic.ValidationError):
                adapter.validate_python(text, strict=True)
                refused.append(text)
        assert (path in many_lines) == bool(refused), (path, refused)


def texts(cls: type[pydantic.BaseModel], prefix: tuple[str, ...]) -> Iterator[tuple[str, Any, list[Any]]]:
    for alias, info in describe.fields(cls).items():
        hint, metadata = describe.strip(info.annotation)
        for inner in (hint, *getattr(hint, "__args__", ())):
            if describe.is_model(inner):
                yield from texts(inner, (*prefix, alias))
        if hint is str:
            yield ".".join((*prefix, alias)), hint, [*info.metadata, *metadata]


def test_the_longest_name_leaves_room_for_every_child_and_pod() -> None:
    longest = "x" * names.MAX_NAME_LENGTH
    pod = f"{names.deployment(longest)}-{'0' * 10}-{'1' * 5}"
    children = [
        *(make(longest) for make in (names.deployment, names.service, names.admin_secret, names.service_account)),
        *(make(longest, "0" * 10) for make in (names.config_map, names.revision)),
    ]
    assert max(map(len, [pod, *children])) <= 63


def sections(cls: type[pydantic.BaseModel]) -> set[type[pydantic.BaseModel]]:
    found = {cls}
    for info in describe.fields(cls).values():
        hint, _ = describe.strip(info.annotation)
        for item in (hint, *getattr(hint, "__args__", ())):
            if describe.is_model(item) and item not in found:
                found |= sections(item)
    return found


@pytest.mark.parametrize("cls", sorted(sections(service.Spec), key=lambda cls: cls.__name__), ids=lambda c: c.__name__)
def test_every_field_explains_itself(cls: type[pydantic.BaseModel]) -> None:
    assert cls.__doc__
    for alias, info in describe.fields(cls).items():
        assert info.description, alias
        assert info.description.endswith((".", ":")), alias
        phrase = describe.phrase(info.annotation, info.metadata)
        assert phrase != "text" or alias == "value", alias


KEYS = sorted({alias for cls in sections(service.Spec) for alias in describe.fields(cls)} | {"x", "Name", ""})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["cpu", "8Gi", "int8"])
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.integers() | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(spec=JUNK, metadata=JUNK)
def test_junk_is_refused_with_problems_and_never_crashes(spec: Any, metadata: Any) -> None:
    document = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(document)
    assert all(problem.path and problem.expected for problem in caught.value.problems)


@settings(max_examples=200, deadline=None)
@given(section=st.sampled_from(sorted(describe.fields(service.Spec))), value=JUNK)
def test_one_junk_section_is_read_or_refused(section: str, value: Any) -> None:
    try:
        parsed = api.parse(manifests.changed(f"spec.{section}", value))
    except errors.ManifestError as error:
        outside = [problem for problem in error.problems if not problem.path.startswith("spec")]
    else:
        outside = [] if parsed.name == "demo" else [parsed]
    assert outside == []


@settings(max_examples=50, deadline=None)
@given(document=JUNK)
def test_any_document_is_refused(document: Any) -> None:
    with pytest.raises(errors.ManifestError):
        api.parse(document)
