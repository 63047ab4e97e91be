"""The cost file: every problem at once, with its line; and the options that stand for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_operator import errors
from tidemark_operator.api import files
from tidemark_operator.commands import report_inputs
from tidemark_operator.reporting import cost_file

GOOD = {
    "currency": "CNY",
    "devices": [{"model": "L", "count": 4, "price": 60000, "years": 4, "powerWatts": 275}],
    "power": {"pricePerKwh": 0.8, "pue": 1.5},
    "maintenancePercent": 5,
    "baseline": {"source": "a test", "devices": 8},
    "models": [{"service": "team/contracts", "parameters": 7e9}],
}


def changed(**values: object) -> dict:
    return {**GOOD, **values}


def test_what_it_says():
    costs = cost_file.parse(GOOD, "costs.yaml")
    assert costs.devices == (cost_file.Device("L", 4, 60000, 4, 275, None),)
    assert costs.power == cost_file.Power(0.8, 1.5)
    assert costs.baseline == cost_file.Baseline("a test", 8)
    assert costs.parameters == (("team/contracts", 7e9),)


def test_nothing_is_invented():
    assert cost_file.parse({}, "costs.yaml") == cost_file.Costs()


def device(**values: object) -> dict:
    return changed(devices=[{**GOOD["devices"][0], **values}])


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ([], "document", "a mapping with currency"),
        (changed(curency="x"), "curency", "Did you mean currency?"),
        (changed(currency=5), "currency", "Put it in quotes."),
        (changed(currency=" "), "currency", "a word such as CNY"),
        (changed(currency=None), "currency", "Add it."),
        (changed(devices={"count": 1}), "devices", "Begin each entry with a dash."),
        (changed(devices=["L"]), "devices[0]", "a mapping with model"),
        (device(count=1.5), "devices[0].count", "whole number"),
        (device(count=0), "devices[0].count", "at least 1"),
        (device(count=True), "devices[0].count", "got true"),
        (device(price="60,000"), "devices[0].price", "without commas"),
        (device(price="60000 CNY"), "devices[0].price", "currency has a key of its own"),
        (device(price=-1), "devices[0].price", "at least 0"),
        (device(years=0), "devices[0].years", "above 0"),
        (device(years=float("nan")), "devices[0].years", "above 0"),
        (device(price=10**400), "devices[0].price", "at least 0"),
        (device(price=1e300), "devices[0].price", "Between 1e-09 and 1e+18."),
        (device(years=1e-300), "devices[0].years", "Between 1e-09 and 1e+18."),
        (device(powerWatts=0), "devices[0].powerWatts", "above 0"),
        (device(watts=3), "devices[0].watts", "an unknown key"),
        (changed(power={"pricePerKwh": 1}), "power.pue", "Add it."),
        (changed(power={"pricePerKwh": 1, "pue": 0.9}), "power.pue", "from 1 to 5"),
        (changed(maintenancePercent=-1), "maintenancePercent", "at least 0"),
        (changed(baseline={"devices": 8}), "baseline.source", "where these figures are from"),
        (changed(models=[{"service": "a/b"}]), "models[0].parameters", "Add it."),
        (changed(models=[GOOD["models"][0]] * 2), "models[1].service", "each service once"),
    ],
)
def test_what_is_wrong_is_named(document, path, words):
    with pytest.raises(errors.ManifestError) as caught:
        cost_file.parse(document, "costs.yaml")
    assert [problem.path for problem in caught.value.problems] == [path]
    assert words in str(caught.value)


def test_all_problems_come_at_once_with_their_lines(tmp_path: Path):
    path = tmp_path / "costs.yaml"
    path.write_text(
        "currency: CNY\ndevices:\n  - model: L\n    count: 0\n    price: x\n    years: 4\npower:\n  pue: 9\n"
    )
    with pytest.raises(errors.ManifestError) as caught:
        report_inputs.costs(report_inputs.Options(hardware=path))
    found = [(problem.path, problem.line) for problem in caught.value.problems]
    assert found == [
        ("devices[0].count", 4),
        ("devices[0].price", 5),
        ("power.pricePerKwh", 7),
        ("power.pue", 8),
    ]
    assert str(path) in str(caught.value)


def test_options_alone_are_a_cost_file():
    options = report_inputs.Options(
        currency="EUR", device_count=2, device_price=9000, device_years=3, device_watts=300, price_per_kwh=0.3, pue=1.4
    )
    costs = report_inputs.costs(options)
    assert costs.devices == (cost_file.Device("device", 2, 9000, 3, 300, None),)
    assert costs.power == cost_file.Power(0.3, 1.4)


def test_a_wrong_option_is_named_as_it_was_typed(tmp_path: Path):
    """Who typed an option knows of no devices[0]."""
    with pytest.raises(errors.ManifestError) as caught:
        report_inputs.costs(report_inputs.Options(device_count=-1, pue=0.5))
    assert [problem.path for problem in caught.value.problems] == [
        "--device-count", "--device-price", "--device-years", "--price-per-kwh", "--pue", "--currency",
    ]  # fmt: skip
    path = tmp_path / "costs.yaml"
    path.write_text("currency: 5\npower: {pricePerKwh: -1, pue: 1.5}\n")
    with pytest.raises(errors.ManifestError) as caught:
        report_inputs.costs(report_inputs.Options(hardware=path, pue=9))
    assert [problem.path for problem in caught.value.problems] == ["power.pricePerKwh", "--pue", "currency"]


def test_options_change_what_the_file_says(tmp_path: Path):
    path = tmp_path / "costs.yaml"
    path.write_text("currency: CNY\npower: {pricePerKwh: 0.8, pue: 1.5}\nbaseline: {source: a test, devices: 8}\n")
    costs = report_inputs.costs(report_inputs.Options(hardware=path, pue=1.2, baseline_devices=6))
    assert costs.power == cost_file.Power(0.8, 1.2)
    assert costs.baseline == cost_file.Baseline("a test", 6)


def test_a_baseline_of_the_command_line_says_so():
    costs = report_inputs.costs(report_inputs.Options(baseline_devices=8))
    assert costs.baseline == cost_file.Baseline("given on the command line", 8)


@pytest.mark.parametrize("text", ["source: old\ndevices: 8\n", "baseline:\n  source: old\n  devices: 8\n"])
def test_a_baseline_file(tmp_path: Path, text: str):
    path = tmp_path / "baseline.yaml"
    path.write_text(text)
    costs = report_inputs.costs(report_inputs.Options(baseline=path))
    assert costs.baseline == cost_file.Baseline("old", 8)


def test_a_baseline_file_that_is_none(tmp_path: Path):
    path = tmp_path / "baseline.yaml"
    path.write_text("- 8\n")
    with pytest.raises(errors.ManifestError, match="a mapping with source"):
        report_inputs.costs(report_inputs.Options(baseline=path))


@pytest.mark.parametrize("key", ["devices", "baseline"])
def test_what_is_said_twice_is_refused(tmp_path: Path, key: str):
    path = tmp_path / "costs.yaml"
    path.write_text("currency: CNY\ndevices: [{model: L, count: 1, price: 1, years: 1}]\nbaseline: {source: x}\n")
    options = {
        "devices": report_inputs.Options(hardware=path, device_count=2),
        "baseline": report_inputs.Options(hardware=path, baseline=path),
    }
    with pytest.raises(errors.ManifestError, match="Leave one out"):
        report_inputs.costs(options[key])


def test_two_documents_are_no_cost_file(tmp_path: Path):
    path = tmp_path / "costs.yaml"
    path.write_text("currency: CNY\n---\ncurrency: EUR\n")
    with pytest.raises(errors.ManifestFileError, match="has 2 documents, expected one"):
        files.load_plain(path)
