"""Stop strings: nothing at or after a stop is ever shown, nothing is withheld that cannot become one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime import errors
from tidemark_runtime.text import stop_strings

# Small alphabets, and stops that repeat themselves, so that overlaps and near misses happen all the time.
TEXTS = st.text(alphabet="aab語\U0001f600", max_size=40) | st.text(alphabet="ab", max_size=40)
STOPS = st.lists(
    st.text(alphabet="ab語\U0001f600", min_size=1, max_size=6) | st.sampled_from(["aab", "abab", "aaaab", "abaabb"]),
    max_size=4,
)
CUTS = st.lists(st.integers(0, 40), max_size=8)
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


def streamed(text: str, stops: list[str], cuts: list[int]) -> tuple[list[str], str | None]:
    """Returns the deltas, the flushed rest among them, and the stop found."""
    matcher = stop_strings.StopMatcher(stops)
    deltas: list[str] = []
    for piece in pieces_of(text, cuts):
        emit, matched = matcher.add(piece)
        deltas.append(emit)
        if matched is not None:
            return deltas, matched
    return [*deltas, matcher.flush()], None


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule in its plainest form: complete first, and of those complete at once the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@ANY_SPEED
@given(TEXTS, STOPS, CUTS)
def test_any_cut_shows_the_text_before_the_stop_and_no_more(text: str, stops: list[str], cuts: list[int]) -> None:
    """B001: streamed and not streamed agree, whatever the deltas were."""
    deltas, matched = streamed(text, stops, cuts)
    assert ("".join(deltas), matched) == expected(text, stops)


@ANY_SPEED
@given(TEXTS, STOPS, CUTS)
def test_no_more_is_withheld_than_a_true_prefix_of_a_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    """B003: what is withheld could still become a stop, and all before it has been shown."""
    matcher = stop_strings.StopMatcher(stops)
    shown = seen = ""
    for piece in pieces_of(text, cuts):
        emit, matched = matcher.add(piece)
        if matched is not None:
            return
        shown, seen = shown + emit, seen + piece
        withheld = seen[len(shown) :]
        assert seen.startswith(shown)
        assert withheld == "" or any(stop.startswith(withheld) and stop != withheld for stop in stops)


def test_b001_a_stop_over_several_tokens_never_leaks() -> None:
    """B001: no delta holds a character from the stop's beginning on."""
    matcher = stop_strings.StopMatcher([", B, C"])
    assert [matcher.add(piece) for piece in (" A", ",", " B", ",", " C", ", D")] == [
        (" A", None),
        ("", None),
        ("", None),
        ("", None),
        ("", ", B, C"),
        ("", ", B, C"),
    ]


def test_b003_a_stop_longer_than_the_answer_delays_nothing() -> None:
    """B003: text that cannot begin the stop comes at once."""
    matcher = stop_strings.StopMatcher(["zqzqzqzqzqzqzqzqzqzqzqzqzqzq"])
    assert [matcher.add(piece)[0] for piece in ("Hello", " there", "!")] == ["Hello", " there", "!"]
    assert matcher.flush() == ""


def test_withheld_text_comes_out_with_the_flush() -> None:
    matcher = stop_strings.StopMatcher(["END"])
    assert matcher.add("the EN") == ("the ", None)
    assert matcher.flush() == "EN"
    assert matcher.flush() == ""


def test_a_stop_is_found_after_a_near_miss() -> None:
    assert stop_strings.StopMatcher(["aab"]).add("xaaab") == ("xa", "aab")
    assert stop_strings.StopMatcher(["abaabb"]).add("abaabaabb") == ("aba", "abaabb")


def test_a_stop_inside_a_longer_one_wins_when_it_is_complete_first() -> None:
    assert stop_strings.StopMatcher(["abcd", "bc"]).add("xabcd") == ("xa", "bc")


def test_the_longest_of_those_complete_at_once_wins() -> None:
    assert stop_strings.StopMatcher(["c", "bc", "abc"]).add("xabc") == ("x", "abc")


def test_include_stop_shows_the_stop_and_nothing_after_it() -> None:
    matcher = stop_strings.StopMatcher(["END"], include_stop=True)
    assert matcher.add("the EN") == ("the ", None)
    assert matcher.add("D of it") == ("END", "END")
    assert matcher.matched == "END"
    assert matcher.add("more") == ("", "END")


def test_without_stops_everything_passes() -> None:
    matcher = stop_strings.StopMatcher([])
    assert matcher.add("text") == ("text", None)
    assert matcher.flush() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="empty string"):
        stop_strings.StopMatcher(["a", ""])
