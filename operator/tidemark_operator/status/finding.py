"""One thing that keeps a pod from serving."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason in the user's words and a sentence."""

    reason: str
    """CamelCase, for conditions."""
    message: str
    problem: bool = True
    """False: it passes by itself, as loading does."""
