"""The options of `tidemark report`: what each is called, takes and means."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidemark_operator.reporting import words


class Output(StrEnum):
    """How the report is printed."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    CSV = "csv"


_PERIOD, _COSTS = "The period", "Costs"

Url = Annotated[
    str,
    typer.Option("--prometheus", metavar="URL", help="Where to ask, such as http://127.0.0.1:9090."),
]
Quarter = Annotated[
    str | None,
    typer.Option("--quarter", metavar="2026Q3", help="Instead of --from and --to.", rich_help_panel=_PERIOD),
]
First = Annotated[
    str | None,
    typer.Option("--from", metavar="DAY", help="Its first day, such as 2026-07-01.", rich_help_panel=_PERIOD),
]
Last = Annotated[
    str | None, typer.Option("--to", metavar="DAY", help="The day after its last one.", rich_help_panel=_PERIOD)
]
Zone = Annotated[
    str,
    typer.Option(
        "--timezone", metavar="ZONE", help="Where days begin: UTC, +08:00, Asia/Shanghai.", rich_help_panel=_PERIOD
    ),
]
Match = Annotated[
    list[str] | None,
    typer.Option("--match", metavar="LABEL=VALUE", help="Only series with it, such as namespace=team; repeatable."),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="A bearer token for Prometheus.")]
CaFile = Annotated[Path | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust, for https.")]
Hardware = Annotated[
    Path | None,
    typer.Option("--hardware", metavar="FILE", help="The cost file: devices, power, baseline.", rich_help_panel=_COSTS),
]
Currency = Annotated[
    str | None,
    typer.Option("--currency", metavar="WORD", help="Of all prices, such as CNY.", rich_help_panel=_COSTS),
]
DeviceCount = Annotated[
    int | None, typer.Option("--device-count", metavar="N", help="Devices owned.", rich_help_panel=_COSTS)
]
DevicePrice = Annotated[
    float | None,
    typer.Option("--device-price", metavar="N", help="Of one, with its share of the server.", rich_help_panel=_COSTS),
]
DeviceYears = Annotated[
    float | None,
    typer.Option("--device-years", metavar="N", help="Over which it is written off.", rich_help_panel=_COSTS),
]
DeviceWatts = Annotated[
    float | None,
    typer.Option("--device-watts", metavar="N", help="Draw of one, where none was measured.", rich_help_panel=_COSTS),
]
PricePerKwh = Annotated[
    float | None,
    typer.Option("--price-per-kwh", metavar="N", help="Of a kilowatt-hour.", rich_help_panel=_COSTS),
]
Pue = Annotated[
    float | None,
    typer.Option("--pue", metavar="N", help="Power usage effectiveness, 1 or more.", rich_help_panel=_COSTS),
]
MaintenancePercent = Annotated[
    float | None,
    typer.Option("--maintenance-percent", metavar="N", help="Of the price, each year.", rich_help_panel=_COSTS),
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="How it was before: source, devices ...", rich_help_panel=_COSTS),
]
BaselineDevices = Annotated[
    float | None,
    typer.Option("--baseline-devices", metavar="N", help="Devices it took before.", rich_help_panel=_COSTS),
]
BaselineSource = Annotated[
    str | None,
    typer.Option("--baseline-source", metavar="WORDS", help="Where that number is from.", rich_help_panel=_COSTS),
]
Language = Annotated[words.Language, typer.Option("--language", help="Of names and sentences.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Write HTML, CSV and JSON there, too.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="What is printed.")]
