"""How an engine's terminal event becomes a wire value or an error, and what the metrics call it. One table each."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_runtime import errors
from tidemark_runtime.engine import messages
from tidemark_runtime.server import bodies, context

FINISH_WORDS: Mapping[messages.FinishReason, str] = {
    messages.FinishReason.STOP: "stop",
    messages.FinishReason.LENGTH: "length",
}
"""Good ends: what `finish_reason` says."""

QUEUE_RETRY_SECONDS = 2
"""Clients back off from there; the queue moves about that fast under overload."""


def error_of(output: messages.SequenceOutput, *, started: bool) -> errors.TidemarkError | None:
    """The error a terminal event stands for; None for good ends and for events that are not terminal.

    `started`: tokens came before, so the wait was not for a first turn.
    """
    finish = output.finish
    if finish is None or finish in FINISH_WORDS:
        return None
    if finish is messages.FinishReason.REJECTED:
        return _rejection(output)
    if finish is messages.FinishReason.TIMEOUT:
        if started:
            return errors.Overloaded(output.message or "The request's deadline passed.", code="deadline")
        text = output.message or "The request waited too long for its turn."
        return errors.Overloaded(text, retry_after_seconds=QUEUE_RETRY_SECONDS, code="queue_timeout")
    if finish is messages.FinishReason.ABORT:
        return errors.Draining("The server is shutting down and ended this request.")
    return errors.EngineError(output.message or "The engine failed while it worked on this request.")


def _rejection(output: messages.SequenceOutput) -> errors.TidemarkError:
    if output.reject is messages.RejectReason.NEVER_FITS:
        return errors.NeverFits(output.message or "The request needs more KV pages than there are.")
    if output.reject is messages.RejectReason.DRAINING:
        return errors.Draining(output.message or "The server is shutting down.")
    text = output.message or "The queue is full. Try again later."
    return errors.Overloaded(text, retry_after_seconds=QUEUE_RETRY_SECONDS, code="queue_full")


def label(error: Exception) -> tuple[str, str | None]:
    """For `requests_total{outcome}` and, where it was refused, `requests_rejected_total{reason}`."""
    if isinstance(error, bodies.ClientGone):
        return "aborted", None
    if isinstance(error, errors.Overloaded) and error.code in ("queue_timeout", "deadline"):
        return "timeout", error.code
    if isinstance(error, errors.RequestError):
        return "rejected", error.code or "invalid"
    if isinstance(error, errors.Draining):
        return "rejected", "draining"
    if isinstance(error, context.Loading):
        return "rejected", "loading"
    return "failed", None
