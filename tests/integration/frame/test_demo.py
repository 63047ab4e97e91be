"""`make demo` without a terminal: answers, ends by itself, leaves nothing; and fails loudly when it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]


def run_demo(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The demo as `make` runs it, but with state of its own, beside whatever runs on this machine."""
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/demo.py"), *arguments],
        env={**os.environ, "TIDEMARK_STATE": str(state), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def processes_of(state: Path) -> list[str]:
    """Command lines of processes that were started with this state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TIDEMARK_STATE") == str(state):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_answers_and_leaves_nothing_running(smollm2_path: Path, tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "$ tidemark up examples/smollm2.yaml" in done.stdout
    assert "Ready after" in done.stdout
    assert done.stdout.count("first token after") == 2
    assert "$ tidemark status smollm2" in done.stdout
    assert "/v1/chat/completions -H 'Content-Type: application/json'" in done.stdout
    assert "client = OpenAI(base_url=" in done.stdout
    assert processes_of(tmp_path) == []


def test_a_demo_that_cannot_work_says_why(smollm2_path: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "smollm2.yaml"
    text = (ROOT / "examples/smollm2.yaml").read_text(encoding="utf-8")
    manifest.write_text(text.replace("maxNumSeqs: 16", "maxNumSeqs: none"), encoding="utf-8")
    done = run_demo(tmp_path, "--manifest", str(manifest))
    assert done.returncode == 1
    assert "spec.scheduler.maxNumSeqs" in done.stdout
    assert "demo: `tidemark up` ended with 2" in done.stdout
    assert processes_of(tmp_path) == []
