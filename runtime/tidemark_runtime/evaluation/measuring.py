"""Measures one item: the unquantized model and every configuration, side by side over the same tokens.

What comes out is plain data of sums, for the journal: `figures` makes means of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tidemark_runtime.evaluation import configurations, divergence, items, reader
from tidemark_runtime.model import batch as batches

_WARM_UP_TOKENS = 48
Progress = Callable[[int], None]
"""Called with the tokens of the item that are done."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded model, and how its K and V are kept in turn."""

    model: batches.Model
    base: configurations.Configuration
    """Unquantized: what the others are compared with."""
    others: Sequence[configurations.Configuration]
    models: Mapping[str, batches.Model] = field(default_factory=dict)
    """Those of configurations that have other weights, by the names of the configurations."""

    def measure(self, item: items.Item, progress: Progress = lambda _tokens: None) -> dict[str, Any]:
        """`base` and `configurations` by name: what the item's kind measures, and the tokens and seconds it took."""
        with torch.inference_mode():
            if isinstance(item, items.WindowItem):
                return self._window(item, progress)
            if isinstance(item, items.GreedyItem):
                return self._greedy(item)
            return self._ask(item, progress)

    def warm_up(self) -> None:
        """The first steps of a process are slow, and would count against whoever runs first."""
        base, others = self._readers(_WARM_UP_TOKENS)
        for one in (base, *(others[name] for name in self.models)):
            for _rows_read in one.read([0] * _WARM_UP_TOKENS, wanted_from=_WARM_UP_TOKENS - 1):
                one.forward([reader.Chunk(0, _WARM_UP_TOKENS - 1, [0])], [0])

    def _readers(self, max_tokens: int, lanes: int = 1) -> tuple[reader.Reader, dict[str, reader.Reader]]:
        shape = self.model.spec.kv_shape
        base, *rest = (
            reader.Reader(
                *(self.models.get(configuration.name, self.model), configuration.layout(shape), max_tokens, lanes),
                scales=configuration.fixed_scales(shape),
            )
            for configuration in (self.base, *self.others)
        )
        return base, {other.name: one for other, one in zip(self.others, rest, strict=True)}

    def _window(self, item: items.WindowItem, progress: Progress) -> dict[str, Any]:
        base, readers = self._readers(item.num_tokens)
        found = {name: divergence.Divergence() for name in readers}
        reading = {name: one.read(item.token_ids) for name, one in readers.items()}
        for rows in base.read(item.token_ids):
            expected = divergence.log_probabilities(rows.logits)
            following = item.token_ids[rows.start + 1 : rows.start + 1 + len(expected)]
            for name, going in reading.items():
                mine = divergence.log_probabilities(next(going).logits)
                found[name].add(rows.start, expected, mine, following)
            progress(rows.start + len(expected))
        return {
            "base": _spent(base),
            "configurations": {name: {**sums.to_mapping(), **_spent(readers[name])} for name, sums in found.items()},
        }

    def _greedy(self, item: items.GreedyItem) -> dict[str, Any]:
        longest = max(len(prompt) for prompt in item.prompts) + item.continuation_tokens
        base, readers = self._readers(longest, len(item.prompts))
        expected = base.continue_greedily(item.prompts, item.continuation_tokens)
        found = {}
        for name, one in readers.items():
            mine = one.continue_greedily(item.prompts, item.continuation_tokens)
            same = [divergence.common_prefix(left, right) for left, right in zip(expected, mine, strict=True)]
            found[name] = {"same": same, "of": item.continuation_tokens, **_spent(one)}
        return {"base": _spent(base), "configurations": found}

    def _ask(self, item: items.AskItem, progress: Progress) -> dict[str, Any]:
        first = item.asked[0].start - 1
        wanted = [row for asked in item.asked for row in range(asked.start - 1, asked.end - 1)]
        base, readers = self._readers(item.num_tokens)
        expected = _rows(base, item, first, wanted, progress)
        answers = _answers(item, expected)
        found: dict[str, Any] = {}
        for name, one in readers.items():
            mine = _rows(one, item, first, wanted, progress)
            sums = divergence.Divergence()
            sums.add(first, expected, mine, ())
            entries = {
                label: {**entry, "same": entry["tokens"] == answers[label]["tokens"]}
                for label, entry in _answers(item, mine).items()
            }
            found[name] = {"answers": entries, "rows": sums.tokens, "klSum": sums.kl_sum, **_spent(one)}
        return {"base": {"answers": answers, **_spent(base)}, "configurations": found}


def _rows(
    one: reader.Reader, item: items.AskItem, first: int, wanted: Sequence[int], progress: Progress
) -> torch.Tensor:
    """Log-probabilities [len(wanted), vocabulary] of the rows that predict answers."""
    chosen = torch.tensor(wanted)
    found = []
    for rows in one.read(item.token_ids, wanted_from=first):
        mine = chosen[(chosen >= rows.start) & (chosen < rows.start + len(rows.logits))]
        found.append(divergence.log_probabilities(rows.logits[mine - rows.start]))
    progress(item.num_tokens)
    return torch.cat(found)


def _answers(item: items.AskItem, rows: torch.Tensor) -> dict[str, dict[str, Any]]:
    likeliest = rows.argmax(-1).tolist()
    found: dict[str, dict[str, Any]] = {}
    at = 0
    for asked in item.asked:
        tokens = [int(token) for token in likeliest[at : at + asked.end - asked.start]]
        at += len(tokens)
        right = tuple(tokens) == item.token_ids[asked.start : asked.end]
        found[asked.label] = {"right": right, "tokens": tokens}
    return found


def _spent(one: reader.Reader) -> Mapping[str, float]:
    return {
        "promptTokens": one.prompt.tokens,
        "promptSeconds": one.prompt.seconds,
        "decodeTokens": one.decode.tokens,
        "decodeSeconds": one.decode.seconds,
    }
