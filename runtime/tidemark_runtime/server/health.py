"""`/health/live`: is it worth keeping? `/health/ready`: does a request sent now get an answer?"""

from __future__ import annotations

from starlette import requests
from starlette import responses as starlette_responses

from tidemark_runtime.contract import status as contract
from tidemark_runtime.server import context, responses, status


class Health:
    """Both probes; each answers 503 with the reason as JSON when the answer is no."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def live(self, _: requests.Request) -> starlette_responses.Response:
        """False when the engine has ended, or has work and makes no progress. True while loading and draining."""
        state, message = status.state_of(self._shared)
        dead = state in (contract.EngineState.FAILED, contract.EngineState.STALLED)
        return _probe(not dead, state, message)

    async def ready(self, _: requests.Request) -> starlette_responses.Response:
        """True only when requests are taken."""
        state, message = status.state_of(self._shared)
        return _probe(state is contract.EngineState.READY, state, message)


def _probe(good: bool, state: contract.EngineState, message: str) -> starlette_responses.Response:
    return responses.json({"ok": good, "state": state.value, "reason": message}, 200 if good else 503)
