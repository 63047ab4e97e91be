"""For how long each line of memory use has been crossed, in all and lately."""

from __future__ import annotations

from collections import deque

from tidemark_runtime.core import lines
from tidemark_runtime.engine import messages

NUM_KEPT = 50
"""Crossings that are remembered. An engine under load crosses a line some times a minute."""


class LineTimes:
    """Told of every crossing, in order. Times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._since: dict[lines.Level, float] = {}
        """Lines that are crossed now."""
        self._seconds = dict.fromkeys(lines.Level, 0.0)
        """Of crossings that have ended."""
        self._last: deque[tuple[lines.Crossing, float, float | None]] = deque(maxlen=NUM_KEPT)
        """What crossed, when, and when that was left; the newest is the last."""

    def note(self, crossing: lines.Crossing, now: float) -> None:
        """A line was crossed, or left."""
        level = crossing.level
        if crossing.above:
            self._since[level] = now
            self._last.append((crossing, now, None))
            return
        self._seconds[level] += now - self._since.pop(level)
        for index in reversed(range(len(self._last))):
            begun, since, _ = self._last[index]
            if begun.level is level:
                self._last[index] = (begun, since, now)
                break

    def is_above(self, level: lines.Level) -> bool:
        return level in self._since

    def seconds_above(self, level: lines.Level, now: float) -> float:
        """In all; the crossing that lasts is counted until now."""
        since = self._since.get(level)
        return self._seconds[level] + (now - since if since is not None else 0.0)

    def last(self, now: float) -> list[messages.LineCrossing]:
        """Up to `NUM_KEPT`, the newest first."""
        return [
            messages.LineCrossing(
                level=crossing.level.value,
                ago_seconds=now - since,
                lasted_seconds=(now if until is None else until) - since,
                over=until is not None,
                pages_used=crossing.num_used,
            )
            for crossing, since, until in reversed(self._last)
        ]
