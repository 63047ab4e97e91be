"""Manifests that the models and an API server with our CRD are both asked about, and how the server is asked."""

from __future__ import annotations

import copy
import json
import random
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import annotated_types
import bad_manifests
import manifests

from tidemark_operator import names
from tidemark_operator.api import crd, describe, service

if TYPE_CHECKING:
    from bed.cluster import Cluster

CRD_FILE = Path(__file__).resolve().parents[2] / crd.PATH
NAMESPACE = "crd-cases"

_KEYS_ARE_TEXT = "in JSON every key is text: the API server sees the quotes that the models ask for"
NOT_REFUSED = {
    ("spec.hardware.nodeSelector", "{'gpu': None}"): "the API server drops a null in a mapping and stores the rest",
    ("spec.hardware.nodeSelector", "{7: 'x'}"): _KEYS_ARE_TEXT,
    ("spec.kvCache.precision", "{'keepHeads': {7: [2]}}"): _KEYS_ARE_TEXT,
}
"""Rows of `bad_manifests.BAD`, by path and value, that an API server takes, and why."""

_RULE: dict[str, Any] = {"at": "backlog", "keys": [], "maxPriority": 0, "maxTokens": 64}
_CARD: dict[str, Any] = {**manifests.small()["spec"], "hardware": {"resourceName": "nvidia.com/gpu", "memory": "24Gi"}}

MORE_BAD: list[tuple[str, Any]] = [
    ("spec.hardware.memory", "0.1Ki"),
    ("spec.hardware.memory", "1.5"),
    ("spec.hardware.memory", "63Mi"),
    ("spec.hardware.memory", "9Ei"),
    ("spec.hardware.memory", "1e99"),
    ("spec.hardware.memory", -1),
    ("spec.hardware.tolerations", [{"key": "k", "tolerationSeconds": 3}]),
    ("spec.hardware.nodeSelector", {"A.com/x": "y"}),
    ("spec.hardware.nodeSelector", {"d" * 254 + "/x": "y"}),
    ("spec.hardware.tolerations", [{"key": "d" * 254 + "/x"}]),
    ("spec.hardware.tolerations", [{"operator": "Exists"}] * 65),
    ("spec.model.name", "\u00a0a"),
    ("spec.model.name", "a\u2003"),
    ("spec.model.source", {"pvc": {"claimName": "m", "path": "a/.."}}),
    ("spec.model.source", {"hostPath": {"path": "/a/../b"}}),
    ("spec.model.source", {"image": {"reference": "a\u3000b"}}),
    ("spec.autoscaling", {"max": 0}),
    ("spec.autoscaling", {"max": 2, "targetQueueSeconds": 0}),
    ("spec", {**manifests.small()["spec"], "autoscaling": {"min": 2, "max": 4}, "replicas": 5}),
    ("spec", {**manifests.small()["spec"], "autoscaling": {"min": 2, "max": 4}, "replicas": 1}),
    ("spec.kvCache.memoryUtilization", 0),
    ("spec.kvCache.memoryUtilization", 0.049),
    ("spec.kvCache.precision", {"keepHeads": {"77777": [1]}}),
    ("spec.kvCache.precision", {"keepHeads": {"x": [1]}}),
    ("spec.kvCache.precision", {"keepLayers": [4096]}),
    ("spec.kvCache", {"dtype": "bfloat16", "precision": {"mapRef": {"name": "m"}}}),
    ("spec.kvCache", {"dtype": "bfloat16", "scalesRef": {"name": "s"}}),
    ("spec.scheduler", {"maxNumSeqs": 600}),
    ("spec.scheduler", {"maxNumBatchedTokens": 63}),
    ("spec.overload.maxQueueSeconds", 0),
    ("spec.scheduler", {"maxConcurrencySoft": 4000}),
    ("spec.watermarks", {"queue": 0.3, "hysteresis": 0.31}),
    ("spec.watermarks", {"queue": 0.0}),
    ("spec.kvCache.swapSpace", 2**20 - 1),
    ("spec.kvCache.swapSpace", "2147483648"),
    ("spec.kvCache.swapSpace", "3G"),
    ("spec", {**_CARD, "podTemplate": {"resources": {"limits": {"memory": "1Gi"}}}, "kvCache": {"swapSpace": "1Gi"}}),
    ("spec.overload.degrade", [{**_RULE, "keys": None, "maxPriority": None}]),
    ("spec.overload.degrade", [{**_RULE, "maxTokens": None}]),
    ("spec.overload.degrade", [{**_RULE, "keys": ["-a"]}]),
    ("spec.overload.degrade", [{**_RULE, "keys": ["x" * 64]}]),
    ("spec.rollout.drainSeconds", 900),
    ("spec.rollout.canary.steps", [5, 5, 100]),
    ("spec.rollout.canary.steps", [100, 100]),
    ("spec.evaluation.schedule", "5-1 * * * *"),
    ("spec.evaluation.schedule", "* * * * fri-mon"),
    ("spec.evaluation.schedule", "* * * dec-1 *"),
    ("spec.evaluation.schedule", "*/60 * * * *"),
    ("spec.evaluation.schedule", "@reboot"),
    ("spec.evaluation.maxKl", -0.1),
    ("spec.access.allowFrom", [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]),
    ("spec.access.allowFrom", [{"ipBlock": {"cidr": "300.0.0.0/8"}}]),
    ("spec.podTemplate.annotations", {names.CONFIG_HASH_ANNOTATION: "x"}),
    ("spec.podTemplate.annotations", {names.GROUP: "x"}),
    ("spec.podTemplate.labels", {f"x.{names.GROUP}/y": "z"}),
    ("spec.podTemplate.env", [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}]),
    ("spec.podTemplate.resources", {"requests": {"cpu": 4}}),
    ("spec", {**manifests.full()["spec"], "podTemplate": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}),
    (
        "spec",
        {**manifests.full()["spec"], "hardware": {}, "podTemplate": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}},
    ),
]
"""What the CRD must say with care: limits with a fraction, spaces beyond ASCII, defaults inside a rule."""

