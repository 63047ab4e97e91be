"""Encodes long texts without stalling other threads and without needing a gigabyte.

Measured with tokenizers 0.23 on 5 MB of text: `encode` holds the interpreter lock for all of its 8 seconds;
`encode_batch_fast` lets go of it (4 seconds, of which the lock is held for the 50 ms that making the list of ids
takes), but needs some 400 bytes of memory a token while it runs. So a long text is cut where a cut cannot
change a token, and encoded part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tokenizers
from tokenizers import pre_tokenizers as library

from tidemark_runtime import errors
from tidemark_runtime.text import pre_tokenizers, token_table

PART_CHARACTERS = 32_768
"""A part is at least this long; short enough to keep memory and list-making small."""
_WINDOW_CHARACTERS = 65_536

# Between these two characters every pattern of pre_tokenizers.KNOWN_PATTERNS ends one word and begins the next,
# also at the end of a text, and NFC joins nothing.
_CUT = re.compile(
    r"(?<=[A-Za-z\u4e00-\u9fff])(?=[ \uff0c\u3002][A-Za-z\u4e00-\u9fff])|(?<=\S\n)(?=[A-Za-z\u4e00-\u9fff])"
)
_CUT_CHARACTERS = " \n\uff0c\u3002"


class Encoder:
    """Text to ids, without begin and end tokens. Safe to use from several threads at once."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._can_cut = can_cut(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Special tokens written out in `text` become those tokens. Raises InvalidRequest for half a surrogate pair."""
        ids: list[int] = []
        for part in cut(text) if self._can_cut else [text]:
            try:
                ids += self._tokenizer.encode_batch_fast([part], add_special_tokens=False)[0].ids
            except (UnicodeEncodeError, TypeError) as error:
                raise errors.InvalidRequest(
                    "the text holds half of a UTF-16 surrogate pair, expected valid Unicode"
                ) from error
        return ids


def cut(text: str) -> Iterator[str]:
    """`text` in parts of PART_CHARACTERS or more, cut where tokens cannot change; without such a place, whole."""
    start, look_from = 0, PART_CHARACTERS
    while look_from < len(text):
        # In windows: one search of the whole text would hold the interpreter lock too long.
        place = _CUT.search(text, look_from, look_from + _WINDOW_CHARACTERS)
        if place is None:
            look_from += _WINDOW_CHARACTERS - 4
            continue
        yield text[start : place.start()]
        start = place.start()
        look_from = start + PART_CHARACTERS
    yield text[start:]


def can_cut(tokenizer: tokenizers.Tokenizer) -> bool:
    """True when `cut` is known to be safe: a byte-level tokenizer with known rules and no odd added tokens."""
    normalizers = token_table.flattened(tokenizer.normalizer, "normalizers")
    return (
        all(part["type"] == "NFC" for part in normalizers)
        and _splits_as_known(tokenizer.pre_tokenizer)
        and not any(_reaches_over_cuts(token) for token in tokenizer.get_added_tokens_decoder().values())
    )


def _splits_as_known(pre_tokenizer: library.PreTokenizer | None) -> bool:
    parts = list(token_table.flattened(pre_tokenizer, "pretokenizers"))
    splits = False
    for part in parts:
        if part["type"] == "Split" and part["pattern"].get("Regex") in pre_tokenizers.KNOWN_PATTERNS:
            splits = splits or part["behavior"] == "Isolated"
        elif part["type"] == "ByteLevel" and not part["add_prefix_space"]:
            splits = splits or part["use_regex"]
        elif part["type"] != "Digits":
            return False
    return splits


def _reaches_over_cuts(token: tokenizers.AddedToken) -> bool:
    has_cut_character = any(character in _CUT_CHARACTERS for character in token.content)
    return has_cut_character or token.lstrip or token.rstrip or token.single_word
