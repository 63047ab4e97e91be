"""When what happened, by the clock of whoever saw it: samples of Prometheus, times of events, messages that came."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Step:
    """Something that must come true."""

    what: str
    ask: Callable[[], object]


def until(steps: Sequence[Step], seconds: float) -> None:
    """Until each has been true once. Raises `AssertionError` with those that never were."""
    end, left = time.monotonic() + seconds, list(steps)
    while left := [step for step in left if not step.ask()]:
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:.0f} s: {[step.what for step in left]}")
        time.sleep(POLL_SECONDS)


@dataclass
class Timeline:
    """Moments in Unix seconds, by key, with words for the table."""

    at: dict[str, float] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def mark(self, key: str, what: str, at: float | None = None) -> None:
        """Now, where no moment is given."""
        self.at[key], self.words[key] = time.time() if at is None else at, what

    def since_start(self, key: str) -> float:
        return self.at[key] - min(self.at.values())


def unix(text: str) -> float:
    """A time as Kubernetes writes it."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
