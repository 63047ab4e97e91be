"""What is said of an engine process that is gone."""

from __future__ import annotations

import signal

import pytest

from tidemark_runtime.engine import client


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "ran out of memory"),
        (-signal.SIGBUS, "SIGBUS: most often a file of a model was cut off or written over"),
        (-signal.SIGSEGV, "ended by signal SIGSEGV"),
        (3, "ended with exit code 3"),
    ],
)
def test_an_exit_is_told_with_its_usual_cause(code: int, words: str) -> None:
    assert words in client.describe_exit(code)
