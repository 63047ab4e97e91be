"""Prompts of a wanted number of tokens, made of words, each different from its beginning on.

A prefix cache that had seen a prompt before would make a server look faster than it is. So the words are drawn from a
stream of each request's own, and of each run's own: the same seed gives the same lengths at the same moments, never the
same texts. Only the first `sharedPromptTokens` of a class are alike, as the workload says.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx
import msgspec

from tidemark_runtime.contract import http as paths
from tidemark_runtime.loadtest import target, words
from tidemark_runtime.simulation import senders

Count = Callable[[str], Awaitable[int | None]]
"""Tokens of a text; None where the server does not say."""

_FEW, _MANY = 32, 288
"""Words of the two requests that show what one word costs, where nothing counts tokens."""
_LEAST_WORDS = 64
"""Fewer words of one token each than that would make prompts too much alike."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How many tokens words make."""

    words: tuple[str, ...]
    overhead_tokens: int
    """Of a prompt beside its words: chat template, lead-in."""
    tokens_per_word: float
    how: str
    """For the report: how this was found."""

    def num_words(self, tokens: int) -> int:
        """For a prompt of so many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))


class Prompts:
    """The texts of one run."""

    def __init__(self, measure: Measure, salt: str) -> None:
        """`salt`: of this run, so that its texts are new to the server."""
        self.measure = measure
        self._salt = salt

    def text(self, level: int, request: senders.Request) -> str:
        """Of a request of the level with this index; the same for each of its tries."""
        kind, measure = request.kind, self.measure
        num = measure.num_words(request.num_prompt_tokens)
        num_shared = min(num, measure.num_words(kind.shared_tokens)) if kind.shared_tokens else 0
        shared = random.Random(f"{self._salt}/{kind.name}")
        own = random.Random(f"{self._salt}/{level}/{request.number}")
        chosen = shared.choices(measure.words, k=num_shared) + own.choices(measure.words, k=num - num_shared)
        return " ".join((words.LEAD_IN, *chosen))


async def measure(http: httpx.AsyncClient, endpoint: target.Endpoint, model: str, key: str | None) -> Measure:
    """Ask the server: its tokenizer where it has one, else what two small requests are charged.

    Raises `target.NoAnswer`.
    """

    async def of_text(text: str) -> int | None:
        return await _tokenized(http, key, {"model": model, "prompt": text, "add_special_tokens": False})

    async def of_prompt(text: str) -> int | None:
        return await _tokenized(http, key, {"model": model, **target.spoken(endpoint, text)})

    async def charged(text: str) -> int | None:
        return await target.prompt_tokens(http, endpoint, model, key, text)

    exact = await _by_tokenizer(of_text, of_prompt)
    return exact if exact is not None else await _by_usage(charged)


async def _by_tokenizer(of_text: Count, of_prompt: Count) -> Measure | None:
    lead_in = await of_text(words.LEAD_IN)
    if lead_in is None:
        return None
    single = await _single(words.WORDS, of_text, lead_in)
    if len(single) < _LEAST_WORDS:
        return None
    whole = await of_prompt(" ".join((words.LEAD_IN, *single)))
    if whole is None:
        return None
    how = f"exact: {len(single)} words of one token each, by the server's own tokenizer"
    return Measure(tuple(single), whole - len(single), 1.0, how)


async def _single(group: Sequence[str], of_text: Count, lead_in: int) -> list[str]:
    """Those of the words that are one token each."""
    count = await of_text(" ".join((words.LEAD_IN, *group)))
    if count is not None and count - lead_in == len(group):
        return list(group)
    if len(group) == 1 or count is None:
        return []
    middle = len(group) // 2
    return await _single(group[:middle], of_text, lead_in) + await _single(group[middle:], of_text, lead_in)


async def _by_usage(charged: Count) -> Measure:
    few = await charged(" ".join((words.LEAD_IN, *words.WORDS[:_FEW])))
    many = await charged(" ".join((words.LEAD_IN, *words.WORDS[:_MANY])))
    if few is None or many is None or many <= few:
        return Measure(words.WORDS, 0, 1.0, "guessed: one token a word; the server neither counts nor tells tokens")
    per_word = (many - few) / (_MANY - _FEW)
    how = f"estimated: {per_word:.3f} tokens a word, by what two requests were charged; the server counts no tokens"
    return Measure(words.WORDS, max(0, round(few - _FEW * per_word)), per_word, how)


async def _tokenized(http: httpx.AsyncClient, key: str | None, body: dict[str, object]) -> int | None:
    answer = await target.question(http, "POST", paths.TOKENIZE_PATH, key, body)
    if answer.status_code != 200:
        return None
    try:
        return msgspec.json.decode(answer.content, type=_Count).count
    except msgspec.DecodeError:
        return None


class _Count(msgspec.Struct):
    count: int
