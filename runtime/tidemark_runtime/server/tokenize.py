"""`POST /v1/tokenize`: `{"prompt": text}` or `{"messages": [...]}` -> the ids a generation request would use."""

from __future__ import annotations

from starlette import requests
from starlette import responses as starlette_responses

from tidemark_runtime import errors
from tidemark_runtime.server import bodies, context, conversation, responses, validation
from tidemark_runtime.server.wire import tokenize

FIELDS = frozenset({"model", "prompt", "messages", "add_special_tokens"})


class Tokenize:
    """Counts without generating."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared

    async def post(self, request: requests.Request) -> starlette_responses.Response:
        serving = self._shared.serving()
        limits = self._shared.config.server
        body = await bodies.read(request, limits.max_body, limits.body_seconds)
        encoded = await bodies.offload(self._shared.pool, len(body), lambda: _encode(body, serving))
        return starlette_responses.Response(encoded, media_type="application/json")


def _encode(body: bytes, serving: context.Serving) -> bytes:
    """Raises `InvalidRequest`."""
    parsed = bodies.parse(body)
    validation.known_fields(parsed, FIELDS)
    prompt, messages = parsed.get("prompt"), parsed.get("messages")
    if (prompt is None) == (messages is None):
        raise errors.InvalidRequest("Send either prompt or messages.", param="prompt")
    if messages is not None:
        ids = serving.text.encode_chat(conversation.messages(messages))
    elif isinstance(prompt, str):
        ids = serving.text.encode(prompt, add_special=validation.flag(parsed, "add_special_tokens", default=True))
    else:
        raise validation.wrong("prompt", prompt, "a text")
    response = responses.json(tokenize.Tokens(ids, len(ids), serving.limit.num_tokens))
    return bytes(response.body)
