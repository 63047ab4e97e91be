"""Correctness beside throughput: greedy answers to a few fixed prompts, alone and then under load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec

from tidemark_runtime.loadtest import exchange, target

QUESTIONS = (
    "List the first ten prime numbers.",
    "Explain in three sentences why the sky is blue.",
    "Write a short letter that declines an invitation.",
    "Describe how bread is made, step by step.",
)
ANSWER_TOKENS = 32

Ask = Callable[[bytes], Awaitable[exchange.Exchange]]
"""Sends one body, which is not counted as load's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFigures:
    """Of one level."""

    asked: int
    answered: int
    identical: int
    """Of those answered, equal to the answer alone in every character."""
    different: tuple[str, ...]
    """The first difference of each other one, in words."""

    @property
    def identical_share(self) -> float | None:
        """Of those answered; None: none was."""
        return self.identical / self.answered if self.answered else None


def body(facts: target.Facts, endpoint: target.Endpoint, question: str) -> bytes:
    """Of one greedy request."""
    return msgspec.json.encode(
        {
            "model": facts.model,
            **target.spoken(endpoint, question),
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "seed": 0,
            "stream": True,
        }
    )


async def alone(ask: Ask, bodies: Sequence[bytes]) -> list[str]:
    """The answers, one after the other. Raises `target.NoAnswer`."""
    texts = []
    for one in bodies:
        found = await ask(one)
        if found.outcome is not exchange.Outcome.OK:
            raise target.NoAnswer(f"--check: a request alone ended as {found.outcome} ({found.code}): {found.message}")
        texts.append(found.text)
    return texts


async def under_load(ask: Ask, bodies: Sequence[bytes], wanted: Sequence[str], *, at_once: bool) -> CheckFigures:
    """Beside the load that runs. `at_once=False`: one after the other, where the load is being measured meanwhile."""
    found = await asyncio.gather(*(ask(one) for one in bodies)) if at_once else [await ask(one) for one in bodies]
    answered = [
        (question, one.text, text)
        for question, one, text in zip(QUESTIONS, found, wanted, strict=True)
        if one.outcome is exchange.Outcome.OK
    ]
    different = tuple(_difference(*entry) for entry in answered if entry[1] != entry[2])
    return CheckFigures(
        asked=len(bodies), answered=len(answered), identical=len(answered) - len(different), different=different
    )


def _difference(question: str, got: str, wanted: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), min(len(got), len(wanted)))
    return f"{question!r}: from sign {at} on {got[at : at + 20]!r} under load, {wanted[at : at + 20]!r} alone"
