"""A reason goes through a log and comes out as it went in."""

from __future__ import annotations

import pytest

from tidemark_runtime import errors
from tidemark_runtime.contract import reasons
from tidemark_runtime.server import listening


@pytest.mark.parametrize("reason", reasons.Reason)
def test_what_is_written_is_read(reason: reasons.Reason) -> None:
    log = f"ready: at http://h\n{reasons.write(reason, 'a: b (c)')}\nlevel=WARNING closed\n"
    assert reasons.read(log) == reasons.LastWords(reason.value, "a: b (c)")


def test_several_lines_become_one() -> None:
    text = reasons.write(reasons.Reason.CONFIG_INVALID, "2 problems\nport: got 0\n  host: got 1")
    assert text.splitlines() == [
        "tidemark serve: ConfigInvalid: 2 problems",
        "  port: got 0",
        "  host: got 1",
    ]
    assert reasons.read(f"{text}\nlater") == reasons.LastWords("ConfigInvalid", "2 problems; port: got 0; host: got 1")


def test_the_last_words_count() -> None:
    first, last = (reasons.write(reason, "x") for reason in (reasons.Reason.DOES_NOT_FIT, reasons.Reason.ENGINE_DIED))
    found = reasons.read(f"{first}\n{last}\n")
    assert found is not None
    assert found.reason == "EngineDied"


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n",
        "tidemark serve: it broke",
        "tidemark serve: modelNotFound: x",
        "see tidemark serve: ModelNotFound: x",
        "ModelNotFound: x",
    ],
)
def test_anything_else_is_no_reason(log: str) -> None:
    assert reasons.read(log) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.ModelNotFound, "ModelNotFound"),
        (errors.UnsupportedModel, "UnsupportedModel"),
        (errors.CorruptModel, "CorruptModel"),
        (errors.CapacityError, "DoesNotFit"),
        (errors.ConfigError, "ConfigInvalid"),
        (errors.EngineDead, "EngineDied"),
        (listening.ListenError, "AddressUnavailable"),
        (MemoryError, "OutOfMemory"),
        (ZeroDivisionError, "EngineFailed"),
    ],
)
def test_every_error_that_ends_an_engine_has_a_reason(error: type[Exception], reason: str) -> None:
    assert reasons.of_error(error.__name__) == reason
