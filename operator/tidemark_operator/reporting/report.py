"""The whole report: figures in their order, and what a reader must be warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidemark_operator.reporting import building, cost_file, devices, figures, money, reading, savings, traffic
from tidemark_operator.reporting import period as period_
from tidemark_operator.reporting.figures import Remark

LEAST_COVERAGE = 0.95
"""Of the period, and of the engines' samples that carry device seconds; below it the report warns."""


def build(
    answers: reading.Reading, period: period_.Period, costs: cost_file.Costs, prometheus: str, now: float
) -> figures.Report:
    """Pure: the same answers and costs give the same report."""
    facts = building.Facts(answers, period, costs)
    made = [*traffic.figures_of(facts), *devices.figures_of(facts)]
    made += devices.comparison(facts, made)
    made += money.figures_of(facts, made)
    made += savings.figures_of(facts)
    return figures.Report(
        period=period,
        prometheus=prometheus,
        made_at=now,
        currency=costs.currency,
        figures=tuple(made),
        warnings=tuple(_warnings(facts, made)),
        notes=tuple(_notes(facts)),
        coverage=answers.coverage,
        gaps=answers.gaps,
        curves=answers.curves,
        baseline_source=costs.baseline.source,
    )


def _warnings(facts: building.Facts, made: Sequence[figures.Figure]) -> Iterator[Remark]:
    answers, period = facts.answers, facts.period
    if period.asked_end is not None:
        yield Remark("not_over", {"end": period.moment(period.asked_end), "now": period.moment(period.end)})
    if answers.coverage < LEAST_COVERAGE:
        yield Remark("coverage", {"share": f"{answers.coverage * 100:.1f} %", "least": f"{LEAST_COVERAGE * 100:.0f} %"})
    samples, held = (answers.totals[name].total() or 0.0 for name in ("engine_samples", "device_samples"))
    if held < LEAST_COVERAGE * samples:
        yield Remark("old_engines", {"share": f"{held / samples * 100:.1f} %"})
    peak = building.find(made, "peak_devices").value or 0.0
    owned = sum(device.count for device in facts.costs.devices)
    if facts.costs.devices and peak > owned:
        yield Remark("more_than_owned", {"peak": f"{peak:.0f}", "owned": f"{owned:.0f}"})
    known = set(facts.services())
    for name, _ in facts.costs.parameters:
        if name not in known:
            yield Remark("unknown_service", {"service": name, "known": ", ".join(sorted(known))})


def _notes(facts: building.Facts) -> Iterator[Remark]:
    answers = facts.answers
    yield Remark("increase", {"seconds": f"{answers.scrape_seconds:.0f}"})
    if answers.num_parts > 1:
        yield Remark("parts", {"count": str(answers.num_parts)})
    draw = money.watts(facts)
    if isinstance(draw, figures.Input):
        yield Remark("watts_measured" if draw.origin is figures.From.PROMETHEUS else "watts_stated")
