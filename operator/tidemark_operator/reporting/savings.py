"""Figures of what the prefix cache and quantization saved, each from what was measured in the same period."""

from __future__ import annotations

from tidemark_operator.reporting import building, figures, formulas
from tidemark_operator.reporting.figures import From, Group, Input, Remark, Shape

_GROUP = Group.SAVED


def figures_of(facts: building.Facts) -> list[figures.Figure]:
    """In the order of the report."""
    hit = {"hit_tokens": "hit_tokens", "missed_tokens": "missed_tokens"}
    hours = {"hit_tokens": "hit_tokens", "execute_seconds": "execute_seconds", "computed_tokens": "computed_tokens"}
    kv = {"stored_bytes": "kv_stored", "bytes_at_16_bits": "kv_16bit"}
    return [
        *building.ratio(Shape("prefix_share", _GROUP, "ratio"), formulas.HIT_SHARE, formulas.hit_share, hit, facts),
        *building.measured(Shape("prefix_tokens", _GROUP, "tokens"), "hit_tokens", facts),
        *building.ratio(
            Shape("prefix_hours", _GROUP, "hours"), formulas.SAVED_HOURS, formulas.saved_hours, hours, facts
        ),
        *_flops(facts),
        *building.ratio(Shape("kv_saved", _GROUP, "ratio"), formulas.BYTES_SAVED, formulas.bytes_saved, kv, facts),
        *building.ratio(
            Shape("kv_concurrency", _GROUP, "times"), formulas.CONCURRENCY_GAIN, formulas.concurrency_gain, kv, facts
        ),
        *_weights(facts),
    ]


def _parameters(facts: building.Facts, service: str) -> building.Found:
    for index, (name, value) in enumerate(facts.costs.parameters):
        if name == service:
            return Input("parameters", value, From.COST_FILE, f"models[{index}].parameters")
    return Remark("no_parameters", {"service": service})


def _flops(facts: building.Facts) -> list[figures.Figure]:
    """Products and sums that were not computed again; a total where the parameters of all services are stated."""
    shape = Shape("prefix_flops", _GROUP, "flops")
    rows = [
        building.derive(
            shape,
            formulas.SAVED_FLOPS,
            formulas.saved_flops,
            [_parameters(facts, service), facts.input("hit_tokens", service)],
            "service",
            service,
        )
        for service in facts.services()
    ]
    return [building.summed(shape, rows, building.no_samples("engine_samples")), *rows]


def _weights(facts: building.Facts) -> list[figures.Figure]:
    shape = Shape("weights_saved", _GROUP, "ratio")
    return [
        building.derive(
            shape,
            formulas.WEIGHTS_SAVED,
            formulas.weights_saved,
            [
                facts.input("weights_bytes_sum", service, "sum_of_samples"),
                facts.input("weights_bytes_count", service, "num_samples"),
                _parameters(facts, service),
            ],
            "service",
            service,
        )
        for service in facts.services()
    ]
