"""Encodes long texts without stalling other threads and without needing a gigabyte.

Measured with tokenizers 0.23 on 5 MB of text: `encode` holds the interpreter lock for all of its 8 seconds;
`encode_batch_fast` lets go of it (4 seconds, of which the lock is held for the 50 ms that making the list of ids
takes), but needs some 400 bytes of memory a token while it runs. So a long text is cut where a cut cannot
change a token, and encoded part by part: between words for a byte-level tokenizer, for a sentencepiece-style one where
no token of its vocabulary reaches across (`joins`). A stretch without such a place is encoded whole up to a limit, and
refused beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import tokenizers
from tokenizers import pre_tokenizers as library

from tidemark_runtime import errors
from tidemark_runtime.text import joins, pre_tokenizers, token_table

PART_CHARACTERS = 32_768
"""A part is at least this long; short enough to keep memory and list-making small."""
MAX_PART_BYTES = 1_000_000
"""Longest stretch, as UTF-8, that is encoded whole. Measured: it takes 45 to 115 MB and two to four seconds."""
_WINDOW_CHARACTERS = 65_536

Place = Callable[[str, int, int], int | None]
"""(text, start, end) -> the first index from start to before end that the text may be cut in front of."""

# Before the places that these find, every pattern of pre_tokenizers.KNOWN_PATTERNS ends one word and begins the next,
# also at the end of a text, and NFC joins nothing: a single space, what follows a single line break, punctuation after
# a letter or digit. U+180E is white space to some libraries only.
_CUT = re.compile(
    r"(?<=[^\s\u180e])(?= [^\s\u180e])|(?<=[^\s\u180e]\n)(?=[^\s\u180e/])"
    r"|(?<=[A-Za-z0-9\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])(?=[,.;+=\"()!?，。、；：！？])"
)
_CUT_CHARACTERS = ' \n,.;+="()!?，。、；：！？'


class Encoder:
    """Text to ids, without begin and end tokens. Safe to use from several threads at once."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._place: Place = _no_place
        self._guard = ""
        if can_cut(tokenizer):
            self._place = word_place
        elif (known := joins.read(tokenizer)) is not None:
            self._place, self._guard = known.place, joins.GUARD
        self._num_guard_ids = len(self._ids(self._guard))

    def encode(self, text: str) -> list[int]:
        """Special tokens written out in `text` become those tokens.

        Raises InvalidRequest for half a surrogate pair, and for a stretch over MAX_PART_BYTES that cannot be cut.
        """
        first, *later = cut(text, self._place)
        ids = self._ids(first)
        for part in later:
            ids += self._ids(self._guard + part)[self._num_guard_ids :]
        return ids

    def _ids(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        except (UnicodeEncodeError, TypeError) as error:
            raise errors.InvalidRequest(
                "the text holds half of a UTF-16 surrogate pair, expected valid Unicode"
            ) from error
        return ids


def word_place(text: str, start: int, end: int) -> int | None:
    """Between two words of a byte-level tokenizer."""
    for look_from in range(start, min(end, len(text)), _WINDOW_CHARACTERS):
        # In windows that overlap: one search of the whole text would hold the interpreter lock too long.
        place = _CUT.search(text, look_from, min(look_from + _WINDOW_CHARACTERS + 4, end))
        if place is not None:
            return place.start()
    return None


def _no_place(_text: str, _start: int, _end: int) -> int | None:
    return None


def cut(text: str, place: Place = word_place) -> Iterator[str]:
    """`text` in parts of PART_CHARACTERS or more, cut where tokens cannot change; without such a place, whole.

    Raises InvalidRequest when a part would have more than MAX_PART_BYTES.
    """
    start = 0
    while len(text) - start > PART_CHARACTERS:
        found = place(text, start + PART_CHARACTERS, start + MAX_PART_BYTES)
        if found is None:
            break
        yield _bounded(text[start:found], start)
        start = found
    yield _bounded(text[start:], start)


def _bounded(part: str, start: int) -> str:
    size_bytes = len(part.encode(errors="surrogatepass"))
    if size_bytes > MAX_PART_BYTES:
        raise errors.InvalidRequest(
            f"the text has, from character {start + 1} on, {size_bytes} bytes without a place where it can be divided "
            f"for tokenizing, expected at most {MAX_PART_BYTES}. Put spaces or line breaks in, or send less at once"
        )
    return part


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
