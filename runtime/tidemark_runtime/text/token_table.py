"""What each token stands for, as bytes, read off a tokenizer once.

Two spellings are in use. Byte-level vocabularies (GPT-2 and after) write each byte as one printable character.
Sentencepiece-style ones write text as it is, a space as U+2581, and a byte that has no token as `<0xE8>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers

from tidemark_runtime import errors

SPACE_MARK = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Bytes and kind of every token."""

    pieces: tuple[bytes, ...]
    """[vocab_size]; special tokens have the bytes of their text; ids that no token has are empty."""
    texts: tuple[str, ...]
    """[vocab_size]; the vocabulary's own spelling."""
    special_ids: frozenset[int]
    """Control tokens: never part of the text shown."""
    drops_leading_space: bool
    """Decoding drops one space at the beginning of a text, because encoding put it there."""


def build(tokenizer: tokenizers.Tokenizer, origin: str) -> TokenTable:
    """Read the table off `tokenizer`; `origin` names it in messages.

    Raises UnsupportedModel when it decodes in a way we do not know.
    """
    parts = _decoder_parts(tokenizer)
    kinds = {part["type"] for part in parts}
    is_byte_level = "ByteLevel" in kinds
    if not is_byte_level and not kinds & {"ByteFallback", "Metaspace"}:
        seen = ", ".join(sorted(kinds)) or "none"
        raise errors.UnsupportedModel(
            f"{origin}: the tokenizer's decoder ({seen}) is not supported, expected ByteLevel, Metaspace or "
            "ByteFallback"
        )
    added = tokenizer.get_added_tokens_decoder()
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    size = max(vocab.values(), default=-1) + 1
    texts = [""] * size
    for text, token_id in vocab.items():
        texts[token_id] = text
    spelled = _byte_level_bytes if is_byte_level else _marked_bytes
    pieces = tuple(text.encode() if token_id in added else spelled(text) for token_id, text in enumerate(texts))
    special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
    return TokenTable(pieces, tuple(texts), special_ids, any(_drops_space(part) for part in parts))


def byte_to_character() -> dict[int, str]:
    """The alphabet of byte-level vocabularies: printable Latin-1 stands for itself, the rest for U+0100 and up.

    Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), its published encoder.
    """
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in itself}
    others = (byte for byte in range(0x100) if byte not in alphabet)
    alphabet.update({byte: chr(0x100 + index) for index, byte in enumerate(others)})
    return alphabet


# Shifts each character of the alphabet to the Latin-1 character of its byte, so that translating is two C calls.
_TO_LATIN_1: Mapping[int, int] = {ord(character): byte for byte, character in byte_to_character().items()}


def _byte_level_bytes(text: str) -> bytes:
    if any(ord(character) not in _TO_LATIN_1 for character in text):
        return text.encode()
    return text.translate(_TO_LATIN_1).encode("latin-1")


def _marked_bytes(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE_MARK, " ").encode()


def _decoder_parts(tokenizer: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder's steps as tokenizer.json would describe them."""
    return list(flattened(tokenizer.decoder, "decoders"))


def flattened(component: Any, members_key: str) -> Iterator[dict[str, Any]]:
    """A component of a tokenizer as its steps, as tokenizer.json describes them; nothing for None."""
    if component is None:
        return
    state = json.loads(component.__getstate__())
    stack = [state]
    while stack:
        part = stack.pop()
        if part["type"] == "Sequence":
            stack.extend(reversed(part[members_key]))
        else:
            yield part


def _drops_space(part: dict[str, Any]) -> bool:
    if part["type"] == "Strip":
        return bool(part.get("content") == " " and part.get("start", 0) > 0)
    return bool(part["type"] == "Metaspace" and part.get("prepend_scheme", "always") != "never")
