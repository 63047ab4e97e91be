"""Figures of cost: what was paid for devices, for keeping them and for their power, and what that makes a token.

Devices are paid for whether they are held or not, so the number owned counts; power is drawn by those that are held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidemark_operator.reporting import building, cost_file, figures, formulas
from tidemark_operator.reporting.figures import From, Group, Input, Remark, Shape

_MONEY = "currency"
_PER_MILLION = "currency_per_million"
_NO_DEVICES = Remark("no_cost_file", {"key": "devices"})
_NO_POWER = Remark("no_cost_file", {"key": "power"})


def figures_of(facts: building.Facts, made: Sequence[figures.Figure]) -> list[figures.Figure]:
    """`made`: those of traffic and devices."""
    hours = building.find(made, "device_hours")
    depreciation = _depreciation(facts)
    maintenance = _maintenance(facts)
    energy = _energy(facts, hours)
    idle = _idle(facts, hours)
    electricity = _electricity(facts, energy, idle)
    total = _total(facts, depreciation[0], maintenance[0] if maintenance else None, electricity)
    return [
        *depreciation,
        *maintenance,
        energy,
        idle,
        electricity,
        total,
        building.derive(
            Shape("cost_per_device_hour", Group.COST, "currency_per_hour"),
            formulas.PER_HOUR,
            formulas.per,
            [building.figure_input(total), building.figure_input(hours)],
        ),
        *_by_service(facts, made, total),
    ]


def _depreciation(facts: building.Facts) -> list[figures.Figure]:
    shape = Shape("depreciation", Group.COST, _MONEY)
    rows = [
        building.derive(
            shape,
            formulas.DEPRECIATION,
            formulas.depreciation,
            [
                _of(index, "count", device.count),
                _of(index, "price", device.price),
                _of(index, "years", device.years),
                facts.period_input(),
            ],
            "device",
            device.model,
        )
        for index, device in enumerate(facts.costs.devices)
    ]
    return [building.summed(shape, rows, _NO_DEVICES), *rows]


def _maintenance(facts: building.Facts) -> list[figures.Figure]:
    shape = Shape("maintenance", Group.COST, _MONEY)
    percent = facts.costs.maintenance_percent
    given = building.stated(
        "maintenance_percent", percent, From.COST_FILE, "maintenancePercent", Remark("no_maintenance")
    )
    if isinstance(given, Remark):
        return [building.derive(shape, formulas.MAINTENANCE, formulas.maintenance, [given])]
    rows = [
        building.derive(
            shape,
            formulas.MAINTENANCE,
            formulas.maintenance,
            [_of(index, "count", device.count), _of(index, "price", device.price), given, facts.period_input()],
            "device",
            device.model,
        )
        for index, device in enumerate(facts.costs.devices)
    ]
    return [building.summed(shape, rows, _NO_DEVICES), *rows]


def watts(facts: building.Facts) -> building.Found:
    """Mean draw of a device that is held: as measured, else as stated (the mean of those owned)."""
    total, count = (facts.answers.totals[f"device_power_{name}"] for name in ("sum", "count"))
    power, samples = total.total(), count.total()
    if power is not None and samples:
        return Input("watts", power / samples, From.PROMETHEUS, f"({total.query}) / ({count.query})")
    return _stated_watts(facts.costs.devices, "watts", "powerWatts", [each.power_watts for each in facts.costs.devices])


def _stated_watts(
    devices: Sequence[cost_file.Device], name: str, key: str, values: Sequence[float | None]
) -> building.Found:
    if not devices or any(value is None for value in values):
        return Remark("no_watts", {"key": key})
    weighted = math.fsum(device.count * (value or 0.0) for device, value in zip(devices, values, strict=True))
    owned = math.fsum(device.count for device in devices)
    return Input(name, weighted / owned, From.COST_FILE, f"devices[].{key}, mean by count")


def _energy(facts: building.Facts, hours: figures.Figure) -> figures.Figure:
    return building.derive(
        Shape("energy_kwh", Group.COST, "kwh"),
        formulas.ENERGY,
        formulas.energy_kwh,
        [building.figure_input(hours), watts(facts)],
    )


def _idle(facts: building.Facts, hours: figures.Figure) -> figures.Figure:
    devices = facts.costs.devices
    values = [each.idle_power_watts for each in devices]
    owned: building.Found = (
        Input("count", math.fsum(each.count for each in devices), From.COST_FILE, "devices[].count, summed")
        if devices
        else _NO_DEVICES
    )
    draw = _stated_watts(devices, "idle_watts", "idlePowerWatts", values) if devices else _NO_DEVICES
    if devices and any(value is None for value in values):
        draw = Remark("no_idle_watts")
    return building.derive(
        Shape("idle_energy_kwh", Group.COST, "kwh"),
        formulas.IDLE_ENERGY,
        formulas.idle_energy_kwh,
        [owned, facts.period_input(), building.figure_input(hours), draw],
    )


def _electricity(facts: building.Facts, energy: figures.Figure, idle: figures.Figure) -> figures.Figure:
    power = facts.costs.power
    price: building.Found = _NO_POWER
    pue: building.Found = _NO_POWER
    if power is not None:
        price = Input("price_per_kwh", power.price_per_kwh, From.COST_FILE, "power.pricePerKwh")
        pue = Input("pue", power.pue, From.COST_FILE, "power.pue")
    shape = Shape("electricity", Group.COST, _MONEY)
    if idle.value is None:
        inputs = [building.figure_input(energy), price, pue]
        return building.derive(shape, formulas.ELECTRICITY_HELD, formulas.electricity_held, inputs)
    inputs = [building.figure_input(energy), building.figure_input(idle), price, pue]
    return building.derive(shape, formulas.ELECTRICITY, formulas.electricity, inputs)


def _total(
    facts: building.Facts,
    depreciation: figures.Figure,
    maintenance: figures.Figure | None,
    electricity: figures.Figure,
) -> figures.Figure:
    shape = Shape("total_cost", Group.COST, _MONEY)
    parts = [depreciation, electricity]
    if facts.costs.maintenance_percent is None or maintenance is None:
        inputs = [building.figure_input(part) for part in parts]
        return building.derive(shape, formulas.TOTAL_COST_BARE, formulas.total_cost_bare, inputs)
    inputs = [building.figure_input(part) for part in (depreciation, maintenance, electricity)]
    return building.derive(shape, formulas.TOTAL_COST, formulas.total_cost, inputs)


def _by_service(facts: building.Facts, made: Sequence[figures.Figure], total: figures.Figure) -> list[figures.Figure]:
    """A service bears the share of the cost that it has of the device hours."""
    hours = building.find(made, "device_hours")
    cost_shape = Shape("service_cost", Group.COST, _MONEY)
    rows: list[figures.Figure] = []
    for service in facts.services():
        own = building.figure_input(_found(made, "device_hours", service), "service_device_hours")
        inputs = [building.figure_input(total), own, building.figure_input(hours)]
        rows.append(
            building.derive(cost_shape, formulas.SERVICE_COST, formulas.service_cost, inputs, "service", service)
        )
    per_million = Shape("cost_per_million_tokens", Group.COST, _PER_MILLION)
    tokens = building.figure_input(building.find(made, "total_tokens"), "tokens")
    whole = building.derive(
        per_million, formulas.PER_MILLION, formulas.per_million, [building.figure_input(total, "cost"), tokens]
    )
    generated = building.derive(
        Shape("cost_per_million_generated", Group.COST, _PER_MILLION),
        formulas.PER_MILLION,
        formulas.per_million,
        [
            building.figure_input(total, "cost"),
            building.figure_input(building.find(made, "generated_tokens"), "tokens"),
        ],
    )
    each = [
        building.derive(
            per_million,
            formulas.PER_MILLION,
            formulas.per_million,
            [
                building.figure_input(row, "cost"),
                building.figure_input(building.find(made, "total_tokens", row.of), "tokens"),
            ],
            "service",
            row.of,
        )
        for row in rows
    ]
    return [*rows, whole, *each, generated]


def _found(made: Sequence[figures.Figure], key: str, of: str) -> figures.Figure:
    """Of a service; where it has no row of its own, the total says why."""
    rows = [figure for figure in made if figure.key == key and figure.of == of and figure.of_kind]
    return rows[0] if rows else building.find(made, key)


def _of(index: int, name: str, value: float) -> Input:
    return Input(name, value, From.COST_FILE, f"devices[{index}].{name}")
