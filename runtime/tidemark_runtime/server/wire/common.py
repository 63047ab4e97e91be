"""Shapes that both generation endpoints share."""

from __future__ import annotations

from typing import Any

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """Body of every answer that is not 2xx, and of the one error event of a broken stream."""

    error: ErrorDetail


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one client request: each prompt counted once whatever `n` is, completions summed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """`cached_tokens`: prompt tokens whose KV was there already."""
    return Usage(prompt_tokens, completion_tokens, prompt_tokens + completion_tokens, {"cached_tokens": cached_tokens})


def encode(value: Any) -> bytes:
    """Strictly valid JSON. Raises `ValueError` for a lone surrogate in text."""
    return msgspec.json.encode(value)


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


DONE_EVENT = b"data: [DONE]\n\n"
