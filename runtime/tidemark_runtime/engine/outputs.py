"""The outputs that tell a request's end or a refusal, and what guesses brought; those of ordinary tokens are made where
the tokens are taken in, for speed."""

from __future__ import annotations

from tidemark_runtime.core import overload, sequence, speculation
from tidemark_runtime.engine import messages


def rejected(request_id: str, refusal: overload.Refusal) -> messages.SequenceOutput:
    """The only output of a request that was not taken, or had to go before its first turn."""
    return messages.SequenceOutput(
        request_id,
        (),
        (),
        messages.FinishReason.REJECTED,
        reject=refusal.reason,
        message=refusal.message,
        retry_after_seconds=refusal.retry_after_seconds,
    )


def ended(
    entry: sequence.Sequence, finish: messages.FinishReason, message: str = "", retry_after_seconds: float = 0.0
) -> messages.SequenceOutput:
    """The last output of `entry`, which ends without another token."""
    return messages.SequenceOutput(entry.id, (), (), finish, message=message, retry_after_seconds=retry_after_seconds)


def verified(found: speculation.Verified) -> messages.SequenceOutput:
    """The tokens of a step with guesses; with `finish` when they are the last ones."""
    entry, last = found.entry, found.token_ids[-1]
    finish: messages.FinishReason | None = None
    if last in entry.stop_ids:
        finish = messages.FinishReason.STOP
    elif len(entry.token_ids) >= entry.num_max_tokens:
        finish = messages.FinishReason.LENGTH
    stopped_by = last if finish is messages.FinishReason.STOP else None
    return messages.SequenceOutput(entry.id, found.token_ids, found.logprobs, finish, stopped_by)
