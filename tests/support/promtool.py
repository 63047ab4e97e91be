"""Runs cases of alerts through promtool's unit tests: the rules of one alert, or all of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from alert_cases import made

from tidemark_operator.monitoring.rules import render
from tidemark_operator.monitoring.rules.model import About, Alert, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import Thresholds

ABSENT = "promtool is not on this machine; Debian's package `prometheus` has it"


def program() -> str:
    """Its path. CI installs it; elsewhere these tests are left out, with the reason."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip(ABSENT)
    return found


def of_alert(alert: Alert, groups: Sequence[Group]) -> list[Group]:
    """The alert and the recorded series that it reads, nothing else: quick to evaluate. They are one group, since
    promtool evaluates several in any order, and a step here may be longer than Prometheus looks back."""
    recording = tuple(rule for group in groups for rule in group.recording if _reads(alert, rule))
    return [Group(name="alert", about=About.SERVICE, recording=recording, alerts=(alert,))]


def _reads(alert: Alert, rule: RecordingRule) -> bool:
    return re.search(rf"\b{re.escape(rule.record)}\b", alert.expr) is not None and all(
        f'{label}="{value}"' in alert.expr for label, value in rule.labels
    )


def expected(alert: Alert, firing: made.Firing, thresholds: Thresholds) -> dict[str, object]:
    """One entry of `exp_alerts`, its texts filled in as Prometheus does."""
    rule = render.body([Group(name="x", about=About.SERVICE, alerts=(alert,))], thresholds)["groups"][0]
    annotations = rule["rules"][0]["annotations"]
    return {
        "exp_labels": {"severity": alert.severity.value, **firing.labels},
        "exp_annotations": {key: _filled(text, firing) for key, text in annotations.items()},
    }


def _filled(text: str, firing: made.Firing) -> str:
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: firing.labels.get(found[1], ""), text)
    return re.sub(r"\{\{ \$value \| \w+ \}\}", firing.shown, text)


def test_entry(series: made.Series, step: str, checks: Iterable[dict[str, object]]) -> dict[str, object]:
    return {
        "interval": step,
        "input_series": [{"series": name, "values": " ".join(made.written(values))} for name, values in series.items()],
        "alert_rule_test": list(checks),
    }


test_entry.__test__ = False  # type: ignore[attr-defined]


def run(folder: Path, groups: Sequence[Group], tests: Sequence[dict[str, object]], step: str) -> str:
    """What promtool has to say against it; empty when all is as expected."""
    (folder / "rules.yaml").write_text(render.rule_file(groups, Thresholds()), encoding="utf-8")
    wanted = {"rule_files": ["rules.yaml"], "evaluation_interval": step, "tests": tests}
    (folder / "test.yaml").write_text(json.dumps(wanted), encoding="utf-8")
    done = subprocess.run(
        [program(), "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
