"""How long a request may become now: what the worker was started for, or less where a hot setting says so."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from tidemark_runtime import config
from tidemark_runtime.engine import messages


@dataclass(frozen=True, slots=True)
class ContextLimit:
    """Both counts are of prompt and output together."""

    num_tokens: int
    num_request_tokens: int
    """The same, or what the whole slab holds where that is less."""
    since: int | None
    """Unix time from which on `model.maxContextTokens` says so; None: it says nothing, the model's own limit counts."""

    def __str__(self) -> str:
        """A sentence for a client."""
        if self.since is None:
            return f"This model's context length is {self.num_tokens} tokens, prompt and output together."
        moment = datetime.datetime.fromtimestamp(self.since, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"The context is limited to {self.num_tokens} tokens, prompt and output together "
            f"(model.maxContextTokens, in force since {moment})."
        )


def in_force(model: config.ModelConfig, ready: messages.EngineReady, since: int) -> ContextLimit:
    """`since`: Unix time at which `model.max_context_tokens` got its value. The engine has confirmed that it is no more
    than the worker's tables hold."""
    wanted = model.max_context_tokens
    num_tokens = ready.max_context_tokens if wanted is None else min(wanted, ready.max_context_tokens)
    return ContextLimit(num_tokens, min(num_tokens, ready.max_request_tokens), None if wanted is None else since)
