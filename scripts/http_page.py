"""The page of the HTTP API: what can be read from `server.validation` and `errors` is, the words beside it are here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tidemark_runtime import errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import conversation, validation

_HEADER = f"""\
# The HTTP API

<!-- Written by `make render` from scripts/http_page.py and runtime/tidemark_runtime/server/validation.py. -->

OpenAI's API: its clients work unchanged, with any text as key where no key file is set.

| route | does |
|---|---|
| `POST {http.CHAT_PATH}` | answers a conversation |
| `POST {http.COMPLETIONS_PATH}` | continues a text |
| `POST {http.TOKENIZE_PATH}` | `{{"prompt": text}}` or `{{"messages": [...]}}` -> token ids |
| `GET {http.MODELS_PATH}` | the one model served |
| `GET {http.LIVE_PATH}`, `GET {http.READY_PATH}` | is it worth keeping, does it take requests: 200, or 503 and why |
| `GET {http.STATUS_PATH}` | everything about this engine as JSON |
| `GET {http.METRICS_PATH}` | [metrics](metrics.md) |

The last four never ask for a key; the others do when `server.apiKeysFile` is set: `Authorization: Bearer KEY`.
Every answer carries `{http.REQUEST_ID_HEADER}`: the client's own (at most 128 plain characters) or a new one.
"""

_WORDS: Mapping[str, tuple[str, str, str]] = {
    # field: (what it accepts, or "" to say what `validation.NUMBERS` says; default, or "" likewise; meaning)
    "model": ("a text", "the one served", "Another name than the one served is refused with 404."),
    "messages": (
        "a list of messages",
        "required",
        f"Roles: {', '.join(conversation.ROLES)} (developer counts as system). Content: text or text parts.",
    ),
    "prompt": ("a text, token ids, or a list of either", "required", "Every prompt gets `n` choices."),
    "max_tokens": ("", "what is left", "Left out: all that context and KV memory leave, also for completions."),
    "max_completion_tokens": ("", "what is left", "The new name of `max_tokens`; two different values are refused."),
    "temperature": ("", "", "0 takes the most probable token."),
    "top_p": ("", "", "Keeps the most probable tokens that together have this probability."),
    "top_k": ("", "", "Keeps so many tokens; 0 and -1 keep all."),
    "min_p": ("", "", "Keeps tokens of at least this share of the most probable one's probability."),
    "repetition_penalty": ("", "", "Divides the logits of tokens already seen, prompt included."),
    "presence_penalty": ("", "", "Taken from the logits of tokens already generated."),
    "frequency_penalty": ("", "", "The same, times how often."),
    "logit_bias": ("an object: token id -> -100 to 100", "none", "Added to logits."),
    "seed": (
        "any signed 64-bit whole number",
        "random",
        "Choice i uses seed + i. Who shares the batch is without effect.",
    ),
    "n": ("", "", f"Choices a prompt; prompts times `n` at most {validation.MAX_SEQUENCES}."),
    "best_of": ("", "`n`", "Only equal to `n`."),
    "stop": (f"a text, or up to {validation.MAX_STOPS}", "none", "Ends the choice; not part of its text."),
    "stop_token_ids": ("a list of token ids", "none", "End the choice, as the model's own end tokens do."),
    "ignore_eos": ("true or false", "false", "Goes on after the model's own end tokens."),
    "logprobs": (
        "chat: true or false; completions: 0 to 20",
        "none",
        "Log-probabilities, before temperature and penalties. For completions the number of alternatives.",
    ),
    "top_logprobs": ("", "0", "Alternatives a token; needs `logprobs: true`."),
    "echo": ("true or false", "false", "Puts the prompt before the answer; not together with `logprobs`."),
    "add_special_tokens": ("true or false", "true", "Whether a text prompt gets the model's opening token."),
    "stream": ("true or false", "false", "See below."),
    "stream_options": ('`{"include_usage": true}`', "none", "Only with `stream: true`."),
    "deadline_seconds": ("", "none", "From arrival; what is not finished then ends."),
}

_FIELDS_HEADER = """\
## Fields of a request

