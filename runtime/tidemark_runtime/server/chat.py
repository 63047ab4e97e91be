"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.server import choice, context, conversation, endpoint, generation, logprobs, validation, wanted
from tidemark_runtime.server.wire import chat, common


class ChatDialect:
    """Messages in, deltas with roles out."""

    def want(self, body: Mapping[str, Any], serving: context.Serving) -> wanted.Wanted:
        validation.known_fields(body, validation.CHAT_FIELDS)
        checked = conversation.messages(body.get("messages"))
        prompt = serving.text.encode_chat(checked)
        return wanted.build(
            body,
            serving,
            [prompt],
            prompt_field="messages",
            num_logprobs=_num_logprobs(body),
            max_tokens=_max_tokens(body),
        )

    def reply(self, shared: context.Context, serving: context.Serving, work: generation.Generation) -> endpoint.Reply:
        return ChatReply(shared, serving, work)


class ChatReply:
    """Builds chunks and answers."""

    def __init__(self, shared: context.Context, serving: context.Serving, work: generation.Generation) -> None:
        self._id = f"chatcmpl-{work.id}"
        self._created = shared.unix_time()
        self._model = shared.model_name
        self._tier = work.who.tier
        self._text = serving.text
        self._num_choices = len(work.choices)
        self._wants_logprobs = work.asked.params[0].num_logprobs is not None

    def opening(self) -> Iterable[chat.Chunk]:
        for index in range(self._num_choices):
            yield self._chunk(chat.ChunkChoice(index, chat.Delta(role=chat.ROLE)))

    def chunks(self, delta: choice.Delta) -> Iterable[chat.Chunk]:
        if delta.text or delta.entries:
            content = chat.Delta(content=delta.text or None)
            yield self._chunk(chat.ChunkChoice(delta.index, content, self._logprobs(delta)))
        if delta.finish is not None:
            yield self._chunk(chat.ChunkChoice(delta.index, chat.Delta(), finish_reason=delta.finish))

    def closing(self, usage: common.Usage) -> chat.Chunk:
        return chat.Chunk(self._id, self._created, self._model, [], self._tier, usage)

    def whole(self, deltas: Sequence[choice.Delta], usage: common.Usage) -> chat.Completion:
        choices = [
            chat.Choice(delta.index, chat.Message(delta.text), delta.finish or "stop", self._logprobs(delta))
            for delta in deltas
        ]
        return chat.Completion(self._id, self._created, self._model, choices, usage, self._tier)

    def _chunk(self, part: chat.ChunkChoice) -> chat.Chunk:
        return chat.Chunk(self._id, self._created, self._model, [part], self._tier)

    def _logprobs(self, delta: choice.Delta) -> chat.Logprobs | None:
        return logprobs.for_chat(self._text, delta.entries) if self._wants_logprobs else None


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    """`max_completion_tokens`, or its old name `max_tokens`; not two different ones."""
    new = validation.whole_or_none(body, "max_completion_tokens")
    old = validation.whole_or_none(body, "max_tokens")
    if new is not None and old is not None and new != old:
        message = f"max_tokens is {old} and max_completion_tokens is {new}. Send one of them."
        raise errors.InvalidRequest(message, param="max_tokens")
    return old if new is None else new


def _num_logprobs(body: Mapping[str, Any]) -> int | None:
    top = validation.whole_or_none(body, "top_logprobs")
    if validation.flag(body, "logprobs"):
        return top or 0
    if top is not None:
        raise errors.InvalidRequest("top_logprobs needs logprobs: true.", param="top_logprobs")
    return None
