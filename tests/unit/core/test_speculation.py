"""What steps with guesses teach, where the scheduler and its memory have no say in it."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import config
from tidemark_runtime.core import decoding, draft, memory, sequence, speculation, step_plan, step_time

PLAIN_SECONDS = 0.01


def made(method: str = "draft") -> speculation.Speculation:
    times = step_time.StepTime()
    for num in range(1, 40):
        times.observe(step_time.Work(num % 4 + 1, 0, 0, 0), PLAIN_SECONDS)
    settings = config.SpeculativeConfig(method=method, tokens=4, draft_model="small" if method == "draft" else None)
    blocks = memory.Memory(num_slots=2, num_pages=8, block_size=16, num_host_pages=0, prefix_caching=False)
    return speculation.Speculation(settings, decoding.DecodeSet(16), blocks, times)


def book(guessing: speculation.Speculation, seconds: float, num_guesses: int, num_tokens: int) -> None:
    ended: Any = type("Ended", (), {"state": sequence.State.FINISHED, "id": "a"})()
    done = draft.InFlight(step_time.Work(1, 0, 0, 0), (), [], (), 0, (ended,))
    outcome = step_plan.Verified(num_guesses, num_tokens)
    tokens = (0,) * num_tokens
    guessing.book(done, step_plan.StepResult(1, tokens, (None,) * num_tokens, seconds, verified=(outcome,)), 2)


def test_steps_in_which_the_draft_model_only_catches_up_count_in_the_gain_and_set_no_price() -> None:
    guessing = made()
    price = guessing._price.seconds(PLAIN_SECONDS)
    book(guessing, 2 * PLAIN_SECONDS, num_guesses=0, num_tokens=1)
    assert guessing.gain == pytest.approx(0.5, rel=0.01)
    assert guessing._price.seconds(PLAIN_SECONDS) == price
    assert guessing.active > 0.0
    book(guessing, 2 * PLAIN_SECONDS, num_guesses=3, num_tokens=4)
    assert guessing.gain > 1.0
    assert guessing._price.seconds(PLAIN_SECONDS) > price


def _entry(name: str, state: sequence.State) -> Any:
    return type("Entry", (), {"id": name, "state": state, "num_max_tokens": 100})()


def test_there_are_never_more_indexes_than_slots() -> None:
    """Who lost its pages keeps what was learnt of its guesses, and gets an index again when it runs."""
    guessing = made("ngram")
    first, second = _entry("a", sequence.State.RUNNING), _entry("b", sequence.State.RUNNING)
    known = guessing._guesser(first)
    index = known.index
    assert index is not None
    assert guessing._guesser(second).index is not None
    assert guessing._guesser(first).index is index
    first.state = sequence.State.WAITING
    third = guessing._guesser(_entry("c", sequence.State.RUNNING))
    assert third.index is not None
    assert known.index is None
    assert guessing._guessers["b"].index is not None
    guessing._guessers["b"].entry.state = sequence.State.FINISHED
    first.state = sequence.State.RUNNING
    assert guessing._guesser(first) is known
    assert known.index is not None
    assert [guesser.index is not None for guesser in guessing._guessers.values()] == [True, False, True]


def test_a_draft_model_needs_no_index() -> None:
    assert made()._guesser(_entry("a", sequence.State.RUNNING)).index is None
