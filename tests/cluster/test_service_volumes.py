"""A pod that waits for what the manifest names: the status says so in words, and it is over once it is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import operator_runner
import pytest

NAME = operator_runner.NAME
MAP = {"precision.yaml": "rules: [{layers: 0, kind: k}]\n"}

pytestmark = pytest.mark.timeout(600)


def test_a_map_that_is_missing_is_named_and_may_come_later(bench: operator_runner.Bench) -> None:
    bench.start()
    bench.apply(operator_runner.small(NAME, kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "no-map"}}}))
    said = bench.until_condition(NAME, "Ready", "False", "ConfigMapNotFound")["message"]
    assert "ConfigMap no-map" in said
    assert "spec.kvCache.precision.mapRef" in said
    bench.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "no-map"}, "data": MAP})
    bench.until_settled(NAME)


def test_keys_that_are_missing_are_named(bench: operator_runner.Bench) -> None:
    """B065."""
    bench.start()
    bench.apply(operator_runner.small(NAME, access={"apiKeysSecretRef": {"name": "no-keys"}}))
    said = bench.until_condition(NAME, "Degraded", "True", "SecretNotFound")["message"]
    assert "Secret no-keys" in said
    assert "spec.access.apiKeysSecretRef" in said


LOOK = """
import pathlib
for name in ("big.gguf", "small.gguf"):
    print(pathlib.Path(FOLDER, name).read_text())
try:
    pathlib.Path(FOLDER, "new").write_text("x")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of the node with a model and a draft model, one folder deep; everybody may read it."""
    folder = tmp_path / "models" / "qwen"
    folder.mkdir(parents=True)
    for each in (folder.parent, folder):
        each.chmod(0o755)
    for name in ("big", "small"):
        (folder / f"{name}.gguf").write_text(f"the {name} one")
    return folder


@pytest.fixture
def claim(bench: operator_runner.Bench, models: Path) -> Iterator[str]:
    """A claim whose volume is the folder above it."""
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    name = f"models-{bench.namespace}"
    volume = {"capacity": size, "hostPath": {"path": str(models.parent)}, **spec}
    wanted = {"resources": {"requests": size}, "volumeName": name, **spec}
    bench.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume})
    bench.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": wanted})
    yield "models"
    bench.bed.kubectl("delete", "persistentvolume", name, "--wait=false")


def seen(bench: operator_runner.Bench, source: dict[str, Any], folder: str) -> list[str]:
    """What the pod of a service with this source and a draft model beside it finds in `folder`."""
    guesses = {"method": "draft", "draftModel": "small.gguf"}
    bench.start()
    document = operator_runner.small(NAME, speculative=guesses)
    document["spec"]["model"]["source"] = source
    bench.apply(document)
    bench.until_settled(NAME)
    (pod,) = bench.pods(NAME).values()
    look = LOOK.replace("FOLDER", repr(folder))
    said = bench.bed.kubectl("exec", pod["metadata"]["name"], "-n", bench.namespace, "--", "python", "-c", look)
    return said.splitlines()


BOTH = ["the big one", "the small one", "Read-only file system"]


def test_a_draft_model_beside_the_model_in_a_claim_is_there_read_only(bench: operator_runner.Bench, claim: str) -> None:
    source = {"pvc": {"claimName": claim, "path": "qwen/big.gguf"}}
    assert seen(bench, source, "/models/qwen") == BOTH


def test_a_draft_model_beside_the_model_on_the_node_is_there_read_only(
    bench: operator_runner.Bench, models: Path
) -> None:
    level = "pod-security.kubernetes.io/enforce=privileged"  # the others refuse host paths
    bench.bed.kubectl("label", "namespace", bench.namespace, level, "--overwrite")
    assert seen(bench, {"hostPath": {"path": str(models / "big.gguf")}}, "/models") == BOTH
