"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.server import choice, context, endpoint, generation, logprobs, validation, wanted
from tidemark_runtime.server.wire import common, completions
from tidemark_runtime.text import text_model


class CompletionDialect:
    """Texts or token ids in, text out."""

    def want(self, body: Mapping[str, Any], serving: context.Serving) -> wanted.Wanted:
        validation.known_fields(body, validation.COMPLETION_FIELDS)
        num_logprobs = validation.whole_or_none(body, "logprobs")
        echo = validation.flag(body, "echo")
        if echo and num_logprobs is not None:
            message = "echo together with logprobs is not supported: prompt tokens have none. Leave one out."
            raise errors.InvalidRequest(message, param="echo")
        best_of = validation.whole_or_none(body, "best_of")
        if best_of is not None and best_of != validation.whole(body, "n"):
            raise errors.InvalidRequest("best_of is not supported, unless it equals n. Leave it out.", param="best_of")
        prompts = encode_prompts(body, serving.text)
        max_tokens = validation.whole_or_none(body, "max_tokens")
        return wanted.build(
            body, serving, prompts, prompt_field="prompt", num_logprobs=num_logprobs, max_tokens=max_tokens, echo=echo
        )

    def reply(self, shared: context.Context, serving: context.Serving, work: generation.Generation) -> endpoint.Reply:
        return CompletionReply(shared, serving, work)


def encode_prompts(body: Mapping[str, Any], text: text_model.TextModel) -> list[list[int]]:
    """`prompt`: a text, a list of texts, a list of token ids, or a list of such lists. Raises `InvalidRequest`."""
    value = body.get("prompt")
    expected = "a text, a list of texts, a list of token ids, or a list of lists of token ids"
    if value is None or (isinstance(value, list) and not value):
        raise validation.wrong("prompt", value, expected)
    add_special = validation.flag(body, "add_special_tokens", default=True)
    if isinstance(value, str):
        return [text.encode(value, add_special=add_special)]
    if not isinstance(value, list):
        raise validation.wrong("prompt", value, expected)
    if isinstance(value[0], str | list) and len(value) > validation.MAX_SEQUENCES:
        raise validation.wrong("prompt", value, f"at most {validation.MAX_SEQUENCES} prompts")
    if isinstance(value[0], str):
        if not all(isinstance(item, str) for item in value):
            raise validation.wrong("prompt", value, expected)
        return [text.encode(item, add_special=add_special) for item in value]
    if isinstance(value[0], list):
        return [
            validation.token_ids(item, f"prompt[{position}]", text.vocab_size) for position, item in enumerate(value)
        ]
    return [validation.token_ids(value, "prompt", text.vocab_size)]


class CompletionReply:
    """Builds chunks and answers; with `echo`, each choice begins with its prompt."""

    def __init__(self, shared: context.Context, serving: context.Serving, work: generation.Generation) -> None:
        self._id = f"cmpl-{work.id}"
        self._created = shared.unix_time()
        self._model = shared.model_name
        self._tier = work.who.tier
        self._text = serving.text
        self._wants_logprobs = work.asked.params[0].num_logprobs is not None
        prompts = [serving.text.decode(prompt) for prompt in work.asked.prompts] if work.asked.echo else []
        self._echoes = [prompt for prompt in prompts for _ in range(work.asked.n)]

    def opening(self) -> Iterable[completions.Completion]:
        for index, echo in enumerate(self._echoes):
            if echo:
                yield self._completion([completions.Choice(index, echo)])

    def chunks(self, delta: choice.Delta) -> Iterable[completions.Completion]:
        if delta.text or delta.entries or delta.finish is not None:
            yield self._completion([self._choice(delta, delta.text)])

    def closing(self, usage: common.Usage) -> completions.Completion:
        return completions.Completion(self._id, self._created, self._model, [], self._tier, usage)

    def whole(self, deltas: Sequence[choice.Delta], usage: common.Usage) -> completions.Completion:
        echoes = self._echoes or [""] * len(deltas)
        choices = [self._choice(delta, echo + delta.text) for delta, echo in zip(deltas, echoes, strict=True)]
        return completions.Completion(self._id, self._created, self._model, choices, self._tier, usage)

    def _choice(self, delta: choice.Delta, text: str) -> completions.Choice:
        values = logprobs.for_completions(self._text, delta.entries) if self._wants_logprobs else None
        return completions.Choice(delta.index, text, values, delta.finish)

    def _completion(self, choices: list[completions.Choice]) -> completions.Completion:
        return completions.Completion(self._id, self._created, self._model, choices, self._tier)
