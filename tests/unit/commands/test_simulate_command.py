"""`tidemark simulate` from the command line."""

from __future__ import annotations

import json
import xml.dom.minidom
from pathlib import Path

import pytest

from tidemark_operator import cli

ROOT = Path(__file__).resolve().parents[3]
LONG_PROMPT = str(ROOT / "examples/workloads/long-prompt.yaml")


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", "l40s/8b", LONG_PROMPT]) == 0
    shown = capsys.readouterr()
    for words in ("l40s/8b, workload long-prompt, seed 1", "output tokens/s", "contract", "first token", "P99"):
        assert words in shown.out
    assert shown.err == "", "no bar where there is no terminal"


def test_json_with_seed_settings_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.svg"
    arguments = ["--seed", "5", "--set", "scheduler.maxNumSeqs=8", "--plot", str(file), "-o", "json"]
    assert cli.run(["simulate", "l40s/8b", LONG_PROMPT, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seed"] == 5
    assert found["batch"]["peakConcurrency"] <= 8
    assert found["classes"]["contract"]["served"] == 1
    drawn = xml.dom.minidom.parse(str(file))
    assert drawn.documentElement is not None
    assert drawn.documentElement.tagName == "svg"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["l40/8b", LONG_PROMPT], 2, "PROFILE: got 'l40/8b'"),
        (["l40s/8b", "missing.yaml"], 2, "WORKLOAD: got 'missing.yaml', expected a readable YAML or JSON file"),
        (["l40s/8b", LONG_PROMPT, "--set", "maxNumSeqs"], 2, "--set: got 'maxNumSeqs', expected KEY=VALUE"),
        (["l40s/8b", LONG_PROMPT, "--set", "scheduler.maxNumSeqs=0"], 2, "--set scheduler.maxNumSeqs: got '0'"),
        (["l40s/8b", LONG_PROMPT, "--set", "kvCache.swapSpace=9999Ti"], 2, "kvCache.swapSpace: got 10994016766132224"),
        (["l40s/8b", LONG_PROMPT, "--set", "speculative.method=ngram"], 2, "none: made-up tokens repeat nothing"),
        (["l40s/8b", LONG_PROMPT, "--seed", "-1"], 2, "--seed: got -1, expected a whole number of at least 0"),
        (["l40s/8b", LONG_PROMPT, "--plot", "run.png"], 2, "--plot: got 'run.png', expected a file name that ends in"),
        (["l40s/8b", LONG_PROMPT, "--plot", "/no/such/run.svg"], 2, "expected a file in a folder that exists"),
        (["l40s/70b", LONG_PROMPT], 1, "the model does not fit: weights 134,571 MiB"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", *arguments]) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
