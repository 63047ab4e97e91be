"""Guesses are made as long as each wins more than it costs; prices and chances follow what was seen."""

from __future__ import annotations

import pytest

from tidemark_runtime.core import guess_value


@pytest.mark.parametrize(
    ("token", "guess", "rate", "expected"),
    [
        (1.0, 0.1, 0.9, 8),
        (1.0, 0.3, 0.5, 1),
        (1.0, 0.24, 0.5, 2),
        (1.0, 0.5, 0.5, 0),
        (1.0, 1.1, 1.0, 0),
        (1.0, 0.0, 0.5, 8),
        (1.0, 0.0, 0.0, 0),
        (0.0, 0.0, 0.9, 0),
    ],
)
def test_as_many_as_pay(token: float, guess: float, rate: float, expected: int) -> None:
    stakes = guess_value.Stakes(token, guess)
    assert stakes.best_count(rate, 8) == expected
    assert stakes.best_count(rate, min(expected, 3)) == min(expected, 3)


def test_the_sum_is_what_no_other_number_of_guesses_exceeds() -> None:
    for rate in (0.2, 0.5, 0.8, 0.95):
        for price in (0.05, 0.2, 0.6):
            gains = [sum(rate**k for k in range(1, n + 1)) - n * price for n in range(33)]
            count = guess_value.Stakes(1.0, price).best_count(rate, 32)
            assert gains[count] == pytest.approx(max(gains))


def test_what_comes_after_a_wrong_guess_is_no_evidence() -> None:
    few, many = guess_value.Acceptance(), guess_value.Acceptance()
    few.observe(1, 0)
    many.observe(8, 0)
    assert few.rate() == many.rate() < 0.5
    few.observe(4, 4)
    assert few.rate() > 0.5
    assert guess_value.Acceptance().rate(0.8) == pytest.approx(0.8), "others' experience, as long as there is none"


def test_newer_verifications_count_more() -> None:
    changed = guess_value.Acceptance()
    for _ in range(50):
        changed.observe(4, 4)
    for _ in range(20):
        changed.observe(4, 0)
    assert changed.rate() < 0.4


def test_a_price_is_learned_from_both_sides_and_one_pause_does_not_spoil_it() -> None:
    price = guess_value.Price()
    assert price.seconds(0.02) == pytest.approx(0.005), "a quarter of a token, before any is known"
    for _ in range(40):
        price.observe(4, 0.04, 0.02)
    assert price.seconds(0.02) == pytest.approx(0.01, rel=0.05)
    price.observe(4, 60.0, 0.02)
    assert price.seconds(0.02) < 0.015
    for _ in range(60):
        price.observe(2, -0.001, 0.02)
    assert price.seconds(0.02) < 0.001


def test_old_prices_give_way_to_few_new_ones() -> None:
    price = guess_value.Price()
    for _ in range(100):
        price.observe(1, 0.05, 0.02)
    for _ in range(6):
        price.fade()
        price.observe(1, 0.002, 0.02)
    assert price.seconds(0.02) < 0.01


def test_the_prediction_is_corrected_by_the_last_steps() -> None:
    correction = guess_value.Correction()
    for _ in range(12):
        correction.observe(0.03, 0.01)
    assert correction.factor == pytest.approx(3.0, rel=0.05)
    correction.observe(0.0, 0.01)
    correction.observe(0.01, 0.0)
    assert correction.factor == pytest.approx(3.0, rel=0.05)


def test_the_gain_is_of_tokens_a_second() -> None:
    gain = guess_value.Gain()
    assert gain.ratio == 1.0
    for _ in range(30):
        gain.observe(6, 0.02, 2, 0.01)
    assert gain.ratio == pytest.approx(1.5)


def test_the_gain_is_no_more_than_what_steps_brought() -> None:
    """A machine that was slow while the prediction was learned: steps with guesses seem faster than those without."""
    gain = guess_value.Gain()
    for _ in range(30):
        gain.observe(6, 0.01, 2, 0.04)
    assert gain.ratio == pytest.approx(3.0)


def test_noise_of_a_prediction_that_is_right_on_average_leaves_the_gain() -> None:
    gain = guess_value.Gain()
    for step in range(60):
        gain.observe(6, 0.02, 2, 0.01 if step % 2 else 0.03)
    assert gain.ratio == pytest.approx(3.0, rel=0.03)


def test_guesses_that_were_all_wrong_gain_less_than_nothing() -> None:
    gain = guess_value.Gain()
    gain.observe(2, 0.02, 2, 0.01)
    assert gain.ratio == pytest.approx(0.5)
