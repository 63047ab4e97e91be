"""From answers of Prometheus to figures: rows of services with their total, and formulas over inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidemark_operator.reporting import cost_file, figures, formulas, queries, reading
from tidemark_operator.reporting import period as period_

NO_LABEL = "–"
"""How a service, a key or an outcome without a name is shown."""

Found = figures.Input | figures.Remark
"""An input, or why there is none."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What figures are made of."""

    answers: reading.Reading
    period: period_.Period
    costs: cost_file.Costs

    def services(self) -> list[str]:
        """Every service that was seen."""
        totals = [self.answers.totals[each.name] for each in queries.QUANTITIES if each.by == queries.SERVICE]
        return sorted({name_of(labels) for total in totals for labels in total.values})

    def parts(self, quantity: str) -> dict[str, float]:
        """By service, key or outcome; empty where there was no sample."""
        found: dict[str, float] = {}
        for labels, value in self.answers.totals[quantity].values.items():
            name = name_of(labels)
            found[name] = found.get(name, 0.0) + value
        return dict(sorted(found.items()))

    def input(self, quantity: str, of: str | None = None, name: str = "") -> Found:
        """Of one service, key or outcome; `of` None: of all together."""
        total = self.answers.totals[quantity]
        value = total.total() if of is None else self.parts(quantity).get(of)
        if value is None:
            return no_samples(quantity)
        return figures.Input(name or quantity, value, figures.From.PROMETHEUS, total.query)

    def period_input(self) -> figures.Input:
        """Its length."""
        return figures.Input("period_seconds", self.period.seconds, figures.From.PERIOD, "--from, --to")


def name_of(labels: reading.Labels) -> str:
    """`default/contracts`, with the cluster before it where there is one; of a key or an outcome its name."""
    found = dict(labels)
    names = queries.SERVICE if set(found) & set(queries.SERVICE) else tuple(found)
    return "/".join(found[name] for name in names if found.get(name)) or NO_LABEL


def no_samples(quantity: str) -> figures.Remark:
    """The reason where Prometheus has nothing."""
    asked = next(each for each in queries.QUANTITIES if each.name == quantity)
    return figures.Remark("no_samples", {"metric": queries.select(asked.metric, asked.matchers)})


def figure_input(figure: figures.Figure, name: str = "") -> Found:
    """Another figure as an input, or why it has no value."""
    if figure.value is None:
        return figure.reason or figures.Remark("no_value", {"figure": figure.key})
    return figure.as_input(name)


def stated(name: str, value: float | None, origin: figures.From, source: str, missing: figures.Remark) -> Found:
    """A number that somebody gave, or why it is needed."""
    return missing if value is None else figures.Input(name, value, origin, source)


def derive(
    shape: figures.Shape,
    formula: str,
    function: Callable[..., float],
    inputs: Sequence[Found],
    of_kind: str = "",
    of: str = "",
) -> figures.Figure:
    """`function` of the inputs, in their order. No value where one is missing, or where it would divide by zero."""
    known = tuple(item for item in inputs if isinstance(item, figures.Input))
    value: float | None = None
    reason = next((item for item in inputs if isinstance(item, figures.Remark)), None)
    if reason is None:
        try:
            value = figures.finite(function(*(item.value for item in known)))
        except ZeroDivisionError:
            value = None
        if value is None:
            zeros = ", ".join(item.name for item in known if item.value == 0)
            reason = figures.Remark("divides_by_zero", {"names": zeros or formula})
    return figures.Figure(
        key=shape.key,
        group=shape.group,
        unit=shape.unit,
        formula=formula,
        inputs=known,
        value=value,
        reason=reason,
        of_kind=of_kind,
        of=of,
    )


def measured(shape: figures.Shape, quantity: str, facts: Facts, of_kind: str = "service") -> list[figures.Figure]:
    """A quantity as it is: its total, then its parts, which sum to it."""
    name = shape.key
    total = derive(shape, name, _same, [facts.input(quantity, None, name)])
    parts = [
        derive(shape, name, _same, [facts.input(quantity, part, name)], of_kind, part) for part in facts.parts(quantity)
    ]
    return [total, *parts]


def ratio(
    shape: figures.Shape,
    formula: str,
    function: Callable[..., float],
    quantities: Mapping[str, str],
    facts: Facts,
) -> list[figures.Figure]:
    """Of all together, then of each service. `quantities`: name in the formula -> quantity, in the function's order."""

    def one(of: str | None) -> list[Found]:
        return [facts.input(quantity, of, name) for name, quantity in quantities.items()]

    total = derive(shape, formula, function, one(None))
    if total.value is None and not any(facts.parts(quantity) for quantity in quantities.values()):
        return [total]
    return [total, *(derive(shape, formula, function, one(of), "service", of) for of in facts.services())]


def mean(shape: figures.Shape, quantity: str, facts: Facts) -> list[figures.Figure]:
    """Of a gauge, over all samples of all engines."""
    names = {"sum_of_samples": f"{quantity}_sum", "num_samples": f"{quantity}_count"}
    return ratio(shape, formulas.MEAN, formulas.mean, names, facts)


def summed(shape: figures.Shape, rows: Sequence[figures.Figure], missing: figures.Remark) -> figures.Figure:
    """The total of rows; without a value where one row has none, or where there is no row (`missing`)."""
    reason = missing if not rows else next((row.reason for row in rows if row.value is None), None)
    return figures.Figure(
        key=shape.key,
        group=shape.group,
        unit=shape.unit,
        formula=formulas.SUM,
        inputs=tuple(row.as_input() for row in rows if row.value is not None),
        value=math.fsum(row.value for row in rows if row.value is not None) if reason is None else None,
        reason=reason,
    )


def find(made: Sequence[figures.Figure], key: str, of: str = "") -> figures.Figure:
    """Among those made so far. Raises `KeyError`."""
    for figure in made:
        if figure.key == key and figure.of == of:
            return figure
    raise KeyError(key, of)


def _same(value: float) -> float:
    return value
