"""How far a configuration's next-token distributions are from the unquantized model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from tidemark_runtime.evaluation import figures


@dataclass(slots=True)
class Divergence:
    """Sums over tokens, so that parts can be added. Logarithms are natural: KL and losses in nats."""

    tokens: int = 0
    kl_sum: float = 0.0
    kl_max: float = 0.0
    agree: int = 0
    """Tokens whose most likely next token is the same."""
    predicted: int = 0
    """Tokens with a known next token."""
    loss_sum: float = 0.0
    """Of the configuration; perplexity is exp(loss_sum / predicted)."""
    base_loss_sum: float = 0.0
    by_position: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Bucket -> (tokens, sum of KL)."""

    def add(self, start: int, base: torch.Tensor, mine: torch.Tensor, following: Sequence[int]) -> None:
        """Log-probabilities float32 [rows, vocabulary] of the same rows; `following` the tokens after them.

        The last row of a text has none: `following` is then one shorter.
        """
        kl = (base.exp() * (base - mine)).sum(-1).clamp_min(0).double()
        self.tokens += len(kl)
        self.kl_sum += float(kl.sum())
        self.kl_max = max(self.kl_max, float(kl.max()))
        self.agree += int((base.argmax(-1) == mine.argmax(-1)).sum())
        if following:
            wanted = torch.tensor(following)[:, None]
            self.predicted += len(following)
            self.loss_sum -= float(mine[: len(following)].gather(1, wanted).double().sum())
            self.base_loss_sum -= float(base[: len(following)].gather(1, wanted).double().sum())
        for offset, value in enumerate(kl.tolist()):
            bucket = (start + offset) // figures.POSITION_BUCKET
            count, total = self.by_position.get(bucket, (0, 0.0))
            self.by_position[bucket] = (count + 1, total + value)

    def to_mapping(self) -> dict[str, object]:
        """Plain data for the journal."""
        return {
            "tokens": self.tokens,
            "klSum": self.kl_sum,
            "klMax": self.kl_max,
            "agree": self.agree,
            "predicted": self.predicted,
            "lossSum": self.loss_sum,
            "baseLossSum": self.base_loss_sum,
            "byPosition": {str(bucket): list(entry) for bucket, entry in self.by_position.items()},
        }


def log_probabilities(logits: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits, dim=-1)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens are the same from the beginning on."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
