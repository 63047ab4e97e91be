"""Each formula against a sum done by hand, and each text against its function."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tidemark_operator.reporting import formulas

QUARTER = 90 * 86_400
BY_HAND = [
    # 21 600 000 s / 3600
    (formulas.device_hours, formulas.DEVICE_HOURS, {"device_seconds": 21_600_000}, 6000),
    # 90 days of 2.5 devices
    (formulas.mean_devices, formulas.MEAN_DEVICES, {"device_seconds": 2.5 * QUARTER, "period_seconds": QUARTER}, 2.5),
    (formulas.peak, formulas.PEAK, {"most_device_seconds_per_second": 3.994}, 4),
    (formulas.mean, formulas.MEAN, {"sum_of_samples": 30, "num_samples": 40}, 0.75),
    (formulas.busy_share, formulas.BUSY_SHARE, {"busy_seconds": 55, "device_seconds": 100}, 0.55),
    (formulas.total_tokens, formulas.TOTAL_TOKENS, {"prompt_tokens": 700, "generated_tokens": 300}, 1000),
    (formulas.times, formulas.RATIO, {"after": 24, "before": 9}, 24 / 9),
    (formulas.saved_share, formulas.SAVED_SHARE, {"after": 3, "before": 8}, 0.625),
    (formulas.per, formulas.PER_DEVICE_HOUR, {"total_tokens": 1e6, "device_hours": 8}, 125_000),
    (formulas.per, formulas.PER_HOUR, {"total_cost": 19_860, "device_hours": 6000}, 3.31),
    (
        formulas.would_take_hours,
        formulas.WOULD_TAKE_HOURS,
        {"total_tokens": 9e6, "baseline_tokens_per_device_hour": 90_000},
        100,
    ),
    # 4 cards of 60 000 over 4 years are 60 000 a year; 73 days are a fifth of one
    (
        formulas.depreciation,
        formulas.DEPRECIATION,
        {"count": 4, "price": 60_000, "years": 4, "period_seconds": 73 * 86_400},
        12_000,
    ),
    # 5 % of 240 000 are 12 000 a year
    (
        formulas.maintenance,
        formulas.MAINTENANCE,
        {"count": 4, "price": 60_000, "maintenance_percent": 5, "period_seconds": 73 * 86_400},
        2_400,
    ),
    (formulas.energy_kwh, formulas.ENERGY, {"device_hours": 6000, "watts": 275}, 1650),
    # 4 cards x 2160 h - 6000 h = 2640 h at 40 W
    (
        formulas.idle_energy_kwh,
        formulas.IDLE_ENERGY,
        {"count": 4, "period_seconds": QUARTER, "device_hours": 6000, "idle_watts": 40},
        105.6,
    ),
    # more held than owned is not less than nothing
    (
        formulas.idle_energy_kwh,
        formulas.IDLE_ENERGY,
        {"count": 1, "period_seconds": QUARTER, "device_hours": 6000, "idle_watts": 40},
        0,
    ),
    (
        formulas.electricity,
        formulas.ELECTRICITY,
        {"energy_kwh": 1650, "idle_energy_kwh": 105.6, "price_per_kwh": 0.8, "pue": 1.5},
        2106.72,
    ),
    (
        formulas.electricity_held,
        formulas.ELECTRICITY_HELD,
        {"energy_kwh": 1650, "price_per_kwh": 0.8, "pue": 1.5},
        1980,
    ),
    (
        formulas.total_cost,
        formulas.TOTAL_COST,
        {"depreciation": 14_794.52, "maintenance": 2_958.9, "electricity": 2_106.72},
        19_860.14,
    ),
    (formulas.total_cost_bare, formulas.TOTAL_COST_BARE, {"depreciation": 14_000, "electricity": 2_000}, 16_000),
    (
        formulas.service_cost,
        formulas.SERVICE_COST,
        {"total_cost": 20_000, "service_device_hours": 1500, "device_hours": 6000},
        5_000,
    ),
    (formulas.per_million, formulas.PER_MILLION, {"cost": 20_000, "tokens": 8e8}, 25),
    (formulas.hit_share, formulas.HIT_SHARE, {"hit_tokens": 2, "missed_tokens": 6}, 0.25),
    (formulas.saved_flops, formulas.SAVED_FLOPS, {"parameters": 7e9, "hit_tokens": 1000}, 1.4e13),
    # a token took 36 s / 1000; a million of them is 36 000 s
    (
        formulas.saved_hours,
        formulas.SAVED_HOURS,
        {"hit_tokens": 1e6, "execute_seconds": 36, "computed_tokens": 1000},
        10,
    ),
    # head_dim 64, int8 with a float32 scale: 68 bytes against 128
    (formulas.bytes_saved, formulas.BYTES_SAVED, {"stored_bytes": 68, "bytes_at_16_bits": 128}, 0.46875),
    (formulas.concurrency_gain, formulas.CONCURRENCY_GAIN, {"stored_bytes": 68, "bytes_at_16_bits": 128}, 128 / 68),
    (
        formulas.weights_saved,
        formulas.WEIGHTS_SAVED,
        {"sum_of_samples": 1e10, "num_samples": 2, "parameters": 1e10},
        0.75,
    ),
]


@pytest.mark.parametrize(("function", "text", "inputs", "expected"), BY_HAND)
def test_by_hand(function, text, inputs, expected):
    assert function(*inputs.values()) == pytest.approx(expected)
    assert eval(text, {"max": max, "round": round}, inputs) == pytest.approx(expected)


def test_the_page_has_the_formulas_as_they_are():
    page = (Path(__file__).resolve().parents[3] / "docs/operations/report.md").read_text(encoding="utf-8")
    quoted = set(re.findall(r"`([^`]+)`", page[page.index("## The formulas") : page.index("## How exact")]))
    texts = {text for _, text, *_ in BY_HAND}
    expressions = {text for text in quoted if re.search(r" [-+*/] |\(", text)}
    assert len(expressions) > 15
    assert expressions <= texts


def test_every_formula_is_checked_by_hand():
    functions = {found for _, found in inspect.getmembers(formulas, inspect.isfunction)}
    texts = {value for name, value in vars(formulas).items() if name.isupper() and isinstance(value, str)}
    assert functions == {function for function, *_ in BY_HAND}
    assert texts == {text for _, text, *_ in BY_HAND} | {formulas.SUM}
