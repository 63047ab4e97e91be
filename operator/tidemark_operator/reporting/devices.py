"""Figures of devices: hours, how many at once, how well they were used, and how that compares with a baseline."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_operator.reporting import building, figures, formulas
from tidemark_operator.reporting.figures import From, Group, Input, Remark, Shape

DEVICE_HOURS = Shape("device_hours", Group.DEVICES, "hours")


def figures_of(facts: building.Facts) -> list[figures.Figure]:
    """Held, and used."""
    hours = {"device_seconds": "device_seconds"}
    busy = {"busy_seconds": "busy_seconds", "device_seconds": "device_seconds"}
    mean_devices = [facts.input("device_seconds"), facts.period_input()]
    share = Group.UTILIZATION
    return [
        *building.ratio(DEVICE_HOURS, formulas.DEVICE_HOURS, formulas.device_hours, hours, facts),
        building.derive(
            Shape("mean_devices", Group.DEVICES, "devices"), formulas.MEAN_DEVICES, formulas.mean_devices, mean_devices
        ),
        _peak(facts),
        *building.ratio(Shape("busy_share", share, "ratio"), formulas.BUSY_SHARE, formulas.busy_share, busy, facts),
        *building.mean(Shape("batch_fill", share, "ratio"), "batch_fill", facts),
        *building.mean(Shape("kv_usage", share, "ratio"), "kv_usage", facts),
        *building.mean(Shape("device_utilization", share, "ratio"), "device_utilization", facts),
    ]


def _peak(facts: building.Facts) -> figures.Figure:
    found = facts.answers.peak_devices
    value = found.total()
    inputs: building.Found = (
        _never_held(facts)
        if value is None
        else Input("most_device_seconds_per_second", value, From.PROMETHEUS, found.query)
    )
    return building.derive(Shape("peak_devices", Group.DEVICES, "devices"), formulas.PEAK, formulas.peak, [inputs])


def _never_held(facts: building.Facts) -> Remark:
    """No sample at all, or engines that lived between two looks."""
    has_some = bool(facts.answers.totals["device_seconds"].values)
    return Remark("too_short") if has_some else building.no_samples("device_seconds")


def comparison(facts: building.Facts, made: Sequence[figures.Figure]) -> list[figures.Figure]:
    """Before, as it was stated, and after, as it was measured."""
    group = Group.COMPARISON
    hours = building.find(made, "device_hours")
    per_hour = building.derive(
        Shape("tokens_per_device_hour", group, "tokens_per_hour"),
        formulas.PER_DEVICE_HOUR,
        formulas.per,
        [building.figure_input(building.find(made, "total_tokens")), building.figure_input(hours)],
    )
    running = facts.answers.peak_running_per_device
    most = running.total()
    after_running: building.Found = (
        _never_held(facts) if most is None else Input("concurrency_per_device", most, From.PROMETHEUS, running.query)
    )
    concurrency = building.derive(
        Shape("concurrency_per_device", group, "requests"), "concurrency_per_device", float, [after_running]
    )
    base = facts.costs.baseline
    before_devices = _before(facts, "baseline_devices", base.devices, "devices")
    before_running = _before(facts, "baseline_concurrency_per_device", base.concurrency_per_device, "requests")
    before_tokens = _before(facts, "baseline_tokens_per_device_hour", base.tokens_per_device_hour, "tokens_per_hour")
    would_take = building.derive(
        Shape("baseline_device_hours", group, "hours"),
        formulas.WOULD_TAKE_HOURS,
        formulas.would_take_hours,
        [building.figure_input(building.find(made, "total_tokens")), building.figure_input(before_tokens)],
    )
    return [
        before_devices,
        _compared("devices_saved", "ratio", building.find(made, "peak_devices"), before_devices, is_share=True),
        before_running,
        concurrency,
        _compared("concurrency_gain", "times", concurrency, before_running),
        before_tokens,
        per_hour,
        _compared("tokens_gain", "times", per_hour, before_tokens),
        would_take,
        _compared("hours_saved", "ratio", hours, would_take, is_share=True),
    ]


def _before(facts: building.Facts, key: str, value: float | None, unit: str) -> figures.Figure:
    given = building.stated(key, value, From.BASELINE, facts.costs.baseline.source, Remark("no_baseline", {"key": key}))
    return building.derive(Shape(key, Group.COMPARISON, unit), key, float, [given])


def _compared(
    key: str, unit: str, after: figures.Figure, before: figures.Figure, is_share: bool = False
) -> figures.Figure:
    formula, function = (formulas.SAVED_SHARE, formulas.saved_share) if is_share else (formulas.RATIO, formulas.times)
    inputs = [building.figure_input(before, "before"), building.figure_input(after, "after")]
    return building.derive(Shape(key, Group.COMPARISON, unit), formula, function, inputs[::-1])
