"""When each watch was last known to work: the age that liveness and `tidemark_operator_watch_age_seconds` show.

A watch proves itself by an event, or by being opened: the API server ends every watch after `watch_seconds`, so one
that is quiet is opened anew that often, and one that cannot be opened grows old. A list that was answered counts too.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.cluster import clock as clock_

Stream = tuple[str, str]
"""Kind and namespace (empty: all) of one watch."""


class Activity:
    """One moment a stream, and which streams have begun."""

    def __init__(self, kinds: Iterable[str], namespaces: Iterable[str], clock: clock_.Clock) -> None:
        self._clock = clock
        namespaces = tuple(namespaces)
        self._streams: tuple[Stream, ...] = tuple((kind, namespace) for kind in kinds for namespace in namespaces)
        self._last = dict.fromkeys(self._streams, clock.monotonic())
        self._missing = set(self._streams)

    def worked(self, kind: str, namespace: str) -> None:
        """Something was heard of this kind in this namespace."""
        for stream in ((kind, namespace), (kind, "")):
            if stream in self._last:
                self._last[stream] = self._clock.monotonic()

    def opened(self, kind: str, namespace: str) -> None:
        """A watch was accepted by the API server; its list came before it."""
        self.worked(kind, namespace)
        self._missing.discard((kind, namespace))

    @property
    def missing(self) -> frozenset[Stream]:
        """Those that were never opened so far."""
        return frozenset(self._missing)

    def ages(self) -> dict[str, float]:
        """Seconds, by kind; of several namespaces the oldest."""
        now = self._clock.monotonic()
        ages: dict[str, float] = {}
        for (kind, _), last in self._last.items():
            ages[kind] = max(ages.get(kind, 0.0), now - last)
        return ages

    def oldest(self) -> tuple[str, float]:
        """The kind that has been silent for longest, and for how many seconds."""
        ages = self.ages()
        kind = max(ages, key=ages.__getitem__)
        return kind, ages[kind]
