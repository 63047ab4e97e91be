"""From measurements to figures: means, rises and shares, each with speed and memory beside it. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_runtime.evaluation import items

POSITION_BUCKET = 64
"""Tokens of the context that `kl_by_position` takes together."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second while this part was measured; None where nothing of the kind ran."""

    prompt: float | None
    decode: float | None


@dataclass(frozen=True, slots=True)
class TextFigures:
    """Next-token distributions on the text. KL is of the configuration from the unquantized model, in nats."""

    tokens: int
    mean_kl: float
    max_kl: float
    perplexity: float
    base_perplexity: float
    perplexity_rise: float
    """Ratio: 0.01 is one per cent."""
    argmax_agreement: float
    kl_by_position: tuple[tuple[int, float], ...]
    """(first token of a bucket, mean KL)."""
    speed: Speed
    base_speed: Speed


@dataclass(frozen=True, slots=True)
class GreedyFigures:
    """Continuations of prompts, both written greedily."""

    prompts: int
    tokens: int
    identical: float
    """Share of prompts with the same whole continuation."""
    same_tokens: float
    """Mean share of a continuation before it differs."""
    speed: Speed
    base_speed: Speed


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    """One group of questions: a language and a length and depth, or a language and a field."""

    label: str
    questions: int
    right: int
    base_right: int
    same: int
    """Answers that are the unquantized model's, token by token, right or wrong."""


@dataclass(frozen=True, slots=True)
class AskedFigures:
    """Retrieval, or extraction."""

    questions: int
    right: float
    base_right: float
    same: float
    mean_kl: float
    """Over the tokens of the answers."""
    groups: tuple[AnswerFigures, ...]
    speed: Speed
    base_speed: Speed


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration. Parts that were not measured are None."""

    name: str
    dtype: str
    map: Mapping[str, Any] | None
    """The precision map, as rules."""
    kv_token_bytes: float
    """Of a full page, alignment and scales included."""
    text: TextFigures | None
    greedy: GreedyFigures | None
    retrieval: AskedFigures | None
    extraction: AskedFigures | None
    weights: str | None = None
    """`model.quantization` of its weights; None: those of the measure."""
    weights_bytes: int = 0
    """In memory."""


Measured = Mapping[str, Sequence[Mapping[str, Any]]]
"""Part -> what was measured of its items."""


def parts_of(name: str, measured: Measured) -> dict[str, Any]:
    """Keyword arguments of `Figures` for the configuration `name`."""
    found: dict[str, Any] = dict.fromkeys(items.PARTS)
    for part, entries in measured.items():
        pairs = [(entry["configurations"][name], entry["base"]) for entry in entries]
        if part == items.TEXT:
            found[part] = _text(pairs)
        elif part == items.GREEDY:
            found[part] = _greedy(pairs)
        else:
            found[part] = _asked(pairs)
    return found


Pairs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]


def _text(pairs: Pairs) -> TextFigures:
    mine = [pair[0] for pair in pairs]
    tokens, predicted = _sum(mine, "tokens"), _sum(mine, "predicted")
    loss, base_loss = _sum(mine, "lossSum") / predicted, _sum(mine, "baseLossSum") / predicted
    return TextFigures(
        tokens=int(tokens),
        mean_kl=_sum(mine, "klSum") / tokens,
        max_kl=max(entry["klMax"] for entry in mine),
        perplexity=math.exp(loss),
        base_perplexity=math.exp(base_loss),
        perplexity_rise=math.expm1(loss - base_loss),
        argmax_agreement=_sum(mine, "agree") / tokens,
        kl_by_position=_by_position(entry["byPosition"] for entry in mine),
        **_speeds(pairs),
    )


def _by_position(parts: Iterable[Mapping[str, Sequence[float]]]) -> tuple[tuple[int, float], ...]:
    sums: dict[int, tuple[float, float]] = {}
    for part in parts:
        for bucket, (count, total) in part.items():
            before = sums.get(int(bucket), (0.0, 0.0))
            sums[int(bucket)] = (before[0] + count, before[1] + total)
    return tuple((bucket * POSITION_BUCKET, total / count) for bucket, (count, total) in sorted(sums.items()))


def _greedy(pairs: Pairs) -> GreedyFigures:
    shares = [same / mine["of"] for mine, _ in pairs for same in mine["same"]]
    return GreedyFigures(
        prompts=len(shares),
        tokens=sum(mine["of"] * len(mine["same"]) for mine, _ in pairs),
        identical=sum(share == 1.0 for share in shares) / len(shares),
        same_tokens=sum(shares) / len(shares),
        **_speeds(pairs),
    )


def _asked(pairs: Pairs) -> AskedFigures:
    groups: dict[str, list[int]] = {}
    for mine, base in pairs:
        for label, entry in mine["answers"].items():
            counts = groups.setdefault(label, [0, 0, 0, 0])
            for index, one in enumerate((True, entry["right"], base["answers"][label]["right"], entry["same"])):
                counts[index] += int(one)
    questions, right, base_right, same = (sum(counts[index] for counts in groups.values()) for index in range(4))
    mine_only = [pair[0] for pair in pairs]
    return AskedFigures(
        questions=questions,
        right=right / questions,
        base_right=base_right / questions,
        same=same / questions,
        mean_kl=_sum(mine_only, "klSum") / _sum(mine_only, "rows"),
        groups=tuple(AnswerFigures(label, *counts) for label, counts in groups.items()),
        **_speeds(pairs),
    )


def _speeds(pairs: Pairs) -> dict[str, Speed]:
    return {"speed": _speed([mine for mine, _ in pairs]), "base_speed": _speed([base for _, base in pairs])}


def _speed(entries: Sequence[Mapping[str, Any]]) -> Speed:
    def rate(kind: str) -> float | None:
        seconds = _sum(entries, f"{kind}Seconds")
        return _sum(entries, f"{kind}Tokens") / seconds if seconds > 0 else None

    return Speed(rate("prompt"), rate("decode"))


def _sum(entries: Iterable[Mapping[str, Any]], name: str) -> float:
    return float(sum(entry[name] for entry in entries))
