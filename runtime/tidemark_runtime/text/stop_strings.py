"""Finds stop strings in streamed text and withholds nothing but what could still become one.

Which stop wins does not depend on how the text was cut into deltas: the one that is complete first. Where several
are complete with the same character, the longest of them, so that the text before it is the shortest.

Each stop is followed by a Knuth-Morris-Pratt automaton (SIAM J. Comput. 6(2), 1977), so that a character costs
amortized constant time for each stop and nothing is ever looked at twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_runtime import errors


class Stops:
    """Stop strings, prepared once a request and shared by its choices: `n` of them cost no more than one.

    Raises InvalidRequest for an empty stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not stop for stop in stops):
            raise errors.InvalidRequest("stop: got an empty string, expected strings of one character or more")
        # Longest first: of those that are complete with the same character, the longest is met first.
        ordered = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self.tables = tuple((stop, _fallbacks(stop)) for stop in ordered)
        """Each stop with the automaton's fallbacks; not changed by matching."""


class StopMatcher:
    """One stream of text, looked through for `stops`. Raises what `Stops` raises."""

    def __init__(self, stops: Stops | Sequence[str], include_stop: bool = False) -> None:
        prepared = stops if isinstance(stops, Stops) else Stops(stops)
        self._automata = [_Automaton(stop, fallback) for stop, fallback in prepared.tables]
        self._include_stop = include_stop
        self._withheld = ""
        self._matched: str | None = None

    @property
    def matched(self) -> str | None:
        """The stop that was found, if any."""
        return self._matched

    def add(self, text: str) -> tuple[str, str | None]:
        """Take the next piece of text; returns (text that may be shown now, the stop that was found or None).

        After a match the stream is over: more text changes nothing and shows nothing.
        """
        if self._matched is not None or not self._automata:
            return ("" if self._matched else text), self._matched
        for index, character in enumerate(text):
            found = self._step(character)
            if found is not None:
                return self._finish(self._withheld + text[: index + 1], found), found
        return self._withhold(self._withheld + text), None

    def flush(self) -> str:
        """The text ends here: what was withheld was no stop after all."""
        rest, self._withheld = self._withheld, ""
        for automaton in self._automata:
            automaton.length = 0
        return rest

    def _step(self, character: str) -> str | None:
        found: str | None = None
        for automaton in self._automata:
            if automaton.step(character) and found is None:
                found = automaton.stop
        return found

    def _finish(self, seen: str, found: str) -> str:
        self._matched = found
        self._withheld = ""
        return seen if self._include_stop else seen[: len(seen) - len(found)]

    def _withhold(self, seen: str) -> str:
        num_withheld = max(automaton.length for automaton in self._automata)
        border = len(seen) - num_withheld
        self._withheld = seen[border:]
        return seen[:border]


class _Automaton:
    """How much of one stop string the text ends with."""

    __slots__ = ("_fallback", "length", "stop")

    def __init__(self, stop: str, fallback: Sequence[int]) -> None:
        self.stop = stop
        self.length = 0
        """Length of the longest prefix of `stop` that the text seen so far ends with."""
        self._fallback = fallback

    def step(self, character: str) -> bool:
        """Take one character; True when it completes the stop, after which there is no next step."""
        stop, length = self.stop, self.length
        while length and stop[length] != character:
            length = self._fallback[length - 1]
        if stop[length] == character:
            length += 1
        self.length = length
        return length == len(stop)


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of `stop`, the length of its longest proper prefix that is also its suffix."""
    table = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = table[length - 1]
        if stop[index] == stop[length]:
            length += 1
        table[index] = length
    return table
