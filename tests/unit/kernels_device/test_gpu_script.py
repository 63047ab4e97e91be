"""The script for the hour with a card runs here, every line of it, with the smallest shapes; and nothing stops it."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.fixture
def frame(script: ModuleType) -> ModuleType:
    return importlib.import_module("gpu_frame")


@pytest.mark.slow
def test_every_section_runs_without_a_card(tmp_path: Path) -> None:
    """As `make test-gpu` runs it, on the processor under the interpreter."""
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu.py", "--tiny", "--output", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in report["sections"] if not one["rows"]] == []
    names = ["checks", "copy", "link", "decode", "prompts", "drafts", "writes", "products", "small"]
    assert [one["name"] for one in report["sections"]] == [*names, "steps", "swap", "guesses"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    assert all(one["title"] in text for one in report["sections"])
    assert "torch" in report["machine"]


def test_without_a_card_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu.py", "--output", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no card is here" in done.stderr


# ------------------------------------------------------------------------------------------------------- the frame


def bench_of(frame: ModuleType) -> Any:
    return frame.Bench(torch.device("cpu"), True)


def test_a_section_that_raises_keeps_its_rows_and_its_traceback(frame: ModuleType) -> None:
    def rows(_: Any) -> Iterator[dict[str, Any]]:
        yield {"a": 1}
        raise RuntimeError("the third kernel is wrong")

    outcome = frame.run_section(bench_of(frame), frame.Section("s", "title", rows, 10))
    assert outcome["rows"] == [{"a": 1}]
    assert "the third kernel is wrong" in outcome["error"]


def test_a_section_stops_when_its_time_is_up(frame: ModuleType) -> None:
    outcome = frame.run_section(
        frame.Bench(torch.device("cpu"), False),
        frame.Section("s", "title", lambda _: ({"a": index} for index in range(5)), 0.0),
    )
    assert outcome["rows"] == [{"a": 0}]
    assert "later rows are missing" in outcome["note"]


def test_a_share_of_a_copy_needs_the_copy(frame: ModuleType) -> None:
    bench = bench_of(frame)
    with pytest.raises(RuntimeError, match="run the section `copy` first"):
        bench.share_of_copy(1, 1)
    bench.copy_bytes_a_second = 200.0
    assert bench.share_of_copy(100, 1) == 50.0


# ------------------------------------------------------------------------------------------ processes of sections


def outcome(name: str, **more: Any) -> dict[str, Any]:
    made = {"kind": "outcome", "name": name, "title": name, "seconds": 1.0, "rows": [{"a": 1}], "error": "", "note": ""}
    return {**made, "copy_bytes_a_second": 7.0, **more}


SECTIONS = {"kind": "sections", "names": ["one", "two", "three"], "machine": "made"}
END = {"kind": "end", "status": 0, "words": ""}


def run(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *processes: list[dict[str, Any]]
) -> tuple[Any, Any, list[list[str]]]:
    """The script's report and state after processes that said this, and what each was started with."""
    waiting, started = [list(map(dict, process)) for process in processes], []

    def messages(arguments: list[str]) -> Iterator[dict[str, Any]]:
        started.append(arguments)
        yield from waiting.pop(0)

    monkeypatch.setattr(script, "messages", messages)
    report = importlib.import_module("gpu_report").Report(folder, {})
    one = script.Run(argparse.Namespace(tiny=False, only=[], seconds=100.0), report)
    one.until_all_have_an_outcome()
    assert waiting == []
    return report, one, started


def test_a_process_that_dies_in_a_section_costs_that_section(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = [SECTIONS, {"kind": "begin", "name": "one"}, outcome("one"), {"kind": "begin", "name": "two"}]
    second = [{**SECTIONS, "names": ["three"]}, {"kind": "begin", "name": "three"}, outcome("three"), END]
    died = {**END, "status": -11, "words": "Segmentation fault"}
    report, _, started = run(script, monkeypatch, tmp_path, [*first, died], second)
    assert [one["name"] for one in report.outcomes] == ["one", "two", "three"]
    assert report.failed == ["two"]
    assert "Segmentation fault" in report.text()
    assert started[1][-1] == "three"
    assert "7.0" in started[1]  # the bandwidth that was measured already


def test_after_a_broken_context_the_rest_runs_in_another_process(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = [SECTIONS, {"kind": "begin", "name": "one"}, outcome("one", error="illegal memory access"), END]
    second = [SECTIONS, outcome("two"), {"kind": "skip", "name": "three"}, END]
    report, _, started = run(script, monkeypatch, tmp_path, first, second)
    assert started[1][-2:] == ["two", "three"]
    assert report.failed == ["one"]
    assert report.skipped == ["three"]
    assert "the time was up: three" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_a_refusal_ends_it(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, one, _ = run(script, monkeypatch, tmp_path, [{"kind": "refusal", "text": "no card is here"}, END])
    assert one.refusal == "no card is here"


def test_a_check_that_fails_fails_the_report(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [{"op": "silu_mul", "ok": True}, {"op": "rms_norm", "ok": False, "problem": "a | b"}]
    report, _, _ = run(
        script,
        monkeypatch,
        tmp_path,
        [{**SECTIONS, "names": ["checks"]}, outcome("checks", rows=rows), END],
    )
    assert report.failed == ["checks"]
    assert r"| rms_norm | **no** | a \| b |" in report.text()
