"""How many requests are in the server, by what degrade rules can tell apart."""

from __future__ import annotations

import collections
from collections.abc import Callable

from tidemark_runtime.server import standing


class Presence:
    """Running and waiting ones; `n` choices of one request count once."""

    def __init__(self) -> None:
        self._counts: collections.Counter[tuple[str, int]] = collections.Counter()

    def enter(self, who: standing.Standing) -> None:
        self._counts[who.key_name, who.priority] += 1

    def leave(self, who: standing.Standing) -> None:
        place = who.key_name, who.priority
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]

    def num_of(self, matches: Callable[[str, int], bool]) -> int:
        """Those whose key's name and priority match. Costs by kinds of requests, not by requests."""
        return sum(count for place, count in self._counts.items() if matches(*place))
