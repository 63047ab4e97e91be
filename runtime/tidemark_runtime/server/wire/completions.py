"""`/v1/completions`: answers and chunks, which have one shape."""

from __future__ import annotations

import msgspec

from tidemark_runtime.server.wire import common


class Logprobs(msgspec.Struct, frozen=True):
    """Four lists of one length."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]
    """Where each token begins in the choice's text, in characters; never goes back."""


class Choice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Completion(msgspec.Struct, frozen=True):
    """A whole answer, or one chunk of a stream."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    service_tier: str
    usage: common.Usage | msgspec.UnsetType = msgspec.UNSET
    object: str = "text_completion"
