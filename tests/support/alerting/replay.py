"""Series of an alert's case, told to a real Prometheus as if its minutes passed now, only faster."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from alert_cases import made
from alerting import rule_clock

_SECONDS_COUNTER = "_seconds_total"
_TIMESTAMP = "_timestamp_seconds"
_CLUSTER = f'cluster="{made.PLACE["cluster"]}"'


@dataclass(frozen=True)
class Replay:
    """A case from its first step on."""

    series: made.Series
    step: str
    """Of the case, for example `1m`."""
    factor: float
    """How much faster than written."""
    cluster: str
    """Instead of the cluster that all cases have, so that they do not meet."""
    begins_at_step: float = 0.0
    began: float = field(default_factory=time.time)

    @property
    def is_over(self) -> bool:
        """All its steps have passed."""
        steps = max((len(values) for values in self.series.values()), default=0)
        return self._case_seconds(time.time()) > steps * rule_clock.seconds(self.step)

    def _case_seconds(self, now: float) -> float:
        return self.begins_at_step * rule_clock.seconds(self.step) + (now - self.began) * self.factor

    def lines(self, now: float) -> Iterator[str]:
        """Samples at the time `now`, Unix seconds. They carry their time: then a scrape that fails is a sample less,
        and not the end of all series."""
        step = rule_clock.seconds(self.step)
        case_seconds = self._case_seconds(now)
        for selector, values in self.series.items():
            value = value_at(values, case_seconds / step)
            if value is not None:
                name = selector.partition("{")[0]
                shown = self._as_now(name, value, now - case_seconds)
                yield f"{selector.replace(_CLUSTER, self._own_cluster)} {shown!r} {int(now * 1000)}\n"

    @property
    def _own_cluster(self) -> str:
        return f'cluster="{self.cluster}"'

    def _as_now(self, name: str, value: float, case_epoch: float) -> float:
        if name.endswith(_SECONDS_COUNTER):
            return value / self.factor  # seconds that pass are shorter, too: a share of time stays a share
        if name.endswith(_TIMESTAMP):
            return value + case_epoch  # a case's clock begins at 0
        return value


def value_at(values: made.Values, position: float) -> float | None:
    """Between two steps what rises rises evenly; after the last one it goes on as before."""
    index = math.floor(position)
    if index >= len(values) - 1:
        return _after(values, position)
    here, following = values[index], values[index + 1]
    if here is None or following is None or following < here:
        return here
    return here + (following - here) * (position - index)


def _after(values: made.Values, position: float) -> float | None:
    last, before = values[-1], values[-2] if len(values) > 1 else values[-1]
    if last is None:
        return None
    slope = last - before if before is not None and last >= before else 0.0
    return last + slope * (position - (len(values) - 1))


@dataclass
class World:
    """What the exporter tells at the moment; replaced as a whole."""

    replays: Mapping[str, Replay] = field(default_factory=dict)

    def text(self, factor: float) -> bytes:
        """All that passes so much faster, as Prometheus scrapes it."""
        now, replays = time.time(), [replay for replay in self.replays.values() if replay.factor == factor]
        return "".join(line for replay in replays for line in replay.lines(now)).encode()
