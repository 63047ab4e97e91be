"""The two formulas for a step's time, against sums done by hand."""

from __future__ import annotations

import dataclasses

import pytest

from tidemark_runtime.core import step_time
from tidemark_runtime.worker import step_cost

ROOFLINE = step_cost.RooflineCost(
    weights_bytes=1000,
    num_params=500,
    attention_flops_a_pair=8,
    kv_token_bytes=10.0,
    page_bytes=160,
    bandwidth=100.0,
    flops=1000.0,
    link_bandwidth=16.0,
    overhead_seconds=0.5,
)


def test_a_decode_reads_the_weights_once_and_its_context() -> None:
    found = ROOFLINE.seconds(step_time.Work(decodes=1, tokens_read=30), 0, 0)
    assert found.total == pytest.approx(0.5 + (1000 + 10 * (30 + 1)) / 100)
    assert found.copies == 0


def test_sharing_a_step_does_not_read_the_weights_again() -> None:
    one = ROOFLINE.seconds(step_time.Work(decodes=1, tokens_read=30), 0, 0)
    two = ROOFLINE.seconds(step_time.Work(decodes=2, tokens_read=60), 0, 0)
    assert two.total - one.total == pytest.approx(10 * 31 / 100)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    work = step_time.Work(prompt_tokens=40, pairs=820)
    assert ROOFLINE.seconds(work, 0, 0).total == pytest.approx(0.5 + (2 * 500 * 40 + 8 * 820) / 1000)


def test_a_chunk_reads_its_context_once() -> None:
    work = step_time.Work(prompt_tokens=1, pairs=101)
    without, with_ = (ROOFLINE.seconds(work, read, 0).total for read in (0, 100))
    assert with_ - without == pytest.approx(10 * 100 / 100)


def test_decodes_attend_to_what_they_read() -> None:
    fast_memory = dataclasses.replace(ROOFLINE, bandwidth=1e9)
    found = fast_memory.seconds(step_time.Work(decodes=3, tokens_read=100), 0, 0)
    assert found.total == pytest.approx(0.5 + (2 * 500 * 3 + 8 * 100) / 1000)


def test_copies_beside_the_computation_cost_what_is_longer() -> None:
    work = step_time.Work(decodes=1, tokens_read=30)  # 13.1 s; a page takes 10
    assert ROOFLINE.seconds(work, 0, 1) == ROOFLINE.seconds(work, 0, 0)
    found = ROOFLINE.seconds(work, 0, 2)
    assert found.copies == pytest.approx(20 - 13.1)
    assert found.total == pytest.approx(0.5 + 20)


def test_copies_after_the_computation_are_added() -> None:
    serial = dataclasses.replace(ROOFLINE, overlaps_copies=False)
    found = serial.seconds(step_time.Work(decodes=1, tokens_read=30), 0, 2)
    assert found.total == pytest.approx(0.5 + 13.1 + 20)
    assert found.copies == pytest.approx(20)


def test_a_step_of_copies_alone_reads_no_weights() -> None:
    assert ROOFLINE.seconds(step_time.Work(), 0, 3).total == pytest.approx(0.5 + 30)


def test_linear_is_the_sum_that_the_engine_fits() -> None:
    linear = step_cost.LinearCost(
        base=1.0, decode=0.1, prompt_token=0.01, token_read=0.001, pair=0.0001, page_copy_seconds=5.0
    )
    work = step_time.Work(decodes=2, prompt_tokens=3, tokens_read=4, pairs=5)
    found = linear.seconds(work, 100, 2)
    assert found.total == pytest.approx(1 + 0.2 + 0.03 + 0.004 + 0.0005 + 10)
    assert found.copies == 10.0
    fitted = step_time.StepTime()
    assert set(fitted.prices) == {"base", "decode", "promptToken", "tokenRead", "pair"}, "a profile has these names"
