"""How an engine's terminal event becomes a wire value or an error, and what the metrics call it. One table each."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_runtime import errors
from tidemark_runtime.core import overload
from tidemark_runtime.engine import messages
from tidemark_runtime.server import bodies, context

FINISH_WORDS: Mapping[messages.FinishReason, str] = {
    messages.FinishReason.STOP: "stop",
    messages.FinishReason.LENGTH: "length",
}
"""Good ends: what `finish_reason` says."""


class TimedOut(errors.Overloaded):
    """It was accepted, and waited in vain for as long as anybody may."""

    code = "queue_timeout"


class DeadlinePassed(errors.Overloaded):
    """It was accepted, and the time that its client gave it ran out."""

    code = messages.RejectReason.DEADLINE.value


def error_of(output: messages.SequenceOutput) -> errors.TidemarkError | None:
    """The error a terminal event stands for; None for good ends and for events that are not terminal."""
    finish = output.finish
    if finish is None or finish in FINISH_WORDS:
        return None
    if finish is messages.FinishReason.REJECTED:
        return _rejection(output)
    if finish is messages.FinishReason.TIMEOUT:
        text = output.message or "The request waited too long for its turn."
        return TimedOut(text, retry_after_seconds=_retry_after(output))
    if finish is messages.FinishReason.DEADLINE:
        text = output.message or "The request's deadline has passed."
        return DeadlinePassed(text, retry_after_seconds=_retry_after(output))
    if finish is messages.FinishReason.ABORT:
        return errors.Draining("The server is shutting down and ended this request.")
    return errors.EngineError(output.message or "The engine failed while it worked on this request.")


def _rejection(output: messages.SequenceOutput) -> errors.TidemarkError:
    if output.reject is messages.RejectReason.NEVER_FITS:
        return errors.NeverFits(output.message or "The request needs more KV pages than there are.")
    if output.reject is messages.RejectReason.CONTEXT_LENGTH:
        # The limit was lowered while this one was on its way; else it would have been refused before.
        return errors.ContextTooLong(output.message or "The request is longer than the context may be.")
    if output.reject is messages.RejectReason.DRAINING:
        return errors.Draining(output.message or "The server is shutting down.")
    # 429 also for a deadline that would be missed (not 504): nothing was tried, and the same request may well be in
    # time after Retry-After.
    text = output.message or "The server has too much to do. Try again later."
    reason = output.reject or messages.RejectReason.QUEUE_FULL
    return errors.Overloaded(text, retry_after_seconds=_retry_after(output), code=reason.value)


def _retry_after(output: messages.SequenceOutput) -> float:
    """As the engine predicts it; where it does not, as soon as it would ever say."""
    return max(output.retry_after_seconds, overload.LEAST_RETRY_AFTER_SECONDS)


def label(error: Exception) -> tuple[str, str | None]:
    """For `requests_total{outcome}` and, where it was refused, `requests_rejected_total{reason}`."""
    if isinstance(error, bodies.ClientGone):
        return "aborted", None
    if isinstance(error, TimedOut):
        return "timeout", error.code
    if isinstance(error, DeadlinePassed):
        return "deadline", error.code
    if isinstance(error, errors.RequestError):
        return "rejected", error.code or "invalid"
    if isinstance(error, errors.Draining):
        return "rejected", "draining"
    if isinstance(error, context.Loading):
        return "rejected", "loading"
    return "failed", None
