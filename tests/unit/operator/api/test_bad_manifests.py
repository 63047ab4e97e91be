"""Wrong manifests: each problem names its path, what was seen, what was expected, and what to do."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api, errors, names

GONE = manifests.NOTHING
Q = "spec.podTemplate"

# path to change, value, path in the message, parts of the message
BAD: list[tuple[str, Any, str, tuple[str, ...]]] = [
    # the document itself
    ("kind", "Deployment", "kind", ("got 'Deployment'", names.KIND, "kubectl")),
    ("kind", "inferenceservice", "kind", ("Did you mean InferenceService?",)),
    ("kind", GONE, "kind", ("got nothing", "Add kind: InferenceService")),
    ("apiVersion", "tidemark.dev/v1", "apiVersion", ("got 'tidemark.dev/v1'", names.API_VERSION)),
    ("apiVersion", "serving.kserve.io/v1beta1", "apiVersion", ("belongs to another product",)),
    ("apiVersion", GONE, "apiVersion", ("got nothing", names.API_VERSION)),
    ("apiVersion", 1, "apiVersion", ("got 1",)),
    ("spec", GONE, "spec", ("got nothing", "model", "Add it.")),
    ("spec", [], "spec", ("got []", "a mapping with keys model")),
    ("specs", {}, "specs", ("an unknown key", "Did you mean spec?")),
    # metadata
    ("metadata", GONE, "metadata", ("got nothing",)),
    ("metadata.name", GONE, "metadata.name", ("got nothing", "at most 40 characters")),
    ("metadata.name", "a" * 41, "metadata.name", ("at most 40 characters", "It has 41")),
    ("metadata.name", "Demo", "metadata.name", ("'Demo'", "beginning with a letter")),
    ("metadata.name", "1st", "metadata.name", ("'1st'", "beginning with a letter")),
    ("metadata.name", "a.b", "metadata.name", ("'a.b'", "a-z, 0-9 and -")),
    ("metadata.name", "demo\n", "metadata.name", ("beginning with a letter",)),
    ("metadata.name", 7, "metadata.name", ("got 7", "Put it in quotes")),
    ("metadata.namespace", "Team A", "metadata.namespace", ("'Team A'", "name of a Kubernetes object")),
    ("metadata.nam", "x", "metadata.nam", ("an unknown key", "Did you mean name?")),
    # model
    ("spec.model", GONE, "spec.model", ("got nothing", "Add it.")),
    ("spec.model.source", GONE, "spec.model.source", ("got nothing", "pvc, hostPath, image, huggingFace, package")),
    ("spec.model.source", {}, "spec.model.source", ("none of them", "exactly one", "package: {name: smollm2-135m}")),
    ("spec.model.source.hostPath", {"path": "/m"}, "spec.model.source", ("package and hostPath", "exactly one of")),
    ("spec.model.source", {"pvc": {}}, "spec.model.source.pvc.claimName", ("got nothing", "Add it.")),
    ("spec.model.source", {"s3": {"url": "x"}}, "spec.model.source.s3", ("an unknown key", "pvc, hostPath")),
    ("spec.model.source", {"hostPath": {"path": "m"}}, "spec.model.source.hostPath.path", ("'m'", "absolute path")),
    (
        "spec.model.source",
        {"pvc": {"claimName": "m", "path": "../etc"}},
        "spec.model.source.pvc.path",
        ("inside the volume", "Leave out the `..`"),
    ),
    ("spec.model.source", {"pvc": {"claimName": "m", "path": "/x"}}, "spec.model.source.pvc.path", ("leading /",)),
    ("spec.model.source.package.name", "", "spec.model.source.package.name", ("got ''", "not empty")),
    ("spec.model.source.package", "smollm2-135m", "spec.model.source.package", ("a mapping with keys name",)),
    ("spec.model.maxContextTokens", 0, "spec.model.maxContextTokens", ("got 0", "at least 1")),
    ("spec.model.maxContextTokens", "32k", "spec.model.maxContextTokens", ("got '32k'", "a whole number")),
    ("spec.model.weights.dtype", "fp16", "spec.model.weights.dtype", ("got 'fp16'", "float16")),
    ("spec.model.weights.quantization", "int4", "spec.model.weights.quantization", ("Did you mean int8?",)),
    # hardware
    ("spec.hardware.resourceName", "gpu", "spec.hardware.resourceName", ("'gpu'", "nvidia.com/gpu")),
    ("spec.hardware.count", 0, "spec.hardware.count", ("got 0", "from 1 to 1024", "Without it: 1")),
    ("spec.hardware.count", 1.5, "spec.hardware.count", ("got 1.5", "a whole number")),
    ("spec.hardware.count", True, "spec.hardware.count", ("got true", "a whole number")),
    ("spec.hardware.count", "2", "spec.hardware.count", ("got '2'", "Remove the quotes")),
    ("spec.hardware.memory", "8GB", "spec.hardware.memory", ("'8GB'", "Write 8Gi (1024) or 8G (1000)")),
    ("spec.hardware.memory", "8gi", "spec.hardware.memory", ("'8gi'", "Write 8Gi")),
    ("spec.hardware.memory", "8 Gi", "spec.hardware.memory", ("'8 Gi'", "Write 8Gi")),
    ("spec.hardware.memory", "much", "spec.hardware.memory", ("'much'", "Ki, Mi, Gi")),
    ("spec.hardware.memory", "-1Gi", "spec.hardware.memory", ("'-1Gi'", "a size such as 8Gi")),
    ("spec.hardware.memory", "500m", "spec.hardware.memory", ("'500m'", "500M")),
    ("spec.hardware.memory", "9999999Ei", "spec.hardware.memory", ("2^63",)),
    ("spec.hardware.memory", 2, "spec.hardware.memory", ("got 2", "at least 64Mi", "number of bytes")),
    ("spec.hardware.memory", 1.5, "spec.hardware.memory", ("got 1.5", "a size such as 8Gi")),
    ("spec.hardware.nodeSelector", {"gpu": True}, "spec.hardware.nodeSelector.gpu", ("got true", "in quotes")),
    ("spec.hardware.nodeSelector", {"gpu": None}, "spec.hardware.nodeSelector.gpu", ("got null",)),
    ("spec.hardware.nodeSelector", {7: "x"}, "spec.hardware.nodeSelector[7]", ("the key 7", "key in quotes")),
    (
        "spec.hardware.nodeSelector",
        {"a.b/c": "x y"},
        'spec.hardware.nodeSelector["a.b/c"]',
        ("'x y'", "at most 63 characters"),
    ),
    (
        "spec.hardware.tolerations",
        [{"key": "k", "value": True}],
        "spec.hardware.tolerations[0].value",
        ("got true", "Put it in quotes"),
    ),
    ("spec.hardware.tolerations", [{"value": "x"}], "spec.hardware.tolerations[0].key", ("Equal", "use Exists")),
    (
        "spec.hardware.tolerations",
        [{"operator": "Exists", "value": "x"}],
        "spec.hardware.tolerations[0].value",
        ("nothing with the operator Exists",),
    ),
    ("spec.hardware.tolerations", [{"key": "k", "effect": "No"}], "spec.hardware.tolerations[0].effect", ("NoExec",)),
    ("spec.hardware.tolerations", [None], "spec.hardware.tolerations[0]", ("got null", "a mapping with keys key")),
    ("spec.hardware.tolerations", {}, "spec.hardware.tolerations", ("got {}", "a list")),
    # replicas
    ("spec.replicas", -1, "spec.replicas", ("got -1", "from 0 to 256")),
    ("spec.replica", 1, "spec.replica", ("an unknown key", "Did you mean replicas?")),
    ("spec.autoscaling", {"min": 3, "max": 2}, "spec.autoscaling.min", ("got 3", "at most autoscaling.max, 2")),
    ("spec.autoscaling", {"min": 1}, "spec.autoscaling.max", ("got nothing",)),
    # kvCache
    ("spec.kvCache.dtype", "int4", "spec.kvCache.dtype", ("allowLossy", "Choose int8")),
    ("spec.kvCache.dtype", "fp8", "spec.kvCache.dtype", ("got 'fp8'", "fp8_e4m3")),
    ("spec.kvCache.blockSize", 512, "spec.kvCache.blockSize", ("got 512", "from 1 to 256", "Without it: 16")),
    ("spec.kvCache.blocksize", 16, "spec.kvCache.blocksize", ("an unknown key", "Did you mean blockSize?")),
    ("spec.kvCache.memoryUtilization", 90, "spec.kvCache.memoryUtilization", ("got 90", "from 0.05 to 1.0")),
    ("spec.kvCache.prefixCaching", "yes", "spec.kvCache.prefixCaching", ("got 'yes'", "true or false")),
    ("spec.kvCache.prefixCaching", "true", "spec.kvCache.prefixCaching", ("got 'true'", "Remove the quotes")),
    ("spec.kvCache.swapSpace", "8Gib", "spec.kvCache.swapSpace", ("'8Gib'", "Write 8Gi")),
    ("spec.kvCache.precision", {"keepLayers": [-1]}, "spec.kvCache.precision.keepLayers[0]", ("got -1", "from 0")),
    ("spec.kvCache.precision", {"keepHeads": {7: [2]}}, "spec.kvCache.precision.keepHeads[7]", ('such as "7"',)),
    ("spec.kvCache.precision", {"keepHeads": {"7": 2}}, "spec.kvCache.precision.keepHeads.7", ("got 2", "a list")),
    (
        "spec.kvCache.precision",
        {"mapRef": {"name": "m"}, "keepLayers": [1]},
        "spec.kvCache.precision",
        ("mapRef and keepLayers", "either"),
    ),
    (
        "spec.kvCache",
        {"dtype": "float16", "precision": {"keepLayers": [1]}},
        "spec.kvCache.precision",
        ("Nothing is quantized",),
    ),
    ("swapSpace", "8Gi", "swapSpace", ("an unknown key", "Did you mean spec.kvCache.swapSpace?")),
    # scheduler, watermarks, overload, speculative
    ("spec.scheduler.maxNumSeqs", 4097, "spec.scheduler.maxNumSeqs", ("from 1 to 4096",)),
    (
        "spec.scheduler",
        {"maxNumSeqs": 64, "maxNumBatchedTokens": 32},
        "spec.scheduler.maxNumBatchedTokens",
        ("at least scheduler.maxNumSeqs, 64",),
    ),
    ("spec.scheduler.max_num_seqs", 4, "spec.scheduler.max_num_seqs", ("Did you mean maxNumSeqs?",)),
    ("spec.scheduler.preemption.mode", "swap", "spec.kvCache.swapSpace", ("more than 0", "auto")),
    ("spec.scheduler", {"maxNumSeqs": 8, "maxConcurrencySoft": 9}, "spec.scheduler.maxConcurrencySoft", ("at most",)),
    ("spec.scheduler.targetStepSeconds", 0, "spec.scheduler.targetStepSeconds", ("got 0", "from 0.001 to 60")),
    ("spec.watermarks.queue", 0.95, "spec.watermarks.queue", ("got 0.95", "less than watermarks.preempt, 0.9")),
    ("spec.watermarks.queue", 70, "spec.watermarks.queue", ("got 70", "from 0 to 1", "Without it: 0.7")),
    ("spec.watermarks.hysteresis", 0.2, "spec.watermarks.hysteresis", ("less than the 0.2 between",)),
    ("spec.watermarks.hysteresis", 0.3, "spec.watermarks.hysteresis", ("got 0.3",)),
    ("spec.watermarks.queue", float("nan"), "spec.watermarks.queue", ("got nan",)),
    ("spec.watermarks.response", "panic", "spec.watermarks.response", ("observe, tighten",)),
    ("spec.overload.maxQueueSeconds", -1, "spec.overload.maxQueueSeconds", ("at least 0.001",)),
    ("spec.overload.maxQueuedRequests", 10.5, "spec.overload.maxQueuedRequests", ("a whole number",)),
    ("spec.speculative.method", "medusa", "spec.speculative.method", ("none, ngram, draft",)),
    ("spec.speculative.method", "draft", "spec.speculative.draftModel", ("got nothing", "Name it")),
    ("spec.speculative.draftModel", "x", "spec.speculative.draftModel", ("got 'x'", "choose the method draft")),
    # rollout, evaluation, access, monitoring, podTemplate
    ("spec.rollout.strategy", "Recreate", "spec.rollout.strategy", ("auto, surge, replace",)),
    ("spec.rollout.progressDeadlineSeconds", 60, "spec.rollout.progressDeadlineSeconds", ("drainSeconds, 60",)),
    ("spec.rollout.canary.steps", [5, 50], "spec.rollout.canary.steps", ("[5, 50]", "the last is 100")),
    ("spec.rollout.canary.steps", [50, 5, 100], "spec.rollout.canary.steps", ("rising",)),
    ("spec.rollout.canary.steps", [], "spec.rollout.canary.steps", ("It has 0 items", "at least 1")),
    ("spec.rollout.canary.steps", [0, 100], "spec.rollout.canary.steps[0]", ("from 1 to 100",)),
    ("spec.evaluation.schedule", "at night", "spec.evaluation.schedule", ("It has 2 fields", "five")),
    ("spec.evaluation.schedule", "0 25 * * *", "spec.evaluation.schedule", ("The hour is '25'", "0 to 23")),
    ("spec.access.apiKeysSecretRef", "keys", "spec.access.apiKeysSecretRef", ("a mapping with keys name, key",)),
    ("spec.access.apiKeysSecretRef", {"name": "K_K"}, "spec.access.apiKeysSecretRef.name", ("'K_K'",)),
    ("spec.access.allowFrom", [{}], "spec.access.allowFrom[0]", ("namespaceSelector, podSelector or ipBlock",)),
    ("spec.monitoring.runbookBaseUrl", "wiki", "spec.monitoring.runbookBaseUrl", ("http://",)),
    ("spec.monitoring.enabled", 1, "spec.monitoring.enabled", ("got 1", "true or false")),
    (f"{Q}.env", [{"name": "A", "value": 1}], f"{Q}.env[0].value", ("got 1", "Put it in quotes")),
    (f"{Q}.env", [{"name": "A", "value": True}], f"{Q}.env[0].value", ("got true", "Put it in quotes")),
    (f"{Q}.env", [{"name": "A B", "value": "x"}], f"{Q}.env[0].name", ("'A B'", "a variable's name")),
    (f"{Q}.env", [{"name": "A"}, {"name": "A"}], f"{Q}.env[1].name", ("each name once, not 2 times",)),
    (f"{Q}.env", [{"name": "A", "valueFrom": {}}], f"{Q}.env[0].valueFrom", ("none of them", "exactly one")),
    (
        f"{Q}.env",
        [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        f"{Q}.env[0]",
        ("value and valueFrom",),
    ),
    (f"{Q}.labels", {names.SERVICE_LABEL: "x"}, f'{Q}.labels["{names.SERVICE_LABEL}"]', ("a key of your own",)),
    (f"{Q}.labels", {"app.kubernetes.io/name": "x"}, f'{Q}.labels["app.kubernetes.io/name"]', ("Choose another",)),
    (f"{Q}.resources.limits", {"memory": "4GB"}, f"{Q}.resources.limits.memory", ("'4GB'", '"4Gi"')),
    (f"{Q}.containers", [], f"{Q}.containers", ("an unknown key", "env, labels, annotations")),
    ("spec.suspend", "no", "spec.suspend", ("got 'no'", "true or false")),
]


@pytest.mark.parametrize(("change", "value", "path", "parts"), BAD, ids=[f"{row[0]}-{n}" for n, row in enumerate(BAD)])
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


def test_long_values_are_shown_short() -> None:
    with pytest.raises(errors.ManifestError) as caught:
        api.parse(manifests.changed("spec.model.weights.dtype", "x" * 10_000))
    assert len(str(caught.value)) < 400
