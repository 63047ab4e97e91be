"""The CronJob of evaluations: made where there is something to compare, and never taken for an engine."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, effects, names, plan

ASKED = {"schedule": "0 3 * * 0", "maxKl": 0.02, "maxPerplexityRise": 0.01}
FACTS = plan.Facts(image="registry/engine:1", admin_token="t")


def job(**spec: Any) -> dict[str, Any] | None:
    return job_of(manifests.small(**spec))


def job_of(document: dict[str, Any]) -> dict[str, Any] | None:
    wanted = plan.wanted(api.parse(document), FACTS)
    return next((item for item in wanted if item["kind"] == "CronJob"), None)


def test_it_runs_what_the_engine_has_on_the_schedule() -> None:
    found = job(kvCache={"dtype": "int8"}, evaluation=ASKED)
    assert found is not None
    assert found["spec"]["schedule"] == "0 3 * * 0"
    (container,) = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] + container["args"] == [
        *("tidemark", "eval", "configuration", "/etc/tidemark/engine.yaml"),
        *("--max-kl", "0.02", "--max-perplexity-rise", "0.01"),
        *("--results", "/var/cache/tidemark/evaluation", "--verdict-file", "/dev/termination-log"),
    ]
    assert container["image"] == "registry/engine:1"


def test_its_pods_are_not_those_of_the_service_but_its_jobs_are_seen() -> None:
    found = job(kvCache={"dtype": "int8"}, evaluation=ASKED)
    assert found is not None
    template = found["spec"]["jobTemplate"]
    assert names.SERVICE_LABEL not in template["spec"]["template"]["metadata"]["labels"]
    assert template["metadata"]["labels"][names.SERVICE_LABEL] == manifests.small()["metadata"]["name"]


def test_no_secret_reaches_it_and_all_that_is_mounted_exists() -> None:
    found = job(
        kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "m"}}},
        evaluation=ASKED,
        access={"apiKeysSecretRef": {"name": "k"}, "tlsSecretRef": {"name": "t"}},
    )
    assert found is not None
    spec = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert not [volume for volume in spec["volumes"] if "secret" in volume]
    (container,) = spec["containers"]
    assert {item["name"] for item in container["volumeMounts"]} == {item["name"] for item in spec["volumes"]}
    assert "precision" in {item["name"] for item in spec["volumes"]}
    assert not {"ports", "livenessProbe"} & set(container)


@pytest.mark.parametrize(
    "spec",
    [
        {"kvCache": {"dtype": "int8"}},
        {"kvCache": {"dtype": "int8"}, "evaluation": {"maxKl": 0.1}},
        {"kvCache": {"dtype": "bfloat16"}, "evaluation": ASKED},
        {"evaluation": ASKED},
    ],
)
def test_without_a_schedule_or_anything_quantized_there_is_none(spec: dict[str, Any]) -> None:
    assert job(**spec) is None


def test_weights_that_are_rounded_at_load_are_enough() -> None:
    document = manifests.small(evaluation=ASKED)
    document["spec"]["model"]["weights"] = {"quantization": "int8_weight_only"}
    assert job_of(document) is not None


def test_a_schedule_with_nothing_to_compare_is_said() -> None:
    (warning,) = effects.unsupported(api.parse(manifests.small(evaluation=ASKED)))
    assert warning.path == "spec.evaluation.schedule"
    assert "kvCache.dtype" in warning.instead
    assert effects.unsupported(api.parse(manifests.small(evaluation=ASKED, kvCache={"dtype": "int8"}))) == []


def test_on_one_machine_nobody_runs_it() -> None:
    service = api.parse(manifests.small(evaluation=ASKED, kvCache={"dtype": "int8"}))
    assert [warning.path for warning in effects.unsupported(service, local=True)] == ["spec.evaluation"]


def test_the_longest_name_leaves_room_for_the_jobs() -> None:
    assert len(names.evaluation("x" * names.MAX_NAME_LENGTH)) <= 52
