"""Which events the step from one status to the next is worth."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_operator.reconcile import news


def status(reason: str = "BelowLines", limit: int | None = None, truth: str | None = None) -> dict[str, Any]:
    is_felt = truth or ("True" if reason.startswith("Above") else "False")
    condition = {"type": "MemoryPressure", "status": is_felt, "reason": reason, "message": f"{reason}."}
    tightened = {} if limit is None else {"tightened": {"maxConcurrencySoft": limit, "instead": 20}}
    return {"conditions": [condition], **tightened}


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ({}, status(), []),
        ({}, status("AboveQueueLine"), ["AboveQueueLine"]),
        (status("AboveQueueLine"), status("AboveQueueLine"), []),
        (status("AboveQueueLine"), status("AbovePreemptLine"), ["AbovePreemptLine"]),
        (status("AbovePreemptLine"), status("AboveQueueLine"), []),  # better, and not gone
        (status("AbovePreemptLine"), status(), ["MemoryPressureGone"]),
        (status("AbovePreemptLine"), status("NoAnswer", truth="Unknown"), []),
        (status("AbovePreemptLine"), status("AbovePreemptLine", 16), ["SoftLimitLowered"]),
        (status("AbovePreemptLine", 16), status("AbovePreemptLine", 16), []),
        (status("AbovePreemptLine", 16), status("AbovePreemptLine", 12), ["SoftLimitLowered"]),
        (status("AbovePreemptLine", 12), status(limit=16), ["MemoryPressureGone", "SoftLimitRaised"]),
        (status(limit=16), status(), ["SoftLimitRestored"]),
        (status(limit=16), {}, ["SoftLimitRestored"]),
    ],
)
def test_events_of_memory(before: dict[str, Any], after: dict[str, Any], reasons: list[str]) -> None:
    assert [event.reason for event in news.of(before, after)] == reasons


def test_a_lowered_limit_is_told_with_its_bound_and_the_numbers_that_led_to_it() -> None:
    (event,) = news.of(status("AbovePreemptLine"), status("AbovePreemptLine", 16))
    assert event.message == (
        "watermarks.response is tighten: maxConcurrencySoft is 16 instead of 20 (never below 10). AbovePreemptLine."
    )
