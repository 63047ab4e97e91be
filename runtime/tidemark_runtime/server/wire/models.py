"""`/v1/models`."""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True):
    id: str
    created: int
    max_context_tokens: int | None
    """Most tokens, prompt and output together, of one request, as is in force now; null while loading."""
    object: str = "model"
    owned_by: str = "tidemark"


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: str = "list"
