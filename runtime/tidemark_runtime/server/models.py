"""`GET /v1/models` and `GET /v1/models/NAME`."""

from __future__ import annotations

from starlette import requests
from starlette import responses as starlette_responses

from tidemark_runtime import errors
from tidemark_runtime.server import context, responses
from tidemark_runtime.server.wire import models


class Models:
    """The one model this server has."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def index(self, _: requests.Request) -> starlette_responses.Response:
        return responses.json(models.ModelList([self._model()]))

    async def get(self, request: requests.Request) -> starlette_responses.Response:
        """Raises `UnknownModel`."""
        name = request.path_params["name"]
        if name != self._shared.model_name:
            raise errors.UnknownModel(f"This server has no model {name[:80]!r}. It serves {self._shared.model_name!r}.")
        return responses.json(self._model())

    def _model(self) -> models.Model:
        limit = self._shared.context_limit
        num_tokens = None if limit is None else limit.num_tokens
        return models.Model(self._shared.model_name, self._shared.created, num_tokens)
