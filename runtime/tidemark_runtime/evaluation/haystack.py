"""Long made texts with facts at known depths, each asked for at the end."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime.evaluation import prose

DEPTHS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Share of the text that stands before a fact."""

_NAMES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "en": ("copper", "silver", "walnut", "marble", "velvet", "amber", "linen", "cedar"),
        "zh": ("铜门", "银柜", "石室", "木箱", "铁塔", "竹楼", "花厅", "水阁"),
    }
)
_FACTS: Mapping[str, str] = MappingProxyType(
    {"en": "The code of the {name} vault is {code}.", "zh": "{name}的密码是{code}。"}
)
_ASKED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "en": ("\n\nThe codes named above:\n", "The code of the {name} vault is"),
        "zh": ("\n\n上文提到的密码：\n", "{name}的密码是"),
    }
)
_SPARE_TOKENS = 16
"""Texts that are put together may have some tokens more than their parts."""


@dataclass(frozen=True, slots=True)
class Question:
    """One fact."""

    depth: float
    before: str
    """What the answer follows."""
    answer: str


@dataclass(frozen=True, slots=True)
class Haystack:
    """A text with facts in it, and what is asked."""

    language: str
    text: str
    questions: tuple[Question, ...]


def make(language: str, num_tokens: int, seed: int, count: prose.Count) -> Haystack:
    """A text that has, with its questions and answers, at most `num_tokens` tokens, if the facts alone leave room."""
    chance = random.Random(f"haystack {language} {num_tokens} {seed}")
    names = chance.sample(_NAMES[language], len(DEPTHS))
    codes = [str(number) for number in chance.sample(range(10_000, 99_999), len(DEPTHS))]
    heading, before = _ASKED[language]
    questions = [
        Question(*entry) for entry in zip(DEPTHS, [before.format(name=name) for name in names], codes, strict=True)
    ]
    room = sum(count(f"{question.before} {question.answer}\n") for question in questions) + _SPARE_TOKENS
    parts = prose.sentences(language, seed + 1, count, num_tokens)
    text = _with_facts(language, parts, names, codes) + heading
    while parts and (excess := count(text) + room - num_tokens) > 0:
        share = excess / (excess + num_tokens)
        parts = parts[: min(len(parts) - 1, int(len(parts) * (1 - share)))]
        text = _with_facts(language, parts, names, codes) + heading
    chance.shuffle(questions)
    return Haystack(language, text, tuple(questions))


def _with_facts(language: str, parts: Sequence[str], names: Sequence[str], codes: Sequence[str]) -> str:
    facts: dict[int, list[str]] = {}
    for depth, name, code in zip(DEPTHS, names, codes, strict=True):
        facts.setdefault(int(depth * len(parts)), []).append(_FACTS[language].format(name=name, code=code))
    mixed: list[str] = []
    for index, part in enumerate([*parts, ""]):
        mixed += [*facts.get(index, ()), part]
    return prose.joined(language, [part for part in mixed if part])
