"""Sizes and schedules."""

from __future__ import annotations

import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.api import cron, quantities


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1073741824", 2**30),
        ("24Gi", 24 * 2**30),
        ("8G", 8 * 10**9),
        ("500M", 500 * 10**6),
        ("128k", 128_000),
        ("1.5Gi", 3 * 2**29),
        ("2e9", 2 * 10**9),
        ("1E3", 1000),
        ("1E", 10**18),
        ("4Ki", 4096),
        ("1.", 1),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert quantities.to_bytes(text) == size


@pytest.mark.parametrize("text", ["", "Gi", "1.5", "0.1Ki", "1Zi", "1e", "1m", "٣Gi", "1Gi\n", "9Ei9", "1e99", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        quantities.to_bytes(text)


@given(number=st.integers(0, 2**40), unit=st.sampled_from(["", "k", "M", "Ki", "Mi"]))
def test_whole_numbers_are_exact(number: int, unit: str) -> None:
    factor = {"": 1, "k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20}[unit]
    assert quantities.to_bytes(f"{number}{unit}") == number * factor


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_a_value_error(text: str) -> None:
    try:
        said = str(quantities.to_bytes(text))
    except ValueError as error:
        said = str(error)
    assert said


@pytest.mark.parametrize(
    "schedule", ["0 3 * * 0", "*/5 * * * *", "0 0 1,15 * mon-fri", "59 23 31 dec 6", "0-30/10 * * * *", "@daily"]
)
def test_good_schedules(schedule: str) -> None:
    assert cron.problem(schedule) is None


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "5-1 * * * *",
     "a * * * *", "@reboot", "1,,2 * * * *", "*/ * * * *", "-1 * * * *",
     "0 3 * * 7", "0 3 * * 5-7", "0 0 30 2 *", "0 0 31 4,6,9,11 *"],
)  # fmt: skip
def test_bad_schedules(schedule: str) -> None:
    assert cron.problem(schedule)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("250m", "0.25"),
        ("2", "2"),
        ("0.5", "0.5"),
        ("1Gi", "1073741824"),
        ("1E", "1e18"),
        ("1e3", "1000"),
        ("100n", "1e-7"),
    ],
)
def test_amounts_are_read_as_an_api_server_writes_them(text: str, number: str) -> None:
    assert quantities.to_number(text) == decimal.Decimal(number)


@pytest.mark.parametrize("text", ["", "m", "1mm", "1 Gi", "1..2", "x", "1Gi2"])
def test_other_texts_are_no_amounts(text: str) -> None:
    with pytest.raises(ValueError, match="expected an amount"):
        quantities.to_number(text)
