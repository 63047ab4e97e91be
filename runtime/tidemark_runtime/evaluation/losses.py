"""The KL of many configurations over the same text: the unquantized model is run once where memory allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from tidemark_runtime.evaluation import configurations, divergence, items, reader
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import page_layout

KEPT_NUMBERS = 1 << 28
"""Log-probabilities that are kept, at most: 1 GiB. Beyond, the model is run twice for each configuration."""


@dataclass(slots=True)
class TextLosses:
    """Implements `sensitivity.Losses`."""

    model: batches.Model
    windows: Sequence[items.WindowItem]
    base_dtype: str
    _expected: dict[str, list[torch.Tensor]] = field(default_factory=dict, init=False)
    """Window -> what the unquantized model says, chunk by chunk."""

    @property
    def shape(self) -> page_layout.KVShape:
        return self.model.spec.kv_shape

    @property
    def tokens(self) -> int:
        return sum(window.num_tokens for window in self.windows)

    def kl(self, configuration: configurations.Configuration) -> float:
        """Mean over the text, in nats."""
        sums = divergence.Divergence()
        layout, fixed = configuration.layout(self.shape), configuration.fixed_scales(self.shape)
        with torch.inference_mode():
            for window in self.windows:
                mine = reader.Reader(self.model, layout, window.num_tokens, scales=fixed).read(window.token_ids)
                for rows, expected in zip(mine, self._base(window), strict=True):
                    sums.add(rows.start, expected, divergence.log_probabilities(rows.logits), ())
        return sums.kl_sum / sums.tokens

    def _base(self, window: items.WindowItem) -> Iterator[torch.Tensor]:
        if window.key in self._expected:
            yield from self._expected[window.key]
            return
        kept = []
        keep = self.tokens * self.model.spec.vocab_size <= KEPT_NUMBERS
        layout = configurations.Configuration("unquantized", self.base_dtype).layout(self.shape)
        for rows in reader.Reader(self.model, layout, window.num_tokens).read(window.token_ids):
            found = divergence.log_probabilities(rows.logits)
            if keep:
                kept.append(found)
            yield found
        if keep:
            self._expected[window.key] = kept