GOOD: list[tuple[str, Any]] = [
    ("metadata.name", "x" * names.MAX_NAME_LENGTH),
    ("metadata.labels", {"team": "a"}),
    ("spec.model.name", "modèle (int8)"),
    ("spec.model.source", {"pvc": {"claimName": "m"}}),
    ("spec.model.source", {"pvc": {"claimName": "m", "path": "a/..b/c..d"}}),
    ("spec.model.source", {"hostPath": {"path": "/models/a b"}}),
    ("spec.model.source", {"image": {"reference": "registry.example.com:5000/m@sha256:0a"}}),
    ("spec.model.source", {"huggingFace": {"repo": "org/model"}}),
    ("spec.model.source", {"package": {"name": "a"}, "pvc": None}),
    ("spec.hardware", None),
    ("spec.hardware.memory", 2**31),
    ("spec.hardware.memory", "1.5Gi"),
    ("spec.hardware.memory", "2e9"),
    ("spec.hardware.memory", "1E"),
    ("spec.hardware.memory", "67108864"),
    ("spec.hardware.memory", None),
    ("spec.hardware.nodeSelector", {f"{'d' * 253}/{'x' * 63}": ""}),
    ("spec.hardware.tolerations", [{"operator": "Exists"}]),
    ("spec.hardware.tolerations", [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 0}]),
    ("spec.hardware.tolerations", [{"operator": "Exists", "value": ""}]),
    ("spec.replicas", 0),
    ("spec.replicas", None),
    ("spec.autoscaling", {"min": 1, "max": 1, "targetQueueSeconds": 0.1}),
    ("spec", {**manifests.small()["spec"], "autoscaling": {"max": 4}, "replicas": 4}),
    ("spec.kvCache", {"dtype": "int4", "allowLossy": True}),
    ("spec.kvCache", {"dtype": "fp8_e4m3", "scalesRef": {"name": "s"}}),
    ("spec.kvCache.memoryUtilization", 1),
    ("spec.kvCache.memoryUtilization", 0.05),
    ("spec.kvCache.swapSpace", 0),
    ("spec.kvCache", {"dtype": "float16", "precision": {}}),
    ("spec.kvCache.precision", {"mapRef": {"name": "m"}}),
    ("spec.kvCache.precision", {"keepHeads": {"7": [2], "10": []}}),
    ("spec.scheduler", {"maxNumSeqs": 512}),
    ("spec.scheduler", {"maxConcurrencySoft": 64}),
    ("spec.scheduler", {"maxNumSeqs": 128, "maxConcurrencySoft": 128}),
    ("spec.scheduler", {"agingSeconds": 0, "fairness": "apiKey", "longRequestShare": 1, "longRequestTokens": 1}),
    ("spec.scheduler.targetStepSeconds", 0.001),
    (
        "spec",
        {**manifests.small()["spec"], "scheduler": {"preemption": {"mode": "swap"}}, "kvCache": {"swapSpace": "1Mi"}},
    ),
    ("spec.kvCache.swapSpace", "2047Mi"),
    ("spec.kvCache.swapSpace", "0.0"),
    ("spec", {**_CARD, "kvCache": {"swapSpace": "64Gi"}}),
    ("spec", {**_CARD, "podTemplate": {"resources": {"limits": {"memory": "65Gi"}}}, "kvCache": {"swapSpace": "64Gi"}}),
    ("spec.watermarks", {"queue": 0.7, "preempt": 0.9, "hysteresis": 0.2}),
    ("spec.watermarks", {"queue": 0.3, "preempt": 0.3, "hysteresis": 0.3}),
    ("spec.watermarks", {"queue": 0, "preempt": 0, "hysteresis": 0}),
    ("spec.overload.degrade", []),
    ("spec.overload.degrade", [{**_RULE, "maxTokens": None, "maxRequests": 0, "keys": None}]),
    ("spec.overload.degrade", [_RULE, _RULE]),
    (
        "spec",
        {
            **manifests.small()["spec"],
            "access": {"apiKeysSecretRef": {"name": "keys"}},
            "overload": {"degrade": [{"keys": ["batch", "a.b-c_D"], "maxRequests": 1}]},
        },
    ),
    ("spec.watermarks", {"queue": 0.5, "preempt": 1, "hysteresis": 0}),
    ("spec.speculative", {"method": "draft", "draftModel": "small.gguf"}),
    (
        "spec",
        {
            **manifests.small()["spec"],
            "model": {"source": {"hostPath": {"path": "//./.srv/./b/."}}},
            "speculative": {"method": "draft", "draftModel": "drafts/small.gguf"},
        },
    ),
    ("spec.rollout", {"drainSeconds": 0, "progressDeadlineSeconds": 1}),
    ("spec.rollout.canary", {}),
    ("spec.rollout.canary.steps", [100]),
    ("spec.evaluation", {}),
    ("spec.evaluation.schedule", "*/5 1-3,5 01 jan-feb,12 mon-5"),
    ("spec.evaluation.schedule", "0 0 * * MON-FRI/2"),
    ("spec.evaluation.schedule", "@daily"),
    ("spec.access.allowFrom", [{"ipBlock": {"cidr": "fd00::1/8"}}, {"namespaceSelector": {}}]),
    ("spec.monitoring", {"enabled": False}),
    ("spec.podTemplate.env", [{"name": "A"}, {"name": "B", "value": ""}]),
    ("spec.podTemplate.labels", {"tidemark.development/x": "y", "kubernetes.io/x": "y"}),
    ("spec.podTemplate.annotations", {"Acme.Com/x": "many\nlines"}),
    ("spec.podTemplate.resources", {"requests": {"cpu": "1.5", "nvidia.com/gpu": "1"}}),
    ("spec.suspend", True),
]
"""What both must take, the small manifest changed at a path."""

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 5, 100, 101, 0.5, 0.7, 0.95, 1.5, 4097, "", "x", "cpu", "8Gi", "0", "1.5", "1.5Gi",
    "63Mi", "1e3", "int8", "int4", "auto", "float16", "swap", "draft", "none", "Exists", "NoExecute", "a b", "\u00a0x",
    "@daily", "5-1 * * * *", "10.0.0.0/8", "::1", "../x", "/a", "https://x", [], {}, [1], [5, 100], [100, 5], [{}],
    ["x"], ["x", "x"], [{"maxPriority": 1, "maxTokens": 1}], [{"keys": ["x"], "maxTokens": 1}],
    [None], {"a": "b"}, {"a": 1}, {"a b": "x"}, {"nvidia.com/gpu": "1"}, {"app.kubernetes.io/x": "y"},
    {"7": [2]}, {"7": [4096]}, {"memory": "4Gi"}, {"name": "x"}, {"name": "x", "key": "y"}, [{"name": "A"}],
    [{"ipBlock": {"cidr": "10.0.0.0/8"}}], [{"podSelector": {}}], [{"operator": "Exists"}], "x" * 1025,
)  # fmt: skip


