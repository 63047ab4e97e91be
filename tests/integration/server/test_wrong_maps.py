"""`tidemark serve` with a precision map that only the model shows to be wrong: it ends with 2 and says where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ANOTHER_MODEL = "The map is of another model, or mistyped: find one with `tidemark eval sensitivity`"
MAP = "rules:\n- {layers: [0, 30], kind: k}\n- {layers: 1, heads: 4}\n"


def serve(folder: Path, smollm2_path: Path, kv_cache: dict[str, object]) -> subprocess.CompletedProcess[str]:
    file = folder / "engine.yaml"
    settings = {"model": {"source": str(smollm2_path)}, "server": {"port": 0}, "kvCache": {"numPages": 8, **kv_cache}}
    file.write_text(yaml.safe_dump(settings))
    return subprocess.run(
        [sys.executable, "-m", "tidemark_operator", "serve", "--config", str(file)],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_a_layer_that_is_not_there_and_a_query_head_in_a_file(tmp_path: Path, smollm2_path: Path) -> None:
    """A ConfigMap's file as the operator mounts it; both problems are told at once."""
    (tmp_path / "found.yaml").write_text(MAP)
    done = serve(tmp_path, smollm2_path, {"dtype": "int8", "precisionFile": str(tmp_path / "found.yaml")})
    assert done.returncode == 2, done.stderr
    assert f"found.yaml.rules[0]: layers: got [30], expected layers under 30. {ANOTHER_MODEL}" in done.stderr
    expected = "found.yaml.rules[1]: heads: got [4], expected KV heads under 3. These are query heads, 3 of which"
    assert expected in done.stderr
    assert "4 reads KV head 1. Name that one" in done.stderr
