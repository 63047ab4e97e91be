"""`/v1/tokenize`."""

from __future__ import annotations

import msgspec


class Tokens(msgspec.Struct, frozen=True):
    tokens: list[int]
    count: int
    max_context_tokens: int
