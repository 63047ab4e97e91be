"""Wrong manifests: each problem names its path, what was seen, what was expected, and what to do."""

from __future__ import annotations

from typing import Any

import bad_manifests
import manifests
import pytest

from tidemark_operator import api, errors


@pytest.mark.parametrize(("change", "value", "path", "parts"), bad_manifests.BAD, ids=bad_manifests.IDS)
def test_the_problem_is_named(change: str, value: Any, path: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(manifests.changed(change, value))
    found = {problem.path: str(problem) for problem in caught.value.problems}
    assert list(found) == [path]
    for part in parts:
        assert part in found[path]
    assert f"{path}: got " in found[path]
    assert ", expected " in found[path]


def test_all_problems_come_at_once_whether_of_one_field_or_of_several() -> None:
    document = manifests.full()
    document["spec"]["watermarks"]["queue"] = 0.95  # of two fields
    document["spec"]["hardware"]["count"] = 0  # of one field
    document["spec"]["kvCache"]["blocksize"] = 16  # unknown
    document["spec"]["rollout"]["canary"]["steps"] = [50]
    document["metadata"]["name"] = "UPPER"
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(document, source="contracts.yaml")
    assert {problem.path for problem in caught.value.problems} == {
        "metadata.name",
        "spec.hardware.count",
        "spec.kvCache.blocksize",
        "spec.rollout.canary.steps",
        "spec.watermarks.queue",
    }
    assert str(caught.value).startswith("contracts.yaml: 5 problems\n")


def test_a_value_that_was_refused_is_not_judged_a_second_time() -> None:
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(manifests.changed("spec.watermarks", {"queue": "high", "preempt": 0.1}))
    assert [problem.path for problem in caught.value.problems] == ["spec.watermarks.queue"]


def test_replicas_outside_the_scaler_are_refused_and_inside_accepted() -> None:
    scaled = manifests.small(autoscaling={"min": 2, "max": 4}, replicas=5)
    with pytest.raises(errors.ManifestError, match="2 to 4"):
        api.parse(scaled)
    assert api.parse(manifests.changed("spec.replicas", 3, scaled)).replicas == 3


def test_a_device_asked_for_twice_is_refused() -> None:
    document = manifests.changed("spec.podTemplate.resources.limits", {"nvidia.com/gpu": "2"}, manifests.full())
    with pytest.raises(errors.ManifestError, match=r"hardware\.count says how many"):
        api.parse(document)


@pytest.mark.parametrize("document", [None, [], "text", 7], ids=repr)
def test_what_is_no_mapping_gets_one_answer(document: Any) -> None:
    with pytest.raises(errors.ManifestError, match="a mapping with apiVersion, kind, metadata, spec"):
        api.parse(document)


def test_another_kind_gets_one_answer_instead_of_one_a_key() -> None:
    with pytest.raises(errors.ManifestError) as caught:
        api.parse({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "immutable": True})
    assert len(caught.value.problems) == 1


def test_a_document_that_contains_itself_is_refused() -> None:
    document = manifests.small()
    document["spec"]["model"]["source"] = document
    with pytest.raises(errors.ManifestError, match="levels of nesting"):
        api.parse(document)


def test_a_document_that_grows_without_end_is_refused() -> None:
    grown: Any = ["x"] * 10
    for _ in range(8):
        grown = [grown] * 10
    with pytest.raises(errors.ManifestError, match="more than 100000 values"):
        api.parse(manifests.changed("spec.hardware.tolerations", grown))


def test_a_number_that_no_machine_holds_is_refused_in_fields_of_either_kind() -> None:
    for path in ("spec.overload.maxQueuedTokens", "spec.overload.maxQueueSeconds", "spec.replicas"):
        with pytest.raises(errors.ManifestError, match=r"got inf, expected a (whole )?number"):
            api.parse(manifests.changed(path, 10**400))
    assert api.parse(manifests.changed("spec.overload.maxQueueSeconds", 2**64)).spec.overload.max_queue_seconds == 2**64


def test_long_values_are_shown_short() -> None:
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(manifests.changed("spec.model.weights.dtype", "x" * 10_000))
    assert len(str(caught.value)) < 400
