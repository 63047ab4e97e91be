"""`tidemark render FILE`: every example, both formats, warnings apart from the objects, problems as a list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import manifests
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted(set((ROOT / "examples").glob("*.yaml")) - {ROOT / "examples/costs.yaml"})
"""Manifests; that of costs is for `tidemark report`."""


def render(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidemark_operator", "render", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


def test_there_are_examples() -> None:
    assert "smollm2.yaml" in [file.name for file in EXAMPLES]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_every_example_renders_without_a_warning(file: Path) -> None:
    done = render(str(file))
    assert (done.returncode, done.stderr) == (0, "")
    kinds = [item["kind"] for item in yaml.safe_load_all(done.stdout)]
    assert kinds == [
        *("ServiceAccount", "Secret", "ConfigMap", "Service", "Deployment"),
        *("PodMonitor", "PrometheusRule", "ConfigMap", "GrafanaDashboard"),
    ]


def test_json_is_the_same_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "full.yaml"
    file.write_text(json.dumps(manifests.full()))
    as_json, as_yaml = render(str(file), "--output", "json"), render(str(file), "--image", "tidemark-runtime:latest")
    assert json.loads(as_json.stdout)["items"] == list(yaml.safe_load_all(as_yaml.stdout))
    assert "warning: contracts: spec.rollout.canary has no effect yet: " in as_json.stderr
    assert "warning: contracts" not in as_json.stdout


def test_the_image_can_be_chosen() -> None:
    done = render(str(EXAMPLES[0]), "--image", "registry.bank/tidemark:9", "-o", "json")
    (deployment,) = [item for item in json.loads(done.stdout)["items"] if item["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.bank/tidemark:9"


def test_the_token_is_a_placeholder_that_opens_nothing() -> None:
    done = render(str(EXAMPLES[0]), "-o", "json")
    (secret,) = [item for item in json.loads(done.stdout)["items"] if item["kind"] == "Secret"]
    token = secret["stringData"]["token"]
    assert "The operator makes the token" in token
    assert token.startswith("#"), "a comment in a file of tokens"


def test_a_host_path_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(json.dumps(manifests.changed("spec.model.source", {"hostPath": {"path": "/m"}})))
    done = render(str(file))
    assert done.returncode == 0
    assert done.stderr.startswith("warning: demo: spec.model.source.hostPath: namespaces that enforce the baseline")


def test_a_wrong_manifest_is_a_list_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(json.dumps(manifests.changed("spec.hardware.count", 0, manifests.small(suspend="yes"))))
    done = render(str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "2 problems" in done.stderr
    assert "spec.hardware.count: got 0, expected a whole number from 1 to 1024" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    done = render("nope.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "nope.yaml: there is no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_that_could_never_start_is_said_to(tmp_path: Path) -> None:
    document = manifests.small(kvCache={"dtype": "int8", "precision": {"keepLayers": [99]}})
    document["spec"]["model"]["source"] = {"package": {"name": "smollm2-135m"}}
    document["spec"]["hardware"]["memory"] = "4Gi"
    file = tmp_path / "map.yaml"
    file.write_text(yaml.safe_dump(document))
    done = render(str(file))
    assert "CapacityFit would be False" in done.stderr
    assert "99" in done.stderr
    assert "kind: Deployment" in done.stdout


def test_a_map_that_is_given_is_checked_and_counted(tmp_path: Path) -> None:
    document = manifests.small(
        model={"source": {"package": {"name": "smollm2-135m"}}},
        hardware={"resourceName": "cpu", "memory": "4Gi"},
        kvCache={"dtype": "int8", "precision": {"mapRef": {"name": "found"}}},
    )
    file, given = tmp_path / "service.yaml", tmp_path / "map.yaml"
    file.write_text(json.dumps(document))
    given.write_text("rules: [{layers: 30}]")
    done = render(str(file), "--configmap", f"found={given}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "ConfigMap found: precision.yaml.rules[0]: layers: got [30]" in done.stderr
    given.write_text("rules: [{layers: 3}]")
    assert "CapacityFit" not in render(str(file), "--configmap", f"found={given}").stderr
    assert render("--monitoring", "--configmap", f"found={given}").returncode == 2
