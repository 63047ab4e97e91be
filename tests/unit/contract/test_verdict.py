from __future__ import annotations

import math

import msgspec
import pytest

from tidemark_runtime.contract import verdict

ONE = verdict.Verdict(
    configuration="int8 + map", restart_hash="c", passed=False, mean_kl=0.5, perplexity_rise=0.1, tokens=64, over=["x"]
)


def test_what_is_written_is_read() -> None:
    assert verdict.read(verdict.write(ONE)) == ONE


def test_it_fits_into_a_termination_message_however_much_is_over() -> None:
    long = verdict.Verdict(
        configuration="int8",
        restart_hash="c",
        passed=False,
        mean_kl=1,
        perplexity_rise=1,
        tokens=1,
        over=["界" * 3000] * 9,
    )
    text = verdict.write(long)
    assert len(text.encode()) <= verdict.MAX_BYTES
    assert verdict.read(text) is not None


@pytest.mark.parametrize("text", ["", "Traceback", "{}", '{"format":"tidemark.verdict/2"}', "\ud800"])
def test_other_last_words_are_no_verdict(text: str) -> None:
    assert verdict.read(text) is None


@pytest.mark.parametrize("figure", [math.nan, math.inf])
def test_a_figure_that_is_no_number_is_read_as_none(figure: float) -> None:
    found = verdict.read(verdict.write(msgspec.structs.replace(ONE, mean_kl=figure)))
    assert found is not None
    assert (found.mean_kl, found.perplexity_rise, found.over) == (None, 0.1, ["x"])
