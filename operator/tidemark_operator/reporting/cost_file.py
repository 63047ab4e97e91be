"""What a site says of its devices, its power and where it comes from: checked, every problem at once.

    currency: CNY
    devices: [{model: ..., count: 4, price: 60000, years: 4, powerWatts: 275, idlePowerWatts: 40}]
    power: {pricePerKwh: 0.8, pue: 1.5}
    maintenancePercent: 5
    baseline: {source: ..., devices: 8, concurrencyPerDevice: 12, tokensPerDeviceHour: 1500000}
    models: [{service: default/contracts, parameters: 7615616512}]

Nothing has a default: what is not said is not counted, and the report says so.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_operator import errors

Locate = Callable[[tuple[str | int, ...]], int | None]
"""Line of a path in the file."""


@dataclass(frozen=True, slots=True)
class Device:
    """Devices of one kind that are owned. `price` is of one, with its share of the server around it."""

    model: str
    count: float
    price: float
    years: float
    """Over which the price is written off, straight line."""
    power_watts: float | None
    """Draw of one while it is held, with its share of the server; used where none was measured."""
    idle_power_watts: float | None
    """Draw of one that is not held; None: not counted."""


@dataclass(frozen=True, slots=True)
class Power:
    """What energy costs."""

    price_per_kwh: float
    pue: float
    """Energy of the whole data centre over energy of what computes in it."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """How it was before: only what is stated, and where that is from."""

    source: str = ""
    devices: float | None = None
    concurrency_per_device: float | None = None
    tokens_per_device_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """All of it."""

    currency: str = ""
    devices: tuple[Device, ...] = ()
    power: Power | None = None
    maintenance_percent: float | None = None
    """Of the price, each year."""
    baseline: Baseline = Baseline()
    parameters: tuple[tuple[str, float], ...] = ()
    """NAMESPACE/NAME of a service -> parameters of its model."""


@dataclass(frozen=True, slots=True)
class _Key:
    """What a key may hold."""

    expected: str
    ok: Callable[[float], bool] | None = None
    """None: the value is text."""
    required: bool = False


_ABOVE = _Key("a number above 0", lambda value: value > 0)
_NEEDED = _Key("a number above 0", lambda value: value > 0, required=True)
_AT_LEAST = _Key("a number of at least 0", lambda value: value >= 0)

_DEVICE: Mapping[str, _Key] = {
    "model": _Key("words for this kind of device", required=True),
    "count": _Key("a whole number of devices owned, at least 1", lambda value: value >= 1 and value % 1 == 0, True),
    "price": _Key("the price of one device, at least 0", lambda value: value >= 0, True),
    "years": _NEEDED,
    "powerWatts": _ABOVE,
    "idlePowerWatts": _AT_LEAST,
}
_POWER: Mapping[str, _Key] = {
    "pricePerKwh": _Key("the price of a kilowatt-hour, at least 0", lambda value: value >= 0, True),
    "pue": _Key("power usage effectiveness, from 1 to 5", lambda value: 1 <= value <= 5, True),
}
_BASELINE: Mapping[str, _Key] = {
    "source": _Key("where these figures are from, in words", required=True),
    "devices": _ABOVE,
    "concurrencyPerDevice": _ABOVE,
    "tokensPerDeviceHour": _ABOVE,
}
_MODEL: Mapping[str, _Key] = {
    "service": _Key("NAMESPACE/NAME of a service, as the report names it", required=True),
    "parameters": _NEEDED,
}
_TOP = ("currency", "devices", "power", "maintenancePercent", "baseline", "models")


def parse(document: object, source: str, locate: Locate | None = None) -> Costs:
    """`document` is what the YAML holds. Raises `errors.ManifestError` with every problem."""
    return _Parser(locate or (lambda _: None)).costs(document, source)


class _Parser:
    """Collects problems while it reads."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._problems: list[errors.Problem] = []

    def costs(self, document: object, source: str) -> Costs:
        top = self._mapping(document, (), _TOP)
        devices = self._list(top, "devices", _DEVICE)
        power = self._section(top, "power", _POWER)
        baseline = self._section(top, "baseline", _BASELINE)
        models = self._list(top, "models", _MODEL)
        percent = self._number(top, ("maintenancePercent",), _AT_LEAST)
        currency = self._text(top, ("currency",), _Key("a word such as CNY", required=bool(devices or power)))
        self._twice(models)
        if self._problems:
            raise errors.ManifestError(self._problems, source)
        return Costs(
            currency=currency or "",
            devices=tuple(_device(item) for item in devices),
            power=None if power is None else Power(power["pricePerKwh"], power["pue"]),
            maintenance_percent=percent,
            baseline=Baseline() if baseline is None else _baseline(baseline),
            parameters=tuple((str(item["service"]), item["parameters"]) for item in models),
        )

    def _list(self, top: Mapping[str, Any], name: str, keys: Mapping[str, _Key]) -> list[dict[str, Any]]:
        value = top.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self._add((name,), value, f"a list of mappings with {', '.join(keys)}", "Begin each entry with a dash.")
            return []
        return [self._fields(item, (name, index), keys) for index, item in enumerate(value)]

    def _section(self, top: Mapping[str, Any], name: str, keys: Mapping[str, _Key]) -> dict[str, Any] | None:
        return None if top.get(name) is None else self._fields(top[name], (name,), keys)

    def _fields(self, value: object, at: tuple[str | int, ...], keys: Mapping[str, _Key]) -> dict[str, Any]:
        found = self._mapping(value, at, tuple(keys))
        if not isinstance(value, Mapping):
            return {}
        read = {
            name: self._text(found, (*at, name), key) if key.ok is None else self._number(found, (*at, name), key)
            for name, key in keys.items()
        }
        return {name: item for name, item in read.items() if item is not None}

    def _mapping(self, value: object, at: tuple[str | int, ...], known: Sequence[str]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._add(at, value, f"a mapping with {', '.join(known)}")
            return {}
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"Did you mean {near[0]}?" if near else "Remove it."
                self._add((*at, str(key)), errors.Seen("an unknown key"), f"one of {', '.join(known)}", remedy)
        return value

    def _text(self, found: Mapping[str, Any], at: tuple[str | int, ...], key: _Key) -> str | None:
        value = found.get(str(at[-1]))
        if value is None:
            self._missing(at, key)
            return None
        if not isinstance(value, str) or not value.strip():
            self._add(at, value, key.expected, "" if isinstance(value, str) else "Put it in quotes.")
            return None
        return value.strip()

    def _number(self, found: Mapping[str, Any], at: tuple[str | int, ...], key: _Key) -> float | None:
        value = found.get(str(at[-1]))
        if value is None:
            self._missing(at, key)
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not _fits(value) or key.ok is None or not key.ok(float(value)):
            self._add(at, value, key.expected, _plain_number(value))
            return None
        return float(value)

    def _missing(self, at: tuple[str | int, ...], key: _Key) -> None:
        if key.required:
            self._add(at, errors.Seen("nothing"), key.expected, "Add it.")

    def _twice(self, models: Sequence[Mapping[str, Any]]) -> None:
        seen: set[object] = set()
        for index, item in enumerate(models):
            service = item.get("service")
            if service is not None and service in seen:
                self._add(("models", index, "service"), service, "each service once", "Remove one of the two.")
            seen.add(service)

    def _add(self, at: tuple[str | int, ...], seen: object, expected: str, remedy: str = "") -> None:
        self._problems.append(errors.Problem(_path(at), seen, expected, remedy, self._locate(at)))


_LEAST, _MOST = 1e-9, 1e18
"""What a price, a count or a time can be: beyond, products of them are no numbers any more."""


def _fits(value: float) -> bool:
    try:
        return math.isfinite(float(value)) and (value == 0 or _LEAST <= abs(value) <= _MOST)
    except OverflowError:
        return False


def _plain_number(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and not _fits(value):
        return f"Between {_LEAST:g} and {_MOST:g}."
    if not isinstance(value, str):
        return ""
    try:
        float(value.replace(",", ""))
    except ValueError:
        return "Write the number alone; the currency has a key of its own."
    return "Write it without quotes and without commas."


def _path(at: Sequence[str | int]) -> str:
    """`devices[0].price`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
    return text.removeprefix(".") or "document"


def _device(item: Mapping[str, Any]) -> Device:
    return Device(
        item["model"], item["count"], item["price"], item["years"], item.get("powerWatts"), item.get("idlePowerWatts")
    )


def _baseline(item: Mapping[str, Any]) -> Baseline:
    return Baseline(
        item["source"], item.get("devices"), item.get("concurrencyPerDevice"), item.get("tokensPerDeviceHour")
    )
