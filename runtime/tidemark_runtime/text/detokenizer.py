"""Token ids to text, a few at a time, showing complete characters only.

A character may be spread over several tokens, so the work is done on bytes: each token's bytes go through an
incremental UTF-8 decoder, which keeps the bytes of an incomplete character until the rest arrives. A token costs the
same however long the text has become.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from tidemark_runtime.text import text_model

_LONGEST_CHARACTER_BYTES = 4
_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """The text of one sequence's generated tokens.

    The joined results of `add` and one `flush` are `text_model.decode` of the same ids, however they were cut, with
    one difference: what the prompt ends with counts. Bytes of a character that the prompt left incomplete are
    completed by the first generated token (or shown once as U+FFFD), and the space that a sentencepiece-style
    vocabulary drops at the beginning of a text is kept where the prompt had text already. Text of the prompt itself
    never comes out.
    """

    def __init__(
        self, model: text_model.TextModel, prompt_tail_ids: Sequence[int] = (), *, skip_special: bool = True
    ) -> None:
        """`prompt_tail_ids`: the prompt's ids, or as many of the last ones as there are (8 always suffice)."""
        self._model = model
        self._skipped: frozenset[int] = model.special_ids if skip_special else frozenset()
        self._decoder = _utf8_decoder(errors="replace")
        tail = _tail_bytes(model, prompt_tail_ids)
        self._drops_space = model.drops_leading_space and not tail
        self._decoder.decode(tail)

    def add(self, ids: Iterable[int]) -> str:
        """Take the next ids; returns the characters they complete, often none."""
        data = b"".join(self._model.token_bytes(token_id) for token_id in ids if token_id not in self._skipped)
        if self._drops_space and data:
            self._drops_space = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def flush(self) -> str:
        """No more ids: bytes that never became a character are shown as U+FFFD, once."""
        return self._decoder.decode(b"", final=True)


def _tail_bytes(model: text_model.TextModel, ids: Sequence[int]) -> bytes:
    """The prompt's last bytes, from a character's beginning on: those after the last special token, 4 or more if
    there are as many."""
    data = b""
    for token_id in reversed(ids):
        if token_id in model.special_ids:
            break
        data = model.token_bytes(token_id) + data
        if len(data) >= _LONGEST_CHARACTER_BYTES:
            break
    return data
