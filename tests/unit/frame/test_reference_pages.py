"""The pages of the HTTP API and the metrics name exactly what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from tidemark_runtime.contract import http, metrics
from tidemark_runtime.server import validation

REFERENCE = Path(__file__).resolve().parents[3] / "docs/reference"
HTTP_PAGE = (REFERENCE / "http-api.md").read_text(encoding="utf-8")
METRICS_PAGE = (REFERENCE / "metrics.md").read_text(encoding="utf-8")


def test_the_field_table_is_what_validation_takes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (yes|–) \| (yes|–) \|", HTTP_PAGE, re.MULTILINE)
    assert {name for name, chat, _ in rows if chat == "yes"} == validation.CHAT_FIELDS
    assert {name for name, _, completions in rows if completions == "yes"} == validation.COMPLETION_FIELDS


def test_limits_and_defaults_are_those_of_validation() -> None:
    row = next(line for line in HTTP_PAGE.splitlines() if line.startswith("| `temperature` "))
    limits = validation.NUMBERS["temperature"]
    assert f"| {limits.describe()} | {limits.default:g} |" in row


def test_ignored_and_refused_fields_are_named() -> None:
    named = set(re.findall(r"`(\w+)`", HTTP_PAGE))
    assert named >= validation.IGNORED_FIELDS
    assert set(validation.REFUSED_FIELDS) <= named


def test_every_route_is_named() -> None:
    paths = {value for name, value in vars(http).items() if name.endswith("_PATH")}
    assert [path for path in sorted(paths) if f" {path}`" not in HTTP_PAGE] == []


def test_every_metric_has_a_row_and_nothing_else_has() -> None:
    rows = re.findall(r"^\| `(tidemark_\w+)` \| (?:counter|gauge|histogram) \|", METRICS_PAGE, re.MULTILINE)
    assert rows == [metric.name for metric in metrics.ENGINE_METRICS]
