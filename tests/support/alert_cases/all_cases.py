"""The cases of every alert: at least one that must fire and one that must not."""

from __future__ import annotations

from collections.abc import Mapping

from alert_cases import device, engine, evaluation, expiry, memory, operator_, requests, service
from alert_cases.made import Case

CASES: Mapping[str, tuple[Case, ...]] = {
    **service.CASES,
    **memory.CASES,
    **engine.CASES,
    **device.CASES,
    **requests.CASES,
    **expiry.CASES,
    **evaluation.CASES,
    **operator_.CASES,
}
