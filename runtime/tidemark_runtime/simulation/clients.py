"""The senders as a simulated engine meets them: requests as its messages, ends as its outputs."""

from __future__ import annotations

from tidemark_runtime.core import sampling
from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import senders, workload
from tidemark_runtime.worker import simulated

_SHARED_SEED = (1 << 20) - 1
"""Of the first class's shared prompt; the next ones count down. Requests count up from 0."""

RETRIED = frozenset({messages.FinishReason.REJECTED, messages.FinishReason.TIMEOUT, messages.FinishReason.DEADLINE})
"""Ends that are 429 on the wire when no token was sent."""
NEVER_RETRIED = frozenset({messages.RejectReason.NEVER_FITS, messages.RejectReason.CONTEXT_LENGTH})
"""And those among them that are 400: to come back is useless."""


class Clients(senders.Senders):
    """All senders, in the engine's own words."""

    def __init__(self, load: workload.Workload, seed: int) -> None:
        super().__init__(load, seed)
        self._shared_seeds = {kind.name: _SHARED_SEED - index for index, kind in enumerate(load.classes)}

    def message(self, request: senders.Request) -> messages.EngineRequest:
        """What the engine is told of this try: the one place that knows."""
        kind, stop = request.kind, _stop_token(request)
        params = sampling.SamplingParams(
            max_tokens=request.max_tokens,
            temperature=0.0,
            seed=request.number,
            stop_token_ids=() if stop is None else (stop,),
        )
        shared_seed = self._shared_seeds[kind.name]
        return messages.EngineRequest(
            id=f"{kind.name}-{request.number}-{request.num_tries}",
            token_ids=simulated.prompt(request.number, request.num_prompt_tokens, kind.shared_tokens, shared_seed),
            params=params,
            deadline_seconds=kind.deadline_seconds,
            priority=kind.priority,
            tenant=request.tenant,
            is_retry=kind.are_retries or (request.num_tries > 1 and kind.retries.marked),
        )

    def ended(self, request: senders.Request, output: messages.SequenceOutput, now: float, num_tokens: int) -> bool:
        """A try is over. True when its client comes back with it; else a user may send something new."""
        return self.over(
            request,
            now,
            refused=output.finish in RETRIED and not num_tokens,
            retry_after_seconds=output.retry_after_seconds,
            useless=output.reject in NEVER_RETRIED,
        )


def _stop_token(request: senders.Request) -> int | None:
    """Stands where its true length ends; None where `max_tokens` is as long."""
    if request.num_output_tokens >= request.max_tokens:
        return None
    return simulated.token_at(request.number, request.num_prompt_tokens + request.num_output_tokens - 1)
