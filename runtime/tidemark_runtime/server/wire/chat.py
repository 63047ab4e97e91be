"""`/v1/chat/completions`: answers and chunks."""

from __future__ import annotations

import msgspec

from tidemark_runtime.server.wire import common


class AlternativeLogprob(msgspec.Struct, frozen=True):
    """A token that could have been chosen."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """The token that was chosen, and the most likely ones at its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeLogprob]


class Logprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class Message(msgspec.Struct, frozen=True):
    content: str
    role: str = "assistant"
    refusal: None = None


class Choice(msgspec.Struct, frozen=True):
    index: int
    message: Message
    finish_reason: str
    logprobs: Logprobs | None = None


class Completion(msgspec.Struct, frozen=True):
    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: common.Usage
    service_tier: str
    object: str = "chat.completion"


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Chunk(msgspec.Struct, frozen=True):
    """`usage` is left out except in the last chunk of a stream that asked for it."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    service_tier: str
    usage: common.Usage | msgspec.UnsetType = msgspec.UNSET
    object: str = "chat.completion.chunk"


ROLE = "assistant"
"""What the first delta of every choice says."""
