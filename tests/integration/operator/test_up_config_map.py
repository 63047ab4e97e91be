"""`precision.mapRef` under `tidemark up`: the ConfigMap is a file that the command line names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KV_CACHE = {"dtype": "int8", "precision": {"mapRef": {"name": "found"}}}
MAP = "rules: [{layers: [0, 1], kind: k}, {layers: 29, heads: 2, kind: both}]\n"


def ready(overview: dict[str, Any]) -> bool:
    return bool(overview["ready"])


def mounted(workplace: Any) -> Path:
    """The map as the pod sees it."""
    (pod,) = workplace.overview()["pods"]
    found: Path = workplace.state / "base" / "pods" / pod["name"] / "volumes" / "precision" / "precision.yaml"
    return found


def test_the_map_is_mounted_and_an_edit_reaches_the_file(workplace: Any) -> None:
    file = workplace.folder / "found.yaml"
    file.write_text(json.dumps({"kind": "ConfigMap", "metadata": {"name": "found"}, "data": {"precision.yaml": MAP}}))
    workplace.write(kvCache=KV_CACHE)
    workplace.up("--port", "0", "--configmap", f"found={file}")
    workplace.until(ready)
    assert mounted(workplace).read_text() == MAP
    assert "no effect" not in workplace.output
    file.write_text("rules: [{layers: [7]}]\n")
    workplace.until(lambda _: mounted(workplace).read_text() == "rules: [{layers: [7]}]\n")
    file.write_text("rules: [{layers: seven}]\n")
    workplace.until(lambda _: "What was read before goes on." in workplace.output)
    assert "found.yaml.rules[0].layers: got 'seven'" in workplace.output
    assert mounted(workplace).read_text() == "rules: [{layers: [7]}]\n"


def test_a_missing_config_map_is_named_with_the_remedy(workplace: Any) -> None:
    workplace.write(kvCache=KV_CACHE)
    workplace.up("--port", "0")
    remedy = "ConfigMap 'found' does not exist. Give it to `tidemark up` with --configmap found=FILE"
    workplace.until(lambda _: remedy in workplace.output)
    conditions = {item["type"]: item for item in workplace.overview()["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "False"
    assert conditions["Degraded"]["reason"] == "CreateContainerConfigError"
    assert remedy in conditions["Degraded"]["message"]


def test_a_wrong_map_stops_the_start(workplace: Any) -> None:
    file = workplace.folder / "map.yaml"
    file.write_text("rules: [{layers: 0, kind: q}]\n")
    workplace.write(kvCache=KV_CACHE)
    process = workplace.up("--port", "0", "--configmap", f"found={file}")
    assert process.wait(60) == 2
    assert "map.yaml.rules[0].kind: got 'q', expected k (keys), v (values) or both" in workplace.output


def test_the_real_engine_answers_with_the_map_in_force(workplace: Any, smollm2_path: Path) -> None:
    """And a map with a layer that the model has not is refused by the engine, in the words of the status."""
    file = workplace.folder / "map.yaml"
    file.write_text("rules: [{layers: 30, kind: k}]\n")
    workplace.write(
        model={"source": {"hostPath": {"path": str(smollm2_path)}}},
        hardware={"resourceName": "cpu", "count": 1, "memory": "2Gi"},  # libraries alone take up to 0.9, by machine
        kvCache={**KV_CACHE, "memoryUtilization": 0.9},
        scheduler={"maxNumSeqs": 4},
    )
    options = ("up", str(workplace.file), "--port", "0", "--configmap", f"found={file}")
    with (workplace.folder / "output").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemark_operator", *options],
            env=workplace.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    workplace.ups.append(process)
    workplace.until(lambda _: "layers under 30" in workplace.output)
    file.write_text(MAP)  # the engine that could not start reads it at its next try
    end = time.monotonic() + 240
    while not ready(workplace.overview()):
        assert time.monotonic() < end, workplace.output
        time.sleep(0.2)
    (pod,) = workplace.overview()["pods"]
    assert pod["engine"]["worker"]["precision"].startswith("8 of 180 segments in bfloat16, by ")
    assert pod["engine"]["memory"]["pageBytes"] == 8 * 16 * 64 * 2 + 172 * 16 * (64 + 4)
    body = {"model": "base", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
    request = urllib.request.Request(
        f"{workplace.overview()['url']}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] > 0
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 0
