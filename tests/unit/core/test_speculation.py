"""What steps with guesses teach, where the scheduler and its memory have no say in it."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_runtime import config
from tidemark_runtime.core import decoding, draft, memory, sequence, speculation, step_plan, step_time

PLAIN_SECONDS = 0.01


def made() -> speculation.Speculation:
    times = step_time.StepTime()
    for num in range(1, 40):
        times.observe(step_time.Work(num % 4 + 1, 0, 0, 0), PLAIN_SECONDS)
    settings = config.SpeculativeConfig(method="draft", tokens=4, draft_model="small")
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
