"""What a site says of its costs, from `--hardware`, `--baseline` and single options: one document, checked as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tidemark_operator import errors
from tidemark_operator.api import files
from tidemark_operator.reporting import cost_file

_ON_THE_COMMAND_LINE = "given on the command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As they stand on the command line; None: not given."""

    hardware: Path | None = None
    baseline: Path | None = None
    currency: str | None = None
    device_count: int | None = None
    device_price: float | None = None
    device_years: float | None = None
    device_watts: float | None = None
    price_per_kwh: float | None = None
    pue: float | None = None
    maintenance_percent: float | None = None
    baseline_devices: float | None = None
    baseline_source: str | None = None


def costs(options: Options) -> cost_file.Costs:
    """Options win over the file. Raises `errors.ManifestError` and `errors.ManifestFileError`."""
    document: Any = {}
    locate: cost_file.Locate | None = None
    if options.hardware is not None:
        document, locate = files.load_plain(options.hardware)
    if not isinstance(document, Mapping):
        return cost_file.parse(document, str(options.hardware), locate)
    merged = dict(document)
    own = _own(options, merged)
    merged.update(own)

    def line(at: tuple[str | int, ...]) -> int | None:
        from_file = locate is not None and at and at[0] in document and at[0] not in own
        return locate(at) if from_file and locate is not None else None

    source = str(options.hardware) if options.hardware is not None else "the options about costs"
    try:
        return cost_file.parse(merged, source, line)
    except errors.ManifestError as error:
        raise errors.ManifestError([_as_typed(problem, options) for problem in error.problems], source) from error


_TYPED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "currency": ("currency", "--currency"),
        "devices[0].count": ("device_count", "--device-count"),
        "devices[0].price": ("device_price", "--device-price"),
        "devices[0].years": ("device_years", "--device-years"),
        "devices[0].powerWatts": ("device_watts", "--device-watts"),
        "power.pricePerKwh": ("price_per_kwh", "--price-per-kwh"),
        "power.pue": ("pue", "--pue"),
        "maintenancePercent": ("maintenance_percent", "--maintenance-percent"),
        "baseline.devices": ("baseline_devices", "--baseline-devices"),
        "baseline.source": ("baseline_source", "--baseline-source"),
    }
)
"""Key of the cost file -> field of `Options`, and the option that says the same."""


def _as_typed(problem: errors.Problem, options: Options) -> errors.Problem:
    """A problem of what came from an option, or is missing where no file is, by the name of that option."""
    field, name = _TYPED.get(problem.path, ("", ""))
    from_option = field and (getattr(options, field) is not None or (options.hardware is None and not options.baseline))
    return dataclasses.replace(problem, path=name) if from_option else problem


def _own(options: Options, document: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that options make or change."""
    found: dict[str, Any] = {}
    if options.currency is not None:
        found["currency"] = options.currency
    if options.maintenance_percent is not None:
        found["maintenancePercent"] = options.maintenance_percent
    device = _given(
        count=options.device_count,
        price=options.device_price,
        years=options.device_years,
        powerWatts=options.device_watts,
    )
    if device:
        _refuse_both(options, document, "devices", "--device-count, --device-price, --device-years, --device-watts")
        found["devices"] = [{"model": "device", **device}]
    power = _given(pricePerKwh=options.price_per_kwh, pue=options.pue)
    if power:
        found["power"] = {**_mapping(document.get("power")), **power}
    baseline = _baseline(options, document)
    if baseline:
        found["baseline"] = baseline
    return found


def _baseline(options: Options, document: Mapping[str, Any]) -> dict[str, Any]:
    """Of the option's file, else of the cost file; single options win."""
    stated = _mapping(document.get("baseline"))
    if options.baseline is not None:
        _refuse_both(options, document, "baseline", "--baseline")
        read, _ = files.load_plain(options.baseline)
        if not isinstance(read, Mapping):
            problem = errors.Problem("document", read, "a mapping with source, devices, ...")
            raise errors.ManifestError([problem], str(options.baseline))
        stated = dict(read["baseline"]) if isinstance(read.get("baseline"), Mapping) else dict(read)
    single = _given(devices=options.baseline_devices, source=options.baseline_source)
    if not single:
        return stated if options.baseline is not None else {}
    return {"source": _ON_THE_COMMAND_LINE, **stated, **single}


def _refuse_both(options: Options, document: Mapping[str, Any], key: str, names: str) -> None:
    if document.get(key) is not None:
        seen = errors.Seen(f"also {key}: in {options.hardware}")
        raise errors.ManifestError([errors.Problem(names, seen, "one of the two", "Leave one out.")])


def _given(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
