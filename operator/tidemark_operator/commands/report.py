"""`tidemark report`: what a quarter cost and brought, from Prometheus, with the formula of each figure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import typer

from tidemark_operator import errors, prometheus
from tidemark_operator.commands import report_inputs, report_options
from tidemark_operator.reporting import document, figures, page, period, plain, reading, report, sheet, words

_MATCH = re.compile(r"([a-zA-Z_]\w*)=(.+)")


def command(
    url: report_options.Url,
    quarter: report_options.Quarter = None,
    first: report_options.First = None,
    last: report_options.Last = None,
    zone: report_options.Zone = "UTC",
    match: report_options.Match = None,
    token_file: report_options.TokenFile = None,
    ca_file: report_options.CaFile = None,
    hardware: report_options.Hardware = None,
    currency: report_options.Currency = None,
    device_count: report_options.DeviceCount = None,
    device_price: report_options.DevicePrice = None,
    device_years: report_options.DeviceYears = None,
    device_watts: report_options.DeviceWatts = None,
    price_per_kwh: report_options.PricePerKwh = None,
    pue: report_options.Pue = None,
    maintenance_percent: report_options.MaintenancePercent = None,
    baseline: report_options.Baseline = None,
    baseline_devices: report_options.BaselineDevices = None,
    baseline_source: report_options.BaselineSource = None,
    language: report_options.Language = words.Language.EN,
    out: report_options.Out = None,
    output: report_options.Format = report_options.Output.TEXT,
) -> None:
    """Report tokens, device hours, utilization, cost and savings of a period, with the formula of each figure.

    Exit code 0: done, 1: Prometheus gave no figures, 2: an option or a file is wrong.
    """
    now = time.time()
    asked = period.parse(quarter, first, last, zone, now)
    matchers = _matchers(match or [])
    costs = report_inputs.costs(
        report_inputs.Options(
            hardware=hardware,
            baseline=baseline,
            currency=currency,
            device_count=device_count,
            device_price=device_price,
            device_years=device_years,
            device_watts=device_watts,
            price_per_kwh=price_per_kwh,
            pue=pue,
            maintenance_percent=maintenance_percent,
            baseline_devices=baseline_devices,
            baseline_source=baseline_source,
        )
    )
    if out is not None:
        _make(out)  # before minutes of questions
    with prometheus.Prometheus(url, token_file, ca_file) as source:
        answers = reading.read(source, asked, now, matchers)
        made = report.build(answers, asked, costs, source.url, now)
    if out is not None:
        for path in _write(made, language, out):
            typer.echo(f"wrote {path}", err=True)
    typer.echo(_FORMS[output](made, language), nl=False)


def _json(made: figures.Report, language: words.Language) -> str:
    return json.dumps(document.of(made, language), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


_FORMS: Mapping[report_options.Output, Callable[[figures.Report, words.Language], str]] = MappingProxyType(
    {
        report_options.Output.TEXT: plain.text,
        report_options.Output.JSON: _json,
        report_options.Output.HTML: page.text,
        report_options.Output.CSV: sheet.text,
    }
)


def _write(made: figures.Report, language: words.Language, folder: Path) -> list[Path]:
    """Three files named after the period. Raises `errors.ManifestFileError` where they cannot be written."""
    name = f"tidemark-{made.period.day(made.period.start)}-{made.period.day(made.period.end - 1)}"
    written = []
    try:
        for form in (report_options.Output.HTML, report_options.Output.CSV, report_options.Output.JSON):
            path = folder / f"{name}.{form.value}"
            path.write_text(_FORMS[form](made, language), encoding="utf-8", newline="")
            written.append(path)
    except OSError as error:
        raise _no_folder(folder, error) from error
    return written


def _make(folder: Path) -> None:
    """Raises `errors.ManifestFileError` where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _no_folder(folder, error) from error


def _no_folder(folder: Path, error: OSError) -> errors.ManifestFileError:
    return errors.ManifestFileError(f"--out: got {folder}, expected a folder that can be written. It says: {error}")


def _matchers(found: list[str]) -> list[str]:
    """PromQL from `LABEL=VALUE`. Raises `errors.ManifestError` with every problem."""
    matched = [_MATCH.fullmatch(text) for text in found]
    problems = [
        errors.Problem("--match", text, "LABEL=VALUE, such as namespace=team")
        for text, match in zip(found, matched, strict=True)
        if match is None
    ]
    if problems:
        raise errors.ManifestError(problems, "--match")
    return [f"{match[1]}={json.dumps(match[2], ensure_ascii=False)}" for match in matched if match is not None]
