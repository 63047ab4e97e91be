"""`tidemark report`: what a quarter cost and brought, from Prometheus, with the formula of each figure."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from tidemark_operator import errors, prometheus
from tidemark_operator.commands import report_inputs
from tidemark_operator.reporting import document, figures, page, period, plain, reading, report, sheet, words


class Output(StrEnum):
    """How the report is printed."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    CSV = "csv"


_PERIOD, _COSTS = "The period", "Costs"
_MATCH = re.compile(r"([a-zA-Z_]\w*)=(.+)")


def command(
    url: Annotated[
        str,
        typer.Option("--prometheus", metavar="URL", help="Where to ask, such as http://127.0.0.1:9090."),
    ],
    quarter: Annotated[
        str | None,
        typer.Option("--quarter", metavar="2026Q3", help="Instead of --from and --to.", rich_help_panel=_PERIOD),
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="Its first day, such as 2026-07-01.", rich_help_panel=_PERIOD),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="The day after its last one.", rich_help_panel=_PERIOD)
    ] = None,
    zone: Annotated[
        str,
        typer.Option(
            "--timezone", metavar="ZONE", help="Where days begin: UTC, +08:00, Asia/Shanghai.", rich_help_panel=_PERIOD
        ),
    ] = "UTC",
    match: Annotated[
        list[str] | None,
        typer.Option("--match", metavar="LABEL=VALUE", help="Only series with it, such as namespace=team; repeatable."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="A bearer token for Prometheus.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust, for https.")
    ] = None,
    hardware: Annotated[
        Path | None,
        typer.Option(
            "--hardware", metavar="FILE", help="The cost file: devices, power, baseline.", rich_help_panel=_COSTS
        ),
    ] = None,
    currency: Annotated[
        str | None,
        typer.Option("--currency", metavar="WORD", help="Of all prices, such as CNY.", rich_help_panel=_COSTS),
    ] = None,
    device_count: Annotated[
        int | None, typer.Option("--device-count", metavar="N", help="Devices owned.", rich_help_panel=_COSTS)
    ] = None,
    device_price: Annotated[
        float | None,
        typer.Option(
            "--device-price", metavar="N", help="Of one, with its share of the server.", rich_help_panel=_COSTS
        ),
    ] = None,
    device_years: Annotated[
        float | None,
        typer.Option("--device-years", metavar="N", help="Over which it is written off.", rich_help_panel=_COSTS),
    ] = None,
    device_watts: Annotated[
        float | None,
        typer.Option(
            "--device-watts", metavar="N", help="Draw of one, where none was measured.", rich_help_panel=_COSTS
        ),
    ] = None,
    price_per_kwh: Annotated[
        float | None,
        typer.Option("--price-per-kwh", metavar="N", help="Of a kilowatt-hour.", rich_help_panel=_COSTS),
    ] = None,
    pue: Annotated[
        float | None,
        typer.Option("--pue", metavar="N", help="Power usage effectiveness, 1 or more.", rich_help_panel=_COSTS),
    ] = None,
    maintenance_percent: Annotated[
        float | None,
        typer.Option("--maintenance-percent", metavar="N", help="Of the price, each year.", rich_help_panel=_COSTS),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE", help="How it was before: source, devices ...", rich_help_panel=_COSTS
        ),
    ] = None,
    baseline_devices: Annotated[
        float | None,
        typer.Option("--baseline-devices", metavar="N", help="Devices it took before.", rich_help_panel=_COSTS),
    ] = None,
    baseline_source: Annotated[
        str | None,
        typer.Option("--baseline-source", metavar="WORDS", help="Where that number is from.", rich_help_panel=_COSTS),
    ] = None,
    language: Annotated[words.Language, typer.Option("--language", help="Of names and sentences.")] = words.Language.EN,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Write HTML, CSV and JSON there, too.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="What is printed.")] = Output.TEXT,
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


_FORMS: Mapping[Output, Callable[[figures.Report, words.Language], str]] = MappingProxyType(
    {Output.TEXT: plain.text, Output.JSON: _json, Output.HTML: page.text, Output.CSV: sheet.text}
)


def _write(made: figures.Report, language: words.Language, folder: Path) -> list[Path]:
    """Three files named after the period. Raises `errors.ManifestFileError` where they cannot be written."""
    name = f"tidemark-{made.period.day(made.period.start)}-{made.period.day(made.period.end - 1)}"
    written = []
    try:
        for form in (Output.HTML, Output.CSV, Output.JSON):
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
