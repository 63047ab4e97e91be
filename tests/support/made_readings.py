"""Answers of Prometheus as a report reads them, made without one."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_operator.reporting import cost_file, figures, period, queries, reading

QUARTER = period.Period(1_751_328_000.0, 1_751_328_000.0 + 90 * 86_400)
"""Ninety days from 1 July 2025, UTC."""
CONTRACTS, CHAT = (("namespace", "team"), ("service", "contracts")), (("namespace", "team"), ("service", "chat"))

COSTS = cost_file.Costs(
    currency="CNY",
    devices=(
        cost_file.Device("L", 4, 60_000, 4, 275, 40),
        cost_file.Device("H", 1, 300_000, 5, 700, 90),
    ),
    power=cost_file.Power(0.8, 1.5),
    maintenance_percent=5,
    baseline=cost_file.Baseline("a measurement", 8, 9, 90_000),
    parameters=(("team/contracts", 7e9), ("team/chat", 1e9)),
)
NO_COSTS = cost_file.Costs()


def totals(of: Mapping[str, Mapping[reading.Labels, float]]) -> dict[str, reading.Total]:
    """Every quantity; those that are not in `of` have no sample."""
    return {each.name: reading.Total(of.get(each.name, {}), each.query(QUARTER.seconds)) for each in queries.QUANTITIES}


def made(
    of: Mapping[str, Mapping[reading.Labels, float]],
    *,
    peak: float | None = 4.0,
    running: float | None = 12.5,
    coverage: float = 1.0,
    gaps: tuple[figures.Gap, ...] = (),
) -> reading.Reading:
    """A reading with these totals."""
    return reading.Reading(
        totals=totals(of),
        peak_devices=reading.Total({} if peak is None else {(): peak}, "peak"),
        peak_running_per_device=reading.Total({} if running is None else {(): running}, "running"),
        curves={},
        coverage=coverage,
        gaps=gaps,
        first_sample=QUARTER.start,
        scrape_seconds=15.0,
        num_parts=1,
    )


def full(scale: float = 1.0) -> reading.Reading:
    """Two services with everything."""
    of: dict[str, dict[reading.Labels, float]] = {}
    for index, each in enumerate(queries.QUANTITIES):
        if each.by == queries.SERVICE:
            of[each.name] = {CONTRACTS: scale * 1000.0 * (index + 1), CHAT: scale * 500.0 * (index + 3)}
        else:
            of[each.name] = {((each.by[0], "one"),): scale * 70.0, ((each.by[0], "two"),): scale * 30.0}
    return made(of)
