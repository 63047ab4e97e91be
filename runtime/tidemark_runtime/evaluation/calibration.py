"""Finds one scale for all tokens of a head, K and V apart, on a text, and says on another half of it what it clips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tidemark_runtime import errors
from tidemark_runtime.evaluation import configurations, items, reader
from tidemark_runtime.model import batch as batches
from tidemark_runtime.planning import fixed_scales, page_layout

FIT_TOKENS = 3000
"""Least tokens to find scales on. Of n tokens that kept within a bound, at most 3 / n of all that will come are beyond
it, with 95 % confidence (the rule of three: Hanley and Lippman-Hand 1983, JAMA 249:1743): 0.1 % with 3,000."""
EXACT = "float32"
"""What K and V are read in."""

Place = tuple[int, int, page_layout.Kind]
Progress = Callable[[str, int, int], None]
"""What is done, tokens done, tokens in all."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How scales are found."""

    dtype: str
    percentile: float = 100.0
    """Of the tokens' largest magnitudes in a head: what becomes the largest number of the dtype."""
    headroom: float = 1.0
    """Times that."""


@dataclass(frozen=True, slots=True)
class Clipping:
    """Of the half that the scales were not found on."""

    tokens: int
    elements: int
    clipped: int
    by_place: dict[Place, float]
    """Share of a head's elements that are clipped, of those with any."""

    @property
    def share(self) -> float:
        return self.clipped / self.elements

    def worst(self, count: int) -> list[tuple[Place, float]]:
        return sorted(self.by_place.items(), key=lambda item: -item[1])[:count]


@dataclass(frozen=True, slots=True)
class Found:
    """Scales, and what they do."""

    scales: dict[Place, float]
    fit_tokens: int
    clipping: Clipping


def halves(
    text: items.Text, windows: Sequence[items.WindowItem]
) -> tuple[list[items.WindowItem], list[items.WindowItem]]:
    """Every second window, and the others: both halves see every part of the text.

    Raises ConfigError where one is too short.
    """
    fit, held = list(windows[::2]), list(windows[1::2])
    tokens = [sum(window.num_tokens for window in half) for half in (fit, held)]
    if min(tokens) < FIT_TOKENS:
        raise errors.ConfigError(
            [
                errors.Problem(
                    "--text",
                    errors.Seen(
                        f"{text.name} with {tokens[0]} tokens in every second window and {tokens[1]} in the others"
                    ),
                    f"at least {FIT_TOKENS} in each half",
                    f"Scales are found on one half and checked on the other, and only {FIT_TOKENS} tokens that keep "
                    "within a bound make it likely (95 %) that at most 0.1 % of all that will come is beyond it. Give "
                    "more text of the kind that your users send, raise --tokens, or lower --window",
                )
            ]
        )
    return fit, held


def find(
    model: batches.Model, fit: Sequence[items.WindowItem], held: Sequence[items.WindowItem], wish: Wish, show: Progress
) -> Found:
    """Raises ConfigError where a head has nothing but zeros: no scale can be found for it."""
    total = sum(window.num_tokens for window in (*fit, *held))
    done = 0
    largest: dict[Place, list[torch.Tensor]] = {}
    for window in fit:
        for (layer, kind), heads in _read(model, window).items():
            for head, tokens in enumerate(heads.abs().amax(-1)):
                largest.setdefault((layer, head, kind), []).append(tokens)
        done += window.num_tokens
        show("finding scales", done, total)
    scales = {place: _scale(place, torch.cat(tokens), wish) for place, tokens in largest.items()}
    counts: dict[Place, int] = {}
    elements = 0
    for window in held:
        for (layer, kind), heads in _read(model, window).items():
            elements += heads.numel()
            for head, numbers in enumerate(heads.abs()):
                place = (layer, head, kind)
                counts[place] = counts.get(place, 0) + int((numbers > scales[place] * _largest(wish)).sum())
        done += window.num_tokens
        show("counting what is clipped", done, total)
    held_tokens, each = sum(window.num_tokens for window in held), elements // len(counts)
    shares = {place: count / each for place, count in counts.items() if count}
    clipping = Clipping(held_tokens, elements, sum(counts.values()), shares)
    return Found(scales, sum(window.num_tokens for window in fit), clipping)


def written(found: Found, model: str, weights: str, dtype: str, shape: page_layout.KVShape) -> fixed_scales.FixedScales:
    """What goes into the file: scales with seven digits, which a float32 has."""
    scales = {place: float(f"{scale:.7g}") for place, scale in found.scales.items()}
    return fixed_scales.FixedScales("", model, weights, dtype, shape, found.fit_tokens, scales)


def _read(model: batches.Model, window: items.WindowItem) -> dict[tuple[int, page_layout.Kind], torch.Tensor]:
    """(layer, kind) -> float32 [heads, tokens, head_dim]."""
    shape = model.spec.kv_shape
    layout = configurations.Configuration("", EXACT).layout(shape)
    one = reader.Reader(model, layout, window.num_tokens)
    for start, end in reader.chunks(window.num_tokens, model.spec.vocab_size):
        one.forward([reader.Chunk(0, start, window.token_ids[start:end])], [end - start - 1])
    return {
        (layer, kind): one.kept(layer, kind, window.num_tokens)
        for layer in range(shape.num_layers)
        for kind in page_layout.KINDS
    }


def _scale(place: Place, tokens: torch.Tensor, wish: Wish) -> float:
    """`tokens` float32 [tokens]: the largest magnitude of each."""
    ordered = tokens.sort().values
    rank = max(0, math.ceil(len(ordered) * wish.percentile / 100) - 1)
    scale = float(ordered[rank]) * wish.headroom / _largest(wish)
    if not fixed_scales.SMALLEST <= scale < math.inf:
        layer, head, kind = place
        seen = errors.Seen(f"{kind} of layer {layer}, head {head} with the largest magnitude {float(ordered[rank])}")
        remedy = "No scale can be found for it. Keep this head at 16 bits with a precision map, or give other text"
        raise errors.ConfigError([errors.Problem("--text", seen, "a finite number that is not 0", remedy)])
    return scale


def _largest(wish: Wish) -> float:
    largest = page_layout.KV_DTYPES[wish.dtype].largest
    if largest is None:
        raise errors.ConfigError(
            [errors.Problem("--kv-cache-dtype", wish.dtype, f"one of {', '.join(fixed_scales.fixable())}")]
        )
    return largest
