"""A draft model must have the same tokens under the same numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.text import vocabulary


@dataclass
class Tokens:
    """As much of a text model as is compared."""

    pieces: tuple[bytes, ...]

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def refuse(model: tuple[bytes, ...], draft: tuple[bytes, ...]) -> None:
    text: Any = Tokens(model)
    vocabulary.refuse_other(text, Tokens(draft), "small")  # type: ignore[arg-type]


def test_the_same_tokens_are_taken() -> None:
    refuse((b"a", b"bc", b""), (b"a", b"bc", b""))


@pytest.mark.parametrize("draft", [(b"a", b"bc"), (b"bc", b"a", b""), (b"ab", b"c", b""), (b"a", b"bc", b"", b"d")])
def test_other_tokens_are_refused_with_both_sizes_and_hashes(draft: tuple[bytes, ...]) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        refuse((b"a", b"bc", b""), draft)
    told = str(caught.value)
    assert f"small with {len(draft)} tokens (" in told
    assert "the tokenizer of the model: 3 tokens (" in told
