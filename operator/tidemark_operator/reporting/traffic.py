"""Figures of what was asked and answered: tokens by service and key, requests by outcome and key."""

from __future__ import annotations

import itertools

from tidemark_operator.reporting import building, figures, formulas

_GROUP = figures.Group.TRAFFIC
TOTAL_TOKENS = figures.Shape("total_tokens", _GROUP, "tokens")


def figures_of(facts: building.Facts) -> list[figures.Figure]:
    """In the order of the report."""
    tokens = [
        *building.measured(figures.Shape("prompt_tokens", _GROUP, "tokens"), "prompt_tokens", facts),
        *building.measured(figures.Shape("generated_tokens", _GROUP, "tokens"), "generated_tokens", facts),
    ]
    return [
        *tokens,
        *_totals(facts),
        *building.measured(figures.Shape("requests", _GROUP, "requests"), "requests", facts, "outcome"),
        *building.measured(figures.Shape("key_requests", _GROUP, "requests"), "key_requests", facts, "key"),
        *building.measured(figures.Shape("key_prompt_tokens", _GROUP, "tokens"), "key_prompt_tokens", facts, "key"),
        *building.measured(
            figures.Shape("key_generated_tokens", _GROUP, "tokens"), "key_generated_tokens", facts, "key"
        ),
    ]


def _totals(facts: building.Facts) -> list[figures.Figure]:
    places = itertools.chain([None], facts.services())
    return [
        building.derive(
            TOTAL_TOKENS,
            formulas.TOTAL_TOKENS,
            formulas.total_tokens,
            [facts.input("prompt_tokens", of), facts.input("generated_tokens", of)],
            "service" if of is not None else "",
            of or "",
        )
        for of in places
    ]
