"""`tidemark report` with a real Prometheus that holds ninety made days: figures against what they were made from."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import made_quarter
import pytest

from tidemark_operator import cli
from tidemark_operator.reporting import sheet

ROOT = Path(__file__).resolve().parents[3]
COSTS = ROOT / "examples/costs.yaml"
PERIOD = ("--from", "2025-07-01", "--to", "2025-09-29")
HOURS = 24 * (90 + 20 + 2 * 70)
"""Of devices: one for 90 days, one for 20, two for 70."""


@pytest.fixture(scope="module")
def quarter(tmp_path_factory):
    """The address of a Prometheus, the truth, and its folder."""
    folder = tmp_path_factory.mktemp("quarter")
    truth = made_quarter.fill(folder)
    with made_quarter.prometheus(folder) as url:
        yield url, truth, folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.run(["report", *arguments]) == 0
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], url: str, *arguments: str) -> dict[str, Any]:
    return json.loads(run(capsys, "--prometheus", url, *PERIOD, "--output", "json", *arguments))


def value(data: dict[str, Any], key: str, of: str | None = None) -> float:
    return next(figure["value"] for figure in data["figures"] if (figure["key"], figure["of"]) == (key, of))


@pytest.fixture(scope="module")
def data(quarter):
    """One report as JSON, for several tests to look at."""
    url, _, folder = quarter
    assert (
        cli.run(["report", "--prometheus", url, *PERIOD, "--hardware", str(COSTS), "--out", str(folder / "out")]) == 0
    )
    return json.loads((folder / "out/tidemark-2025-07-01-2025-09-28.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("key", "series"),
    [
        ("prompt_tokens", "tidemark_prompt_tokens_total"),
        ("generated_tokens", "tidemark_generated_tokens_total"),
        ("prefix_tokens", 'tidemark_prefix_tokens_total{result="hit"}'),
    ],
)
def test_counters_are_the_truth_within_what_increase_may_be_off(quarter, data, key, series):
    """Through a restart and a gap of five days, of which all is counted: the counters went on."""
    _, truth, _ = quarter
    services = [service for name, service in truth.grown if name == series]
    assert services
    for service in services:
        expected, tolerance = truth.grown[series, service], truth.tolerance(series, service)
        assert tolerance < expected / 500
        assert value(data, key, service) == pytest.approx(expected, abs=tolerance), (key, service)
    assert value(data, key) == pytest.approx(math.fsum(value(data, key, service) for service in services))


def test_rows_of_outcomes_and_keys(quarter, data):
    _, truth, _ = quarter
    for key, of, series in (
        ("requests", "stop", 'tidemark_requests_total{outcome="stop"}'),
        ("key_prompt_tokens", "alice", 'tidemark_key_tokens_total{key="alice",kind="prompt"}'),
    ):
        expected = truth.grown[series, "team/contracts"]
        assert value(data, key, of) == pytest.approx(expected, abs=truth.tolerance(series, "team/contracts"))


def test_devices_are_those_that_were_held(data):
    assert value(data, "device_hours") == pytest.approx(HOURS, abs=3 * 4 * made_quarter.INTERVAL / 3600)
    assert value(data, "peak_devices") == made_quarter.NUM_HELD_AT_MOST
    assert value(data, "mean_devices") == pytest.approx(HOURS / (24 * 90), rel=1e-3)
    assert value(data, "busy_share") == pytest.approx(made_quarter.BUSY_SHARE, rel=1e-4)
    assert value(data, "concurrency_per_device") == pytest.approx(made_quarter.MOST_RUNNING, rel=0.05)
    assert value(data, "devices_saved") == pytest.approx(0.5)


def test_means_are_those_of_the_samples(quarter, data):
    _, truth, _ = quarter
    assert value(data, "batch_fill") == pytest.approx(math.fsum(truth.fills) / len(truth.fills), rel=1e-6)
    assert value(data, "prefix_share", "team/contracts") == pytest.approx(2 / 7, rel=1e-4)
    wide, stored = (made_quarter.TOKEN_BYTES[name] for name in (made_quarter.WIDE, made_quarter.STORED))
    assert value(data, "kv_concurrency", "team/contracts") == pytest.approx(wide / stored)


def test_the_cost_is_what_it_comes_to_by_hand(data):
    """4 x 60 000 over 4 years and 5 % a year, for 90 of 365 days; 6000 h at 275 W and 2640 h at 40 W, x 0.8 x 1.5."""
    devices = 60_000 * 90 / 365 + 12_000 * 90 / 365
    power = (HOURS * 0.275 + (4 * 24 * 90 - HOURS) * 0.04) * 0.8 * 1.5
    assert value(data, "total_cost") == pytest.approx(devices + power, rel=1e-4)
    tokens = value(data, "total_tokens")
    assert value(data, "cost_per_million_tokens") == pytest.approx(value(data, "total_cost") / tokens * 1e6)
    assert data["currency"] == "CNY"


def test_the_gap_is_told(data):
    days = made_quarter.GAP_DAYS
    assert data["coverage"] == pytest.approx(1 - (days[1] - days[0]) / 90, abs=2e-3)
    assert [(gap["from"][:10], gap["to"][:10]) for gap in data["gaps"]] == [("2025-08-20", "2025-08-24")]
    assert "less than 95 %" in data["warnings"][0]


def test_pictures_have_each_day(data):
    tokens = data["curves"]["tokens"]
    assert {name: len(points) for name, points in tokens.items()} == {"prompt_tokens": 90, "generated_tokens": 90}
    whole_days = [at for at, _ in tokens["prompt_tokens"]]
    assert whole_days == [made_quarter.START + day * made_quarter.DAY for day in range(90)]
    assert sum(amount is None for _, amount in tokens["prompt_tokens"]) == 5
    assert max(held for _, held in data["curves"]["devices"]["devices"] if held) == pytest.approx(4, abs=0.01)


def test_the_files_beside_it(quarter, data):
    _, _, folder = quarter
    raw = (folder / "out/tidemark-2025-07-01-2025-09-28.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    assert len(rows) == len(data["figures"])
    assert all(row["formula"] for row in rows)
    page = (folder / "out/tidemark-2025-07-01-2025-09-28.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 4


def test_what_is_too_much_for_prometheus_is_asked_in_parts(quarter, data, tmp_path, capsys):
    """Each question may load so few samples that ninety days of one series are too many."""
    _, _, folder = quarter
    shutil.copytree(folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("wal", "chunks_head"))
    options = ["--storage.tsdb.retention.time=100y", "--query.max-samples=15000"]
    with made_quarter.prometheus(tmp_path, options) as url:
        parts = as_json(capsys, url)
    assert any("parts" in note for note in parts["notes"])
    for key in ("prompt_tokens", "device_hours", "batch_fill"):
        # A gap across the edge of a part is lost; there is none here.
        assert value(parts, key) == pytest.approx(value(data, key), rel=2e-3), key


def test_chinese_and_one_service_and_another_time_zone(quarter, capsys):
    url, truth, _ = quarter
    arguments = ("--language", "zh", "--match", "service=chat", "--timezone", "+08:00")
    found = as_json(capsys, url, *arguments)
    assert {figure["of"] for figure in found["figures"] if figure["ofKind"] == "service"} == {"team/chat"}
    assert found["period"]["from"] == "2025-07-01T00:00:00+08:00"
    series = "tidemark_generated_tokens_total"
    expected = truth.grown[series, "team/chat"]
    assert value(found, "generated_tokens") == pytest.approx(expected, abs=truth.tolerance(series, "team/chat"))
    assert "未给出基线" in next(each["reason"] for each in found["figures"] if each["key"] == "devices_saved")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--quarter", "2024Q1"), 1, "The first sample is of 2025-0"),
        (("--quarter", "2099Q1"), 2, "What lies in the future"),
        ((*PERIOD, "--match", "namespace=none"), 1, 'no sample of tidemark_prompt_tokens_total{namespace="none"}'),
        ((*PERIOD, "--device-price", "5"), 2, "--device-years: got nothing"),
    ],
)
def test_what_cannot_be_reported_is_told(quarter, capsys, arguments, code, words):
    url, _, _ = quarter
    assert cli.run(["report", "--prometheus", url, *arguments]) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_a_folder_that_cannot_be_written(quarter, capsys, tmp_path):
    url, _, _ = quarter
    (tmp_path / "file").write_text("")
    assert cli.run(["report", "--prometheus", url, *PERIOD, "--out", str(tmp_path / "file/x")]) == 2
    assert "--out" in capsys.readouterr().err


def test_csv_on_standard_output(quarter, capsys):
    url, _, _ = quarter
    text = run(capsys, "--prometheus", url, "--from", "2025-07-01T06:00", "--to", "2025-07-01T18:30", "-o", "csv")
    assert text.startswith(sheet.BYTE_ORDER_MARK)
    assert "no baseline given" in text


def test_costs_as_options(quarter, capsys, tmp_path):
    url, _, _ = quarter
    (tmp_path / "token").write_text("anything")
    devices = ("--device-count", "2", "--device-price", "7300", "--device-years", "2", "--device-watts", "300")
    power = ("--price-per-kwh", "0.25", "--pue", "1.4", "--maintenance-percent", "10", "--currency", "EUR")
    before = ("--baseline-devices", "5", "--baseline-source", "a bet", "--token-file", str(tmp_path / "token"))
    found = as_json(capsys, url, "--match", "service=contracts", *devices, *power, *before)
    assert value(found, "depreciation") == pytest.approx(900 * 2)  # 10 a day and device
    assert value(found, "maintenance") == pytest.approx(2 * 730 * 90 / 365)
    assert value(found, "electricity") == pytest.approx(24 * (90 + 20) * 0.3 * 0.25 * 1.4, rel=1e-3)
    assert value(found, "peak_devices") == 2
    assert value(found, "devices_saved") == pytest.approx(0.6)
    assert (found["baselineSource"], found["currency"]) == ("a bet", "EUR")


def test_html_on_standard_output_with_a_baseline_file(quarter, capsys, tmp_path):
    url, _, _ = quarter
    (tmp_path / "baseline.yaml").write_text("source: signed\ndevices: 8\n")
    period = ("--from", "2025-08-01", "--to", "2025-08-08")
    text = run(capsys, "--prometheus", url, *period, "--baseline", str(tmp_path / "baseline.yaml"), "--output", "html")
    assert text.startswith("<!doctype html>")
    assert "signed" in text