A value outside its limits is refused with 400 that names the field, what was seen and what is expected: nothing is
clamped, except that `top_k: -1` means 0. `null` means left out. NaN and infinity are refused.

| field | chat | completions | accepts | default | meaning |
|---|---|---|---|---|---|"""

_STREAMS = """\
## Streams

`stream: true` answers with server-sent events, `data: {...}` and an empty line each.

- Nothing is sent before the first token: until then an error is an HTTP error with its own status.
- Chat: each choice begins with a chunk that holds `role`, then chunks with `content`, then one with `finish_reason`.
- With `include_usage`, one more chunk follows, with `usage` and no choices. Then `data: [DONE]`.
- After the first token, an error is one last event `data: {"error": {...}}`, without `[DONE]`.
- Only whole characters are sent, and nothing that could still become a stop string.
- A client that closes its connection ends its request; its memory is free within a step.
"""

_ERRORS_HEADER = """\
## Errors

`{"error": {"message", "type", "param", "code"}}`. 429 and 503 (except `engine_dead`) carry `Retry-After`.

| status | code | when |
|---|---|---|"""

_OTHER_ERRORS = (
    (404, "–", "There is no such route."),
    (405, "–", "The route takes another method."),
    (429, "`queue_full`", "The queue has `scheduler.maxQueuedRequests` requests."),
    (429, "`queue_timeout`", "No first turn within `scheduler.maxQueueSeconds`, or before the request's own deadline."),
    (429, "`deadline`", "The request's own deadline passed after its first token."),
    (500, "`engine_failed`", "The engine failed while it worked on this request."),
    (500, "`internal_error`", "The server failed; its log says why."),
    (503, "`loading`", "The model is still loading."),
    (503, "`draining`", "The server is shutting down."),
    (503, "`engine_dead`", "The engine process has ended."),
)


def render() -> str:
    """The whole page. Raises `LookupError` when a field has no words, or words have no field."""
    supported = validation.CHAT_FIELDS | validation.COMPLETION_FIELDS
    if supported != set(_WORDS):
        raise LookupError(f"scripts/http_page.py and validation.py differ in {sorted(supported ^ set(_WORDS))}")
    refused = (_refused(name, neutral) for name, neutral in validation.REFUSED_FIELDS.items())
    parts = [
        _HEADER,
        _FIELDS_HEADER,
        *(_field(name) for name in _WORDS),
        "",
        "Accepted and without effect: " + ", ".join(f"`{name}`" for name in sorted(validation.IGNORED_FIELDS)) + ".",
        "",
        "Refused, because they would change the answer: " + ", ".join(refused) + ".",
        "",
        "Any other field is refused, with the nearest known name.",
        "",
        _STREAMS,
        _ERRORS_HEADER,
        *(f"| {status} | {code} | {when} |" for status, code, when in sorted(_errors(), key=lambda row: row[0])),
    ]
    return "\n".join(parts) + "\n"


def _field(name: str) -> str:
    accepts, default, meaning = _WORDS[name]
    number = validation.NUMBERS.get(name)
    if number is not None:
        accepts = accepts or number.describe().replace(f" and at most {validation.INT64_MAX}", "")
        default = default or f"{number.default:g}"
    where = ("yes" if name in fields else "–" for fields in (validation.CHAT_FIELDS, validation.COMPLETION_FIELDS))
    return f"| `{name}` | {' | '.join(where)} | {accepts} | {default} | {meaning} |"


def _refused(name: str, neutral: tuple[object, ...]) -> str:
    """With the values that ask for nothing, which are let through."""
    values = " and ".join(f"`{text}`" for text in dict.fromkeys(f"{json.dumps(value)}" for value in neutral))
    return f"`{name}` (except {values})" if values else f"`{name}`"


def _errors() -> Iterator[tuple[int, str, str]]:
    for kind in errors.RequestError.__subclasses__():
        if kind is not errors.Overloaded:  # its codes are among the others
            code = f"`{kind.code}`" if kind.code else "–"
            yield kind.status, code, (kind.__doc__ or "").split("; `param`")[0].rstrip(".") + "."
    yield from _OTHER_ERRORS
