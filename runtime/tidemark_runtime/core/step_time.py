"""How long a step takes, learned from the steps before. No constant of any machine or model is in here.

A step's time is taken to be a sum of non-negative prices:

    seconds = base
            + per decode        x sequences that decode
            + per prompt token  x prompt tokens
            + per token read    x KV tokens read by decodes (each decode reads its whole context)
            + per pair          x (prompt token, KV token) pairs of the prompts' attention

The prices are the least-squares solution under the condition that none is negative, over all steps so far, older ones
counting less and less. Found by coordinate descent on the normal equations, a sweep a step from the last solution (the
method of Franc, Hlavac and Navara, "Sequential coordinate-wise algorithm for the non-negative least squares problem",
2005). Without the condition, prices of things that always come together would be large and of opposite sign, and the
prediction for anything unusual absurd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY_STEPS = 2000
"""A step so many steps ago counts about a third (1/e): long enough for rare kinds of steps to be remembered, short
enough to follow a machine that becomes slower."""

_NUM_PRICES = 5


@dataclass(frozen=True, slots=True)
class Work:
    """What a step holds, as far as its time depends on it."""

    decodes: int = 0
    prompt_tokens: int = 0
    tokens_read: int = 0
    pairs: int = 0

    @property
    def amounts(self) -> tuple[float, ...]:
        return (1.0, self.decodes, self.prompt_tokens, self.tokens_read, self.pairs)


class StepTime:
    """Observe every step, ask for any."""

    def __init__(self) -> None:
        self._products = [[0.0] * _NUM_PRICES for _ in range(_NUM_PRICES)]
        self._targets = [0.0] * _NUM_PRICES
        self._scale = 1.0
        """What a new step counts; grows, so that the older ones need not be touched to count less."""
        self._prices = [0.0] * _NUM_PRICES
        self.num_observed = 0
        self.most_prompt_tokens = 0
        """In one step so far."""

    @property
    def prices(self) -> dict[str, float]:
        """Seconds: `base`, `decode`, `promptToken`, `tokenRead`, `pair`."""
        names = ("base", "decode", "promptToken", "tokenRead", "pair")
        return dict(zip(names, self._prices, strict=True))

    def observe(self, work: Work, seconds: float) -> None:
        """A step that held `work` took `seconds`."""
        self.num_observed += 1
        self.most_prompt_tokens = max(self.most_prompt_tokens, work.prompt_tokens)
        self._scale *= 1.0 + 1.0 / MEMORY_STEPS
        if self._scale > 1e100:
            self._shrink()
        amounts, scale = work.amounts, self._scale
        for index, amount in enumerate(amounts):
            if amount:
                weighted = amount * scale
                row = self._products[index]
                for other, value in enumerate(amounts):
                    row[other] += weighted * value
                self._targets[index] += weighted * seconds
        self._sweep()

    def seconds(self, work: Work) -> float:
        """Predicted; 0 before anything was observed."""
        return sum(price * amount for price, amount in zip(self._prices, work.amounts, strict=True))

    def prompt_seconds(self, num_tokens: int, context: int = 0) -> float:
        """What `num_tokens` more prompt tokens after `context` tokens add to a step that runs anyway."""
        pairs = num_tokens * context + num_tokens * (num_tokens + 1) // 2
        return self._prices[2] * num_tokens + self._prices[4] * pairs

    def prompt_tokens_within(self, seconds: float, work: Work, context: int) -> int:
        """How many tokens of one prompt, after `context` tokens of it, can be added to `work` so that the step is not
        predicted to take longer than `seconds`. Never more than twice what was ever tried: that much further a
        prediction is not trusted."""
        left = seconds - self.seconds(work)
        trusted = max(1, 2 * self.most_prompt_tokens - work.prompt_tokens)
        if left <= 0.0:
            return 0
        # `prompt_seconds` solved for its tokens: (pair / 2) n^2 + (token + pair (context + 1/2)) n = left. This form
        # of the root also stands for pair = 0.
        linear = self._prices[2] + self._prices[4] * (context + 0.5)
        root = linear + math.sqrt(linear * linear + 2.0 * self._prices[4] * left)
        if root <= 0.0:
            return trusted
        return min(trusted, int(2.0 * left / root))

    def _sweep(self) -> None:
        prices = self._prices
        for index, row in enumerate(self._products):
            own = row[index]
            if own > 0.0:
                others = sum(map(_times, row, prices)) - own * prices[index]
                prices[index] = max(0.0, (self._targets[index] - others) / own)

    def _shrink(self) -> None:
        factor = 1.0 / self._scale
        self._products = [[value * factor for value in row] for row in self._products]
        self._targets = [value * factor for value in self._targets]
        self._scale = 1.0


def _times(left: float, right: float) -> float:
    return left * right
