"""The status as a table: what was seen -> Ready, reason, phase; and that nothing changes by itself."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import manifests
import pytest

from tidemark_operator import api, effects, errors, status
from tidemark_operator.status import conditions
from tidemark_runtime.contract.status import (
    ConfigStatus,
    EngineState,
    EngineStatus,
    LoadStatus,
    MemoryStatus,
    ModelStatus,
)

NOW = datetime.datetime(2025, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(minutes=5)
HASH = "abcdef012345"


def engine(state: EngineState = EngineState.READY, message: str = "ok", **values: Any) -> EngineStatus:
    return EngineStatus(
        version="0",
        state=state,
        message=message,
        model=ModelStatus(name="demo", source="smollm2-135m"),
        config=ConfigStatus(values.pop("hash", HASH)),
        **values,
    )


def deployment(replicas: int = 1, *, ready: int | None = None, **values: Any) -> dict[str, Any]:
    ready = replicas if ready is None else ready
    return {
        "metadata": {"name": "demo", "generation": values.pop("generation", 2)},
        "status": {
            "observedGeneration": values.pop("observed", 2),
            "replicas": replicas,
            "updatedReplicas": values.pop("updated", replicas),
            "readyReplicas": ready,
            **values,
        },
    }


def pod(
    name: str = "demo-1", *, ready: bool = False, state: dict[str, Any] | None = None, **values: Any
) -> dict[str, Any]:
    container = {"name": "engine", "image": "x:1", "state": state or {"running": {}}}
    for key in ("lastState", "restartCount"):
        if key in values:
            container[key] = values.pop(key)
    return {
        "metadata": {"name": name, **values.pop("metadata", {})},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [container],
            **values,
        },
    }


def computed(document: dict[str, Any] | None = None, now: datetime.datetime = NOW, **observed: Any) -> dict[str, Any]:
    service = api.parse(document or manifests.small())
    return status.compute(service, status.Observed(wanted_hash=HASH, **observed), now)


def condition(made: dict[str, Any], type_: str) -> dict[str, Any]:
    (found,) = [item for item in made["conditions"] if item["type"] == type_]
    return dict(found)


def served(**values: Any) -> dict[str, Any]:
    return {"deployment": deployment(), "pods": [pod(ready=True)], "engines": {"demo-1": engine(**values)}}


def test_a_service_that_serves() -> None:
    memory = MemoryStatus(pages_total=2000, pages_used=241)
    made = computed(**served(memory=memory, worker={"kvDtype": "float32"}), url="http://127.0.0.1:8080")
    assert {item["type"]: item["status"] for item in made["conditions"]} == {
        "Ready": "True",
        "Available": "True",
        "Progressing": "False",
        "Degraded": "False",
        "ModelReady": "True",
        "CapacityFit": "True",
        "ConfigApplied": "True",
    }
    del made["conditions"]
    assert made == {
        "observedGeneration": 3,
        "phase": "Ready",
        "replicas": 1,
        "readyReplicas": 1,
        "selector": "tidemark.dev/service=demo",
        "url": "http://127.0.0.1:8080",
        "model": "demo",
        "devices": "2 cores",
        "kv": "float32, 12 % of 2000 pages",
        "warnings": [],
    }


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "message": message, "reason": reason}}


def crashed(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return pod(state=waiting("CrashLoopBackOff", "back-off"), lastState=ended(code, message, reason), restartCount=4)


LOG = "loading\n\nTraceback\ntidemark serve: {}\n"
NOT_FOUND = LOG.format("ModelNotFound: no model 'nope'")
TOO_LARGE = LOG.format("DoesNotFit: weights 90 MiB + KV 9 MiB = 99 MiB, but 64 MiB usable")
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}

# name, pods, engine of demo-1, reason, parts of the message, whether it is a problem
NOT_READY: list[tuple[str, list[dict[str, Any]], EngineStatus | None, str, tuple[str, ...], bool]] = [
    ("no pod yet", [], None, "RollingOut", ("0 of 1 pods",), False),
    ("pulling", [pod(state=waiting("ContainerCreating"))], None, "Starting", ("The pod starts",), False),
    ("just up", [pod()], None, "Starting", ("The pod starts",), False),
    (
        "loading",
        [pod()],
        engine(EngineState.LOADING, load=LoadStatus("weights", 0.43)),
        "Loading",
        ("weights: 43%",),
        False,
    ),
    ("loading, no progress told", [pod()], engine(EngineState.LOADING), "Loading", ("The model is loading.",), False),
    ("draining", [pod()], engine(EngineState.DRAINING), "Draining", ("not taken",), False),
    ("stalled", [pod()], engine(EngineState.STALLED, "No step for 61 s."), "Stalled", ("No step for 61 s.",), True),
    ("failed", [pod()], engine(EngineState.FAILED, "it broke"), "EngineFailed", ("it broke",), True),
    (
        "failed, too large",
        [pod()],
        engine(EngineState.FAILED, "The engine has ended: 9 GiB are too much", reason="DoesNotFit"),
        "DoesNotFit",
        ("9 GiB",),
        True,
    ),
    (
        "crash loop",
        [crashed(1, LOG.format("it broke"))],
        None,
        "CrashLoopBackOff",
        ("exit code 1, 4 restarts", "The last line of its log: tidemark serve: it broke"),
        True,
    ),
    ("silent crash loop", [crashed(3)], None, "CrashLoopBackOff", ("exit code 3", "see its log"), True),
    ("killed", [crashed(137)], None, "CrashLoopBackOff", ("exit code 137 (killed)",), True),
    (
        "out of memory",
        [crashed(137, "", "OOMKilled")],
        None,
        "OutOfMemory",
        ("killed for memory", "spec.hardware.memory"),
        True,
    ),
    (
        "model not found",
        [crashed(1, NOT_FOUND)],
        None,
        "ModelNotFound",
        ("It said: no model 'nope'", "spec.model.source"),
        True,
    ),
    (
        "draft model not found",
        [crashed(1, LOG.format("ModelNotFound: speculative.draftModel: got 'x', expected a .gguf file; no model 'x'"))],
        None,
        "ModelNotFound",
        ("It said: speculative.draftModel: got 'x'", "Check spec.speculative.draftModel."),
        True,
    ),
    (
        "another kernel path than planned",
        [crashed(1, LOG.format("KernelPath: hardware.strictKernels is true. rms_norm: planned on cpu-c"))],
        None,
        "KernelPath",
        ("rms_norm: planned on cpu-c", "use another image"),
        True,
    ),
    (
        "a kernel that is wrong",
        [crashed(1, LOG.format("KernelSelfTestFailed: rms_norm in float32 differs by 1 from its reference"))],
        None,
        "KernelSelfTestFailed",
        ("rms_norm in float32 differs", "Use another image"),
        True,
    ),
    ("does not fit", [crashed(1, TOO_LARGE)], None, "DoesNotFit", ("99 MiB, but 64 MiB usable",), True),
    (
        "corrupt",
        [crashed(1, LOG.format("CorruptModel: a.gguf: it ends early"))],
        None,
        "CorruptModel",
        ("it ends early",),
        True,
    ),
    (
        "unsupported",
        [crashed(1, LOG.format("UnsupportedModel: a.gguf: the tensor x has the type IQ1_S") + "closed\n")],
        None,
        "UnsupportedModel",
        ("IQ1_S",),
        True,
    ),
    (
        "a sentence alone is no reason",
        [crashed(1, "ValueError: the file is empty, not supported, and does not fit")],
        None,
        "CrashLoopBackOff",
        ("the file is empty",),
        True,
    ),
    ("ended, not yet again", [pod(state=ended(2, "boom"))], None, "EngineExited", ("code 2", "boom"), True),
    (
        "runs again, cause known",
        [pod(lastState=ended(1, NOT_FOUND), restartCount=1)],
        engine(EngineState.LOADING),
        "ModelNotFound",
        ("started again",),
        True,
    ),
    (
        "runs again after a kill",
        [pod(lastState=ended(137), restartCount=1)],
        engine(EngineState.LOADING),
        "Loading",
        (),
        False,
    ),
    (
        "runs again, no answer yet",
        [pod(lastState=ended(137), restartCount=1)],
        None,
        "EngineExited",
        ("1 restart.", "started again"),
        True,
    ),
    (
        "image",
        [pod(state=waiting("ErrImagePull", "no such host"))],
        None,
        "ImagePullBackOff",
        ("The image x:1 cannot be pulled: no such host.", "registry"),
        True,
    ),
    ("image, later", [pod(state=waiting("ImagePullBackOff"))], None, "ImagePullBackOff", ("x:1",), True),
    (
        "secret missing",
        [pod(state=waiting("CreateContainerConfigError", 'secret "keys" not found'))],
        None,
        "CreateContainerConfigError",
        ('secret "keys" not found',),
        True,
    ),
    (
        "unschedulable",
        [pod(conditions=[UNSCHEDULABLE], containerStatuses=[])],
        None,
        "Unschedulable",
        ("3 Insufficient nvidia.com/gpu",),
        True,
    ),
    (
        "evicted",
        [pod(phase="Failed", reason="Evicted", message="low on memory", containerStatuses=[])],
        None,
        "Evicted",
        ("low on memory",),
        True,
    ),
    (
        "a problem comes before loading",
        [pod("demo-1"), pod("demo-2", state=waiting("ErrImagePull"))],
        engine(EngineState.LOADING),
        "ImagePullBackOff",
        (),
        True,
    ),
    (
        "two problems",
        [pod("demo-1", state=ended(2)), pod("demo-2", state=ended(2))],
        None,
        "EngineExited",
        ("2 pods have a problem",),
        True,
    ),
    (
        "an ending pod does not count",
        [crashed(1) | {"metadata": {"name": "demo-1", "deletionTimestamp": "t"}}],
        None,
        "RollingOut",
        (),
        False,
    ),
    ("no status at all", [{"metadata": {"name": "demo-1"}}], None, "Starting", (), False),
]


@pytest.mark.parametrize(("pods", "answer", "reason", "parts", "problem"), [row[1:] for row in NOT_READY],
                         ids=[row[0] for row in NOT_READY])  # fmt: skip
def test_the_reason_is_in_the_users_words(
    pods: list[dict[str, Any]], answer: EngineStatus | None, reason: str, parts: tuple[str, ...], problem: bool
) -> None:
    made = computed(deployment=deployment(ready=0, updated=0), pods=pods, engines={"demo-1": answer})
    ready = condition(made, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    for part in parts:
        assert part in ready["message"]
    assert condition(made, "Degraded")["status"] == ("True" if problem else "False")
    assert condition(made, "Available")["status"] == "False"
    assert made["phase"].startswith(f"{reason}: ")
    for item in made["conditions"]:
        assert item["reason"].isalpha(), item
        assert item["reason"][0].isupper(), item
        assert item["message"], item


def test_nothing_exists_yet() -> None:
    made = computed()
    assert condition(made, "Ready")["reason"] == "Creating"
    assert condition(made, "Progressing")["status"] == "True"
    assert condition(made, "ModelReady")["status"] == condition(made, "ConfigApplied")["status"] == "Unknown"
    assert made["replicas"] == made["readyReplicas"] == 0
    assert not {"url", "kv"} & set(made)


@pytest.mark.parametrize(
    ("spec", "reason"), [({"suspend": True}, "Suspended"), ({"replicas": 0}, "ScaledToZero")], ids=str
)
def test_no_pods_on_purpose_is_no_problem(spec: dict[str, Any], reason: str) -> None:
    made = computed(manifests.small(**spec), deployment=deployment(0))
    assert condition(made, "Ready")["reason"] == reason
    assert condition(made, "Ready")["status"] == "False"
    assert condition(made, "Progressing")["status"] == condition(made, "Degraded")["status"] == "False"


def test_b069_the_old_revision_does_not_make_the_new_one_ready() -> None:
    old_pod = {"pods": [pod("demo-1", ready=True)], "engines": {"demo-1": engine(hash="old")}}
    unseen = computed(deployment=deployment(generation=3, observed=2), **old_pod)
    rolling = computed(deployment=deployment(2, ready=1, updated=1, generation=3, observed=3), **old_pod)
    for made in (unseen, rolling):
        assert condition(made, "Ready")["status"] == "False"
        assert condition(made, "Available")["status"] == "True"
        assert condition(made, "Progressing")["status"] == "True"
        assert condition(made, "ConfigApplied")["status"] == "False"
        assert made["observedGeneration"] == 3
        assert {item["observedGeneration"] for item in made["conditions"]} == {3}


def test_one_of_two_replicas_answers_with_traffic_working() -> None:
    made = computed(
        manifests.small(replicas=2),
        deployment=deployment(2, ready=1),
        pods=[pod("demo-1", ready=True), pod("demo-2", state=ended(2, "boom"))],
        engines={"demo-1": engine(), "demo-2": None},
    )
    assert condition(made, "Ready")["status"] == "True"
    assert condition(made, "Degraded")["reason"] == "EngineExited"
    assert made["phase"] == "Ready: 1 of 2"


def test_a_rollout_that_takes_too_long_has_failed() -> None:
    stuck = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "900 s are over",
    }
    made = computed(deployment=deployment(ready=0, conditions=[stuck]))
    assert condition(made, "Progressing")["reason"] == condition(made, "Ready")["reason"] == "ProgressDeadlineExceeded"
    assert condition(made, "Progressing")["status"] == "False"
    assert condition(made, "Degraded")["status"] == "True"


def test_pods_that_may_not_be_made() -> None:
    refused = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: gpus"}
    made = computed(deployment=deployment(0, conditions=[refused]))
    assert condition(made, "Ready")["reason"] == "PodsRefused"
    assert "exceeded quota" in condition(made, "Ready")["message"]


def test_capacity_is_unknown_until_it_is_known() -> None:
    unknown = computed(deployment=deployment(ready=0), fit_message="Not before its first start.")
    assert condition(unknown, "CapacityFit")["status"] == "Unknown"
    assert condition(unknown, "CapacityFit")["message"] == "Not before its first start."
    planned = computed(deployment=deployment(ready=0), fits=True, fit_message="a + b = c")
    assert condition(planned, "CapacityFit")["message"] == "a + b = c"
    made = computed(deployment=deployment(ready=0), pods=[crashed(1, TOO_LARGE)])
    assert condition(made, "CapacityFit")["reason"] == "DoesNotFit"


def test_configuration_is_applied_when_every_engine_says_so() -> None:
    made = computed(
        manifests.small(replicas=2),
        deployment=deployment(2),
        pods=[pod("a", ready=True), pod("b", ready=True)],
        engines={"a": engine(), "b": engine(hash="old")},
    )
    assert condition(made, "ConfigApplied")["reason"] == "Pending"
    assert "1 of 2 engines" in condition(made, "ConfigApplied")["message"]


def test_a_pod_that_refuses_the_configuration_is_named_with_its_words() -> None:
    made = computed(
        manifests.small(),
        deployment=deployment(1),
        pods=[pod("a", ready=True)],
        engines={"a": engine(hash="old")},
        rejected={"a": "400: no"},
    )
    assert condition(made, "ConfigApplied")["reason"] == "Rejected"
    assert "a runs old and refuses: 400: no." in condition(made, "ConfigApplied")["message"]


def test_a_rolled_back_service_is_available_and_not_ready() -> None:
    made = computed(deployment=deployment(1), failed="It crashed.", running_revision=3, retry="Change the spec.")
    assert condition(made, "Available")["status"] == "True"
    assert (condition(made, "Ready")["status"], condition(made, "Ready")["reason"]) == ("False", "RolledBack")
    assert "It crashed. The pods run revision 3, the last that served. Change the spec." in str(made["conditions"])


def test_with_autoscaling_the_number_of_the_deployment_counts_b071() -> None:
    scaled = deployment(6)
    scaled["spec"] = {"replicas": 6}
    made = computed(manifests.small(autoscaling={"min": 4, "max": 8}), deployment=scaled)
    assert condition(made, "Ready")["status"] == "True"


def test_the_same_again_changes_nothing() -> None:
    """An idle service causes no writes."""
    first = computed(**served())
    again = computed(manifests.small() | {"status": first}, LATER, **served())
    assert again == first


def test_a_transition_time_moves_only_with_its_status() -> None:
    loading = computed(deployment=deployment(ready=0), pods=[pod()], engines={"demo-1": engine(EngineState.LOADING)})
    stalled = computed(
        manifests.small() | {"status": loading},
        LATER,
        deployment=deployment(ready=0),
        pods=[pod()],
        engines={"demo-1": engine(EngineState.STALLED, "No progress.")},
    )
    times = {item["type"]: item["lastTransitionTime"] for item in stalled["conditions"]}
    assert times["Ready"] == "2025-03-04T05:06:07Z"  # False before and after, for another reason
    assert times["Degraded"] == "2025-03-04T05:11:07Z"
    assert condition(stalled, "Ready")["reason"] == "Stalled"


def test_warnings_are_passed_on() -> None:
    service = api.parse(manifests.full())
    warnings = [str(warning) for warning in effects.unsupported(service)]
    made = status.compute(service, status.Observed(warnings=warnings), NOW)
    assert made["warnings"] == warnings
    assert any("spec.rollout.canary has no effect yet" in warning for warning in made["warnings"])
    assert made["devices"] == "1 × nvidia.com/gpu"


def test_an_engine_that_serves_and_complains_is_heard_once() -> None:
    complaint = engine(message="the key file holds no key.", reason="KeysUnreadable")
    made = computed(
        manifests.small(replicas=3),
        deployment=deployment(3),
        pods=[pod(name, ready=True) for name in "abc"],
        engines={"a": complaint, "b": complaint, "c": engine()},
    )
    assert condition(made, "Ready")["status"] == "True"
    assert made["warnings"] == ["KeysUnreadable: the key file holds no key."]


def test_what_was_observed_is_left_alone() -> None:
    seen = served()
    before = copy.deepcopy({key: seen[key] for key in ("deployment", "pods")})
    first, second = computed(**seen), computed(**seen)
    first["conditions"].clear()
    assert second["conditions"]
    assert {key: seen[key] for key in ("deployment", "pods")} == before


def test_times_are_utc_whatever_the_zone() -> None:
    east = datetime.timezone(datetime.timedelta(hours=8))
    assert conditions.timestamp(NOW.astimezone(east)) == "2025-03-04T05:06:07Z"


def test_an_invalid_document_keeps_what_was_known() -> None:
    before = computed(**served(), url="http://x")
    document = manifests.changed("spec.hardware.count", 0, manifests.small(suspend="no")) | {"status": before}
    document["metadata"]["generation"] = 4
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(document)
    made = status.invalid(document, caught.value.problems, LATER)
    ready = condition(made, "Ready")
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "InvalidSpec", 4)
    assert "spec.hardware.count: got 0" in ready["message"]
    assert "spec.suspend: got 'no'" in ready["message"]
    assert made["url"] == "http://x"
    assert made["observedGeneration"] == 3
    assert condition(made, "Available")["status"] == "True"
    assert status.invalid(document | {"status": made}, caught.value.problems, NOW) == made


@pytest.mark.parametrize("document", [{}, {"status": "junk", "metadata": None}, {"metadata": {"name": "x"}}], ids=str)
def test_an_invalid_document_may_be_anything(document: dict[str, Any]) -> None:
    made = status.invalid(document, [errors.Problem("spec", None, "a spec")], NOW)
    assert condition(made, "Ready")["reason"] == "InvalidSpec"
