"""The table of generated code: every form of every kernel is compiled and compared; and what writes the table."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidemark_kernels.compiled import discovery, readings, table

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts/kernel_code.py"
MODULES = (
    "attention",
    "attention_merge",
    "elementwise",
    "kv_write",
    "packed_linear",
    "pages",
    "sampling",
    "sampling_counts",
    "sampling_logprobs",
)
"""Files of jit with kernels."""


def test_the_table_has_every_form_of_todays_kernels() -> None:
    """So that no form is left out of the checks below, each of which looks at the kernels of one file."""
    written = table.parsed((ROOT / "benchmarks/results/kernel_code.json").read_text(encoding="utf-8"))
    forms = discovery.variants()
    assert sorted(written["kernels"]) == sorted(forms)
    for name, form in forms.items():
        assert sorted(written["kernels"][name]["targets"]) == [
            f"{readings.PREFIX}{one}" for one in sorted(form.targets)
        ]
    assert table.modules(written["kernels"]) == set(MODULES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("module", MODULES)
def test_the_table_of_generated_code_is_that_of_todays_kernels(module: str) -> None:
    """Compiles every form of a file's kernels for every target: up to a minute and a half of a core."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(SCRIPT), "--check", module]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------------------------------- on made forms

READING = {name: 1 if kind is int else "" for name, kind in table.FIGURES.items()}
VERSIONS = {"triton": "3", "ptxas": "12"}
RULES = {"is_hot": False, "wide_loads": False, "tensor_cores": False}
LISTING = {
    name: {"rules": RULES, "key": name, "kernel": f"jit.{name}.kernel", "targets": ["sm_80", "sm_90"]} for name in "ab"
}


class Made:
    """The script with a table of its own; what it compiles is written down."""

    def __init__(self, script: ModuleType) -> None:
        self.script = script
        self.listing: dict[str, Any] = json.loads(json.dumps(LISTING))
        self.registers = 1
        self.compiled: list[readings.Job] = []

    def read(self, jobs: Sequence[readings.Job], processes: int | None) -> dict[readings.Job, dict[str, Any]]:
        assert processes is None
        self.compiled = list(jobs)
        return {job: {**READING, "registers": self.registers} for job in jobs}

    def run(self, *arguments: str) -> int:
        return int(self.script.main(list(arguments)))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    spec = importlib.util.spec_from_file_location("kernel_code", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = Made(script)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "DATA", tmp_path / "table.json")
    monkeypatch.setattr(script, "PAGE", tmp_path / "table.md")
    monkeypatch.setattr(script, "read", found.read)
    monkeypatch.setattr(script.readings, "listing", lambda root: (VERSIONS, found.listing))
    assert found.run() == 0
    return found


A = [("a", "sm_80"), ("a", "sm_90")]
B = [("b", "sm_80"), ("b", "sm_90")]


def test_only_what_changed_is_compiled_to_write_the_table(made: Made) -> None:
    assert made.compiled == [*A, *B]
    assert made.run() == 0
    assert made.compiled == []
    made.listing["b"]["key"] = "another source"
    made.registers = 2
    assert made.run() == 0
    assert made.compiled == B
    kernels = made.script.load()["kernels"]
    assert {name: form["targets"]["sm_90"]["registers"] for name, form in kernels.items()} == {"a": 1, "b": 2}
    assert made.run("--all") == 0
    assert made.compiled == [*A, *B]


def test_a_check_compiles_everything_and_says_how_the_table_is_written(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made.run("--check") == 0
    assert made.compiled == [*A, *B]
    made.registers = 2
    assert made.run("--check", "b") == 1
    assert made.compiled == B
    said = capsys.readouterr().err
    assert "b for sm_80: registers 1 -> 2" in said
    assert "run `make render-kernels ARGS=--all`" in said
    made.listing["b"]["key"] = "another source"
    assert made.run("--check", "b") == 1
    assert "run `make render-kernels` and" in capsys.readouterr().err


def test_a_page_that_is_not_the_tables_is_told(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.script.PAGE.write_text("another", encoding="utf-8")
    assert made.run("--check") == 1
    assert "table.md is not what table.json says" in capsys.readouterr().err


def test_a_file_without_kernels_is_told(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert made.run("--check", "c") == 1
    assert capsys.readouterr().err == "no kernel is in ['c'], expected some of ['a', 'b']\n"
    with pytest.raises(SystemExit):
        made.run("a")
    assert "are named with --check alone" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_table_that_is_cut_is_told_and_kept(
    arguments: tuple[str, ...], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    text = made.script.DATA.read_text(encoding="utf-8")
    made.script.DATA.write_text(text[: len(text) // 2], encoding="utf-8")
    made.compiled = []
    assert made.run(*arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("table.json: line ")
    assert "is not JSON" in said
    assert "`make render-kernels ARGS=--all` writes it anew" in said
    assert made.compiled == []
    assert made.script.DATA.read_text(encoding="utf-8") == text[: len(text) // 2]
    assert made.run("--all") == 0
    assert made.script.DATA.read_text(encoding="utf-8") == text


def test_a_table_that_is_not_there_is_told_by_a_check_and_written_by_a_rendering(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    made.script.DATA.unlink()
    assert made.run("--check") == 1
    assert capsys.readouterr().err == "table.json is missing: run `make render-kernels`\n"
    assert made.run() == 0
    assert made.compiled == [*A, *B]