def made(path: str, value: Any) -> dict[str, Any]:
    """The small manifest with one change, as a new object of the tests' namespace."""
    document = manifests.changed(path, value)
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        for key in ("uid", "generation"):
            metadata.pop(key, None)
        if metadata.get("namespace") == "team-a":
            metadata["namespace"] = NAMESPACE
    return document


def beyond_limits() -> list[tuple[str, float]]:
    """For each number that the models limit, the nearest ones on the wrong side."""
    found: list[tuple[str, float]] = []
    for path, _ in optional_paths():
        _, metadata, _ = describe.hint_at(service.InferenceService, path.split("."))
        for item in metadata:
            if isinstance(item, annotated_types.Ge):
                found.append((path, typing.cast(float, item.ge) - 1))
            elif isinstance(item, annotated_types.Le):
                found.append((path, typing.cast(float, item.le) + 1))
    return found


def bad() -> list[tuple[str, Any]]:
    """Path and value of every wrong change; the rows of `bad_manifests.BAD` come first."""
    rows = [(path, value) for path, value, _, _ in bad_manifests.BAD]
    return [*rows, *MORE_BAD, *beyond_limits()]


def changed_at_random(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """The small manifest with one to three fields of any section set to odd values."""
    chance = random.Random(seed)
    paths = list(_paths(service.Spec, "spec"))
    for _ in range(count):
        document = made("metadata.labels", {})
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            *parents, last = chance.choice(paths).split(".")
            here: Any = document
            for part in parents:
                here = here.setdefault(part, {}) if isinstance(here.get(part, {}), dict) else {}
            here[last] = copy.deepcopy(chance.choice(_VALUES))
        yield document


def _paths(cls: Any, prefix: str) -> Iterator[str]:
    for alias, info in describe.fields(cls).items():
        yield f"{prefix}.{alias}"
        hint, _ = describe.strip(info.annotation)
        if describe.is_model(hint):
            yield from _paths(hint, f"{prefix}.{alias}")


def optional_paths(cls: Any = service.Spec, prefix: str = "spec") -> Iterator[tuple[str, bool]]:
    """Fields that may be absent, with whether an API server takes a null there in any request.

    Those below a section that is absent by default are left out: a null in it would make the section.
    """
    for alias, info in describe.fields(cls).items():
        path, (hint, _) = f"{prefix}.{alias}", describe.strip(info.annotation)
        if not info.is_required():
            yield path, typing.get_origin(hint) is not typing.Literal and path != "spec.replicas"
        if describe.is_model(hint) and (info.is_required() or info.default_factory is not None):
            yield from optional_paths(hint, path)


def section(document: dict[str, Any], parents: Sequence[str]) -> dict[str, Any]:
    """The mapping at a path, made where it is not there."""
    here: Any = document
    for part in parents:
        if here.get(part) is None:
            here[part] = {}
        here = here[part]
    made: dict[str, Any] = here
    return made


def is_set(document: dict[str, Any], path: str) -> bool:
    here: Any = document
    for part in path.split("."):
        if part not in here:
            return False
        here = here[part]
    return True


def install(cluster: Cluster) -> None:
    """The CRD as a user installs it, served, and a namespace."""
    cluster.kubectl("apply", "-f", str(CRD_FILE))
    cluster.until_known(f"{names.PLURAL}.{names.GROUP}")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


def refusals(cluster: Cluster, documents: Sequence[dict[str, Any]], folder: Path) -> dict[int, str]:
    """What the API server says to those it refuses, by their number; nothing is stored.

    One kubectl reads them all, with the strict validation that is its default.
    """
    for number, document in enumerate(documents):
        (folder / f"{number:04}.json").write_text(json.dumps(document), encoding="utf-8")
    command = [cluster.kubectl_program, "create", "--dry-run=server", "-f", str(folder)]
    done = cluster.run(command, check=False)
    parts = re.split(rf'"?{re.escape(str(folder))}/(\d+)\.json"?', done.stderr)  # no quotes around what it cannot parse
    said = {int(number): text.strip(": \n") for number, text in zip(parts[1::2], parts[2::2], strict=True)}
    taken = len(done.stdout.splitlines())
    if taken + len(said) != len(documents):
        raise RuntimeError(f"{len(documents)} asked, {taken} taken, {len(said)} refused:\n{done.stderr[-2000:]}")
    return said
