"""What is measured, cut into items that each take seconds to minutes: made of text and tokens alone, no torch.

An item is the unit of the journal: a run that was stopped repeats at most one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_runtime import errors
from tidemark_runtime.evaluation import contracts, haystack, prose
from tidemark_runtime.text import text_model

TEXT, GREEDY, RETRIEVAL, EXTRACTION = "text", "greedy", "retrieval", "extraction"
PARTS = (TEXT, GREEDY, RETRIEVAL, EXTRACTION)
_LEAST_WINDOW = 16
_LEAST_HAYSTACK = 400
_PROMPT_TOKENS = 64
_LANES = 4
"""Prompts that are continued together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    parts: tuple[str, ...] = PARTS
    text_tokens: int = 4096
    """Tokens whose distributions are compared."""
    window_tokens: int = 1024
    """The text is cut into pieces of so many: errors grow with the context, time with its square."""
    prompts: int = 8
    continuation_tokens: int = 32
    lengths: tuple[int, ...] = (512, 2048, 8192)
    """Tokens of the texts in which facts are looked for."""
    contracts: int = 3
    """Of each language."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Text:
    """What perplexity and KL are measured on."""

    name: str
    pieces: tuple[tuple[str, str], ...]
    """(label, text): the languages of the made one, or one piece."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256("\0".join(text for _, text in self.pieces).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class WindowItem:
    """Consecutive tokens of the text."""

    key: str
    token_ids: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class GreedyItem:
    """Prompts that are continued side by side."""

    key: str
    prompts: tuple[tuple[int, ...], ...]
    continuation_tokens: int

    @property
    def num_tokens(self) -> int:
        return sum(len(prompt) + self.continuation_tokens for prompt in self.prompts)


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows [start, end) of a sequence are the answer."""

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AskItem:
    """A text and questions after it, each followed by its right answer.

    An answer counts as found where every token of it is the most likely one after those before: greedy decoding would
    then have written it, and one pass over the text is enough for all questions.
    """

    key: str
    token_ids: tuple[int, ...]
    asked: tuple[Asked, ...]

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


Item = WindowItem | GreedyItem | AskItem


def made_text(encoder: text_model.TextModel, plan: Plan) -> Text:
    """Half English, half Chinese: prose with contracts in it, long enough for the plan."""
    pieces = []
    for language in prose.LANGUAGES:
        share = plan.text_tokens // len(prose.LANGUAGES) + plan.window_tokens
        parts = prose.sentences(language, plan.seed, lambda text: _count(encoder, text), share)
        half = len(parts) // 2
        contract = contracts.make(language, plan.seed + 100).text
        whole = [prose.joined(language, parts[:half]), contract, prose.joined(language, parts[half:])]
        pieces.append((language, "\n\n".join(whole)))
    return Text("made", tuple(pieces))


def read_text(path: Path, key: str = "--text") -> Text:
    """A file of the site. Raises ConfigError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = errors.Problem(key, str(path), "a readable file of UTF-8 text", f"It says: {error}")
        raise errors.ConfigError([problem]) from error
    return Text(path.name, ((path.stem, text),))


def windows(text: Text, encoder: text_model.TextModel, num_tokens: int, window: int) -> list[WindowItem]:
    """`num_tokens` of the text, evenly of its pieces. Raises ConfigError where the text is too short for one window."""
    found: list[WindowItem] = []
    share, num_read = num_tokens // len(text.pieces), 0
    for label, words in text.pieces:
        ids = encoder.encode(words, add_special=True)[:share]
        num_read += len(ids)
        found += [
            WindowItem(f"{label}-{index}", tuple(ids[start : start + window]))
            for index, start in enumerate(range(0, len(ids), window))
            if len(ids) - start >= min(window, _LEAST_WINDOW)
        ]
    total = sum(item.num_tokens for item in found)
    if total < min(num_tokens, window) // 2:
        expected = f"a text of at least {min(num_tokens, window)} tokens, better {num_tokens}"
        raise errors.ConfigError([errors.Problem("--text", f"{text.name}, {num_read} tokens", expected)])
    return found


