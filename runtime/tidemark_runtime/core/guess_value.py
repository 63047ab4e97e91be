"""Does a guess pay? What a right one saves, what checking one costs, how often they are right: all measured.

A step that checks k guesses of a sequence brings it 1 + (those accepted) tokens instead of 1. With B sequences that
decode in a step of T seconds, a token is worth T / B seconds: that much of a step it does not need later. With a
chance p that a guess is right when those before it were, k guesses bring p + p^2 + ... + p^k tokens (Leviathan et al.,
arXiv 2211.17192, section 3.3). So they pay as long as

    (p + ... + p^k) T / B  >  k x (what checking one more guess adds to the step)

T is what the fitted model of steps without guesses predicts (`step_time`), and what checking adds is the time that
steps with guesses took beyond that. In a small batch a step's time hardly grows with a few more tokens, T / B is
large, and guessing pays even when two of three are wrong; in a large batch every token costs its full price and nothing
does.
"""

from __future__ import annotations

from dataclasses import dataclass

_DECAY = 0.9
"""By so much the verifications before count less at each new one of a sequence: about ten are remembered."""
_PRIOR_WEIGHT = 2.0
"""What others' experience counts, in guesses."""
_FIRST_RATE = 0.5
"""Chance of a guess before any was checked."""
_MEMORY = 0.95
"""Of measured times of steps with guesses: about twenty are remembered."""
_FIRST_PRICE = 0.25
"""Of a guess, in tokens' worth, as long as none was measured; then it counts as one step does."""
_CORRECTED = 0.25
"""What a step without guesses counts in the correction: about the last four are remembered."""
_FURTHEST = 16.0
_DEAREST = 4.0
"""More than so many tokens' worth is a pause of the machine, and no price."""


class Acceptance:
    """How often guesses of one kind were right, the newer ones counting more."""

    __slots__ = ("_right", "_tested")

    def __init__(self) -> None:
        self._right = 0.0
        self._tested = 0.0

    def observe(self, num_guesses: int, num_right: int) -> None:
        """The first `num_right` of `num_guesses` were right. What comes after a wrong one was not tested."""
        self._right = self._right * _DECAY + num_right
        self._tested = self._tested * _DECAY + num_right + (num_right < num_guesses)

    def rate(self, others: float = _FIRST_RATE) -> float:
        """Chance that a guess is right when those before it were; near `others` while little is known."""
        return (self._right + _PRIOR_WEIGHT * others) / (self._tested + _PRIOR_WEIGHT)


@dataclass(frozen=True, slots=True)
class Stakes:
    """Of one step, in seconds; or in tokens' worth as long as nothing is known of times."""

    token: float
    """What a token is worth that need not be computed later."""
    guess: float
    """What checking one guess adds."""

    @property
    def may_pay(self) -> bool:
        """For a guess that is certain to be right."""
        return self.token > self.guess

    def best_count(self, rate: float, most: int) -> int:
        """How many guesses of this chance, 0 to `most`, win most: each as long as it wins more than it costs."""
        count, chance = 0, rate
        while count < most and chance * self.token > self.guess:
            count += 1
            chance *= rate
        return count


class Correction:
    """Of what steps are predicted to take without guesses, by the last ones that went without: the model of all steps
    forgets slowly, and a straight line through batches of every size is not exact at any."""

    def __init__(self) -> None:
        self.factor = 1.0

    def observe(self, seconds: float, predicted: float) -> None:
        """A step of decodes alone."""
        if seconds > 0.0 and predicted > 0.0:
            seen = max(1.0 / _FURTHEST, min(_FURTHEST, seconds / predicted))
            self.factor += _CORRECTED * (seen - self.factor)


class Price:
    """What a guess adds to the time of a step, newer steps counting more."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._weight = 0.0

    def observe(self, num_guesses: int, added_seconds: float, token_seconds: float) -> None:
        """A step with so many guesses took so much longer than it is predicted to take without; may be negative."""
        each = max(-token_seconds, min(_DEAREST * token_seconds, added_seconds / num_guesses))
        self._seconds = self._seconds * _MEMORY + each
        self._weight = self._weight * _MEMORY + 1.0

    def fade(self) -> None:
        """What is known is old: what comes next counts more."""
        self._seconds *= 0.5
        self._weight *= 0.5

    def seconds(self, token_seconds: float) -> float:
        """Of one guess, at least 0; near a share of `token_seconds`, what a token is worth, while little is known."""
        return max(0.0, self._seconds + _FIRST_PRICE * token_seconds) / (self._weight + 1.0)


class Gain:
    """How many times as fast as without guesses: tokens a step brought each sequence, less what guesses cost in time.

        ratio = (tokens / sequences that decoded)  x  min(1, predicted seconds without guesses / measured seconds)

    Sums over about the last twenty steps with guesses. A step that checks guesses computes all that one without does,
    so it is no faster: where the prediction is slower than what was measured, it is the prediction that is wrong, and
    the time counts as equal. So the ratio is never more than what steps brought, at most `speculative.tokens` + 1.
    """

    def __init__(self) -> None:
        self._tokens = self._seconds = self._plain_tokens = self._plain_seconds = 0.0

    def observe(self, num_tokens: int, seconds: float, num_plain: int, plain_seconds: float) -> None:
        """One step brought `num_tokens` to `num_plain` sequences that decode, one of them each without guesses."""
        self._tokens = self._tokens * _MEMORY + num_tokens
        self._seconds = self._seconds * _MEMORY + seconds
        self._plain_tokens = self._plain_tokens * _MEMORY + num_plain
        self._plain_seconds = self._plain_seconds * _MEMORY + plain_seconds

    @property
    def ratio(self) -> float:
        """1.0 before anything was measured."""
        if not (self._seconds and self._plain_seconds and self._plain_tokens):
            return 1.0
        return self._tokens / self._plain_tokens * min(1.0, self._plain_seconds / self._seconds)
