"""The lines of memory use at which behaviour changes. Each is crossed upwards at its level and left some way below."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidemark_runtime import config


class Level(StrEnum):
    QUEUE = "queue"
    """New requests wait."""
    PREEMPT = "preempt"
    """A waiting request may displace a running one of lower priority."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A line was crossed, or left."""

    level: Level
    above: bool
    num_used: int
    num_pages: int
    ratio: float
    """Where the line is; for `above=False` the lower level at which it was left."""


class Line:
    """One level of use, with hysteresis."""

    def __init__(self, level: Level, ratio: float, hysteresis: float) -> None:
        self.level = level
        self._ratio = ratio
        self._hysteresis = hysteresis
        self.above = False

    def move(self, ratio: float, hysteresis: float) -> None:
        """A hot change; whether it is crossed is found out at the next look."""
        self._ratio, self._hysteresis = ratio, hysteresis

    def look(self, num_used: int, num_pages: int) -> Crossing | None:
        """Compare with what is used now; something when that crossed the line."""
        at = self._ratio - self._hysteresis if self.above else self._ratio
        # At the level counts as above, so that a line at 1.0 is crossed by a full slab; an empty slab is never above.
        is_above = num_used > 0 and num_used >= at * num_pages
        if is_above == self.above:
            return None
        self.above = is_above
        return Crossing(self.level, is_above, num_used, num_pages, at)


class Lines:
    """Both of them, and the crossings that nobody has asked for yet."""

    def __init__(self, settings: config.SchedulerConfig) -> None:
        hysteresis = settings.watermark_hysteresis
        self._queue = Line(Level.QUEUE, settings.queue_watermark, hysteresis)
        self._preempt = Line(Level.PREEMPT, settings.preempt_watermark, hysteresis)
        self._crossings: list[Crossing] = []

    def move(self, settings: config.SchedulerConfig) -> None:
        """A hot change; whether they are crossed is found out at the next look."""
        self._queue.move(settings.queue_watermark, settings.watermark_hysteresis)
        self._preempt.move(settings.preempt_watermark, settings.watermark_hysteresis)

    def is_above(self, level: Level) -> bool:
        """Whether that line is crossed."""
        return self._queue.above if level is Level.QUEUE else self._preempt.above

    def look(self, num_used: int, num_pages: int) -> None:
        """Compare with what is used now."""
        for line in (self._queue, self._preempt):
            crossing = line.look(num_used, num_pages)
            if crossing is not None:
                self._crossings.append(crossing)

    def take_crossings(self) -> list[Crossing]:
        """Lines that were crossed or left since the last call."""
        taken, self._crossings = self._crossings, []
        return taken