def build(plan: Plan, text: Text, encoder: text_model.TextModel, max_context_tokens: int) -> dict[str, list[Item]]:
    """Part -> items. Raises ConfigError where the plan does not fit the model's context or the text is too short."""
    window = min(plan.window_tokens, max_context_tokens)
    pieces = windows(text, encoder, plan.text_tokens, window)
    found: dict[str, list[Item]] = {}
    if TEXT in plan.parts:
        found[TEXT] = list(pieces)
    if GREEDY in plan.parts:
        found[GREEDY] = list(_greedy(plan, pieces, max_context_tokens))
    if RETRIEVAL in plan.parts:
        found[RETRIEVAL] = list(_retrieval(plan, encoder, max_context_tokens))
    if EXTRACTION in plan.parts:
        found[EXTRACTION] = list(_extraction(plan, encoder, max_context_tokens))
    return found


def _greedy(plan: Plan, pieces: Sequence[WindowItem], max_context_tokens: int) -> Iterator[GreedyItem]:
    """Beginnings of evenly spread stretches of the text."""
    tokens = [token for piece in pieces for token in piece.token_ids]
    length = min(_PROMPT_TOKENS, max_context_tokens - plan.continuation_tokens, len(tokens))
    if length < 1:
        expected = f"fewer than the model's context of {max_context_tokens} tokens"
        raise errors.ConfigError([errors.Problem("--continuation", plan.continuation_tokens, expected)])
    last = len(tokens) - length
    starts = [round(index * last / max(1, plan.prompts - 1)) for index in range(plan.prompts)]
    prompts = [tuple(tokens[start : start + length]) for start in starts]
    for index in range(0, len(prompts), _LANES):
        yield GreedyItem(f"{index}", tuple(prompts[index : index + _LANES]), plan.continuation_tokens)


def _retrieval(plan: Plan, encoder: text_model.TextModel, max_context_tokens: int) -> Iterator[AskItem]:
    lengths = [length for length in plan.lengths if length <= max_context_tokens]
    if not lengths or min(lengths) < _LEAST_HAYSTACK:
        expected = f"lengths of {_LEAST_HAYSTACK} tokens to the model's context, {max_context_tokens}"
        remedy = "Change --lengths, or leave the part out: --parts text,greedy"
        raise errors.ConfigError([errors.Problem("--lengths", ", ".join(map(str, plan.lengths)), expected, remedy)])
    for length in lengths:
        for language in prose.LANGUAGES:
            hay = haystack.make(language, length, plan.seed, lambda text: _count(encoder, text))
            pairs = [(f"{length}/{question.depth:g}", question.before, question.answer) for question in hay.questions]
            yield _fitting(_ask(f"{language}-{length}", language, hay.text, pairs, encoder), max_context_tokens)


def _extraction(plan: Plan, encoder: text_model.TextModel, max_context_tokens: int) -> Iterator[AskItem]:
    for index in range(plan.contracts):
        for language in prose.LANGUAGES:
            made = contracts.make(language, plan.seed + index)
            pairs = [(name, before, value) for name, (before, value) in made.fields.items()]
            yield _fitting(_ask(f"{language}-{index}", language, made.text, pairs, encoder), max_context_tokens)


def _fitting(item: AskItem, max_context_tokens: int) -> AskItem:
    if item.num_tokens <= max_context_tokens:
        return item
    expected = f"a model whose context holds a text of {item.num_tokens} tokens"
    remedy = "Leave the part out: --parts text,greedy"
    problem = errors.Problem("MODEL", f"{max_context_tokens} tokens of context", expected, remedy)
    raise errors.ConfigError([problem])


def _ask(
    key: str, language: str, context: str, pairs: Sequence[tuple[str, str, str]], encoder: text_model.TextModel
) -> AskItem:
    """`pairs`: (label, what stands before the answer, the answer)."""
    space = " " if language == "en" else ""
    ids = encoder.encode(context, add_special=False)
    if encoder.bos_id is not None and encoder.encode("", add_special=True)[:1] == [encoder.bos_id]:
        ids = [encoder.bos_id, *ids]
    asked = []
    for label, before, answer in pairs:
        ids += encoder.encode(before, add_special=False)
        start = len(ids)
        ids += encoder.encode(space + answer, add_special=False)
        asked.append(Asked(f"{language}/{label}", start, len(ids)))
        ids += encoder.encode("\n", add_special=False)
    return AskItem(key, tuple(ids), tuple(asked))


def _count(encoder: text_model.TextModel, text: str) -> int:
    return len(encoder.encode(text, add_special=False))
