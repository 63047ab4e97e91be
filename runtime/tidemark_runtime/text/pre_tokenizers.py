"""How text is cut into words before byte pairs are merged, by the name a GGUF file gives it (`tokenizer.ggml.pre`).

A wrong cut gives slightly wrong tokens and a slightly worse model without any error, so a name that is not in this
table is refused. Sources: the tokenizer.json files of the models that the names stand for, and llama.cpp's table of
the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from tidemark_runtime import errors

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""What ByteLevel(use_regex=True) does, written out."""
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KNOWN_PATTERNS = frozenset({GPT_2, LLAMA_3, QWEN_2, TEKKEN})
"""Patterns that `encoding` knows safe places to cut for."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The rules that come with one name."""

    patterns: tuple[str, ...]
    """Applied one after the other; each match becomes a word of its own."""
    single_digits: bool = False
    """Digits are cut apart before the patterns."""
    composes: bool = False
    """Text is brought to Unicode form NFC first."""
    whole_words: bool = False
    """A word that is a token is taken as it is, whatever the merges say."""
    adds_bos: bool = False
    """What holds when the file does not say (`tokenizer.ggml.add_bos_token`)."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(list(self._steps()))

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composes else None

    def _steps(self) -> Iterator[pre_tokenizers.PreTokenizer]:
        if self.single_digits:
            yield pre_tokenizers.Digits(individual_digits=True)
        for pattern in self.patterns:
            yield pre_tokenizers.Split(tokenizers.Regex(pattern), behavior="isolated")
        yield pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


_GPT_2 = PreTokenizer((GPT_2,))
_SINGLE_DIGITS = PreTokenizer((GPT_2,), single_digits=True)
_LLAMA_3 = PreTokenizer((LLAMA_3,), whole_words=True, adds_bos=True)
_QWEN_2 = PreTokenizer((QWEN_2,), composes=True)

BY_NAME: Mapping[str, PreTokenizer] = MappingProxyType(
    {
        "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT_2, r"\p{N}+", r"[0-9][0-9][0-9]")),
        "gpt-2": _GPT_2,
        "smollm": _SINGLE_DIGITS,
        "starcoder": _SINGLE_DIGITS,
        "refact": _SINGLE_DIGITS,
        "llama-bpe": _LLAMA_3,
        "llama3": _LLAMA_3,
        "llama-v3": _LLAMA_3,
        "qwen2": _QWEN_2,
        "deepseek-r1-qwen": _QWEN_2,
        "tekken": PreTokenizer((TEKKEN,), whole_words=True, adds_bos=True),
    }
)


def named(name: object, origin: str) -> PreTokenizer:
    """The rules called `name` in the file `origin`; raises UnsupportedModel for others and for none."""
    if isinstance(name, str) and name in BY_NAME:
        return BY_NAME[name]
    known = ", ".join(sorted(BY_NAME))
    raise errors.UnsupportedModel(
        f"{origin}: tokenizer.ggml.pre: got {name!r}, expected one of {known}. Other rules would give wrong tokens "
        "without any error; use the model's Hugging Face folder, whose tokenizer.json holds its rules"
    )
