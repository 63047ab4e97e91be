"""What to say while ops run on another path than planned: a standing sentence, not a line in a log of last month."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_runtime.contract import status


def warning(paths: Sequence[status.KernelPath]) -> str:
    """A sentence that names ops, both paths and the reason; empty where everything runs as planned."""
    unplanned = [each for each in paths if not each.is_planned]
    if not unplanned:
        return ""
    names = ", ".join(sorted({each.op for each in unplanned}))
    instead = ", ".join(sorted({f"{each.path} instead of {each.planned}" for each in unplanned}))
    reasons = "; ".join(dict.fromkeys(each.reason for each in unplanned if each.reason)) or "no reason given"
    return f"Serving, slowly: {names} run on {instead}: {reasons}. Then restart this engine."
