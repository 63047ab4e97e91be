"""The page of the HTTP API: what can be read from `server.validation` and `errors` is, the words beside it are here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tidemark_runtime import config, errors
from tidemark_runtime.contract import console, http
from tidemark_runtime.server import admin, auth, conversation, validation


def _codes() -> str:
    return ", ".join(f"`{code.value}`" for code in console.AdviceCode)


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
| `GET {http.CONSOLE_PATH}` | [the console page](../operations/console.md) for people |
| `GET {http.CONSOLE_DATA_PATH}` | what it shows, as JSON: see below |
| `GET {http.ADMIN_CONFIG_PATH}`, `PUT {http.ADMIN_CONFIG_PATH}` | the configuration in force, a new one: see below |

Health, status, metrics and the console never ask for a key; `/v1` does when `server.apiKeysFile` is set:
`Authorization: Bearer KEY`.
`/admin` asks for a token of `server.adminTokenFile` in the same header, never for an API key; without that file it is
404 `admin_disabled`. With `server.tlsCertFile` and `server.tlsKeyFile` everything is HTTPS. After SIGTERM every answer
says `Connection: close`.

## Headers
"""

_REQUEST_HEADERS = (
    (http.REQUEST_ID_HEADER, "at most 128 plain characters", "Comes back with the answer; else there is a new one."),
    (
        http.PRIORITY_HEADER,
        f"a whole number from {config.PRIORITY_MIN} to {config.PRIORITY_MAX}",
        "A larger one goes first, strictly, and may take memory from running ones of lower priority. Wins over "
        "`service_tier`. More than the API key may have is refused with 403.",
    ),
    (
        http.RETRY_COUNT_HEADER,
        "a whole number of at least 0",
        "How often the client has sent this request before; above 0 it is a retry.",
    ),
    (
        http.OPENAI_RETRY_COUNT_HEADER,
        "anything",
        "The same; OpenAI's clients send it by themselves. What is no number counts as 0.",
    ),
)
_ANSWER_HEADERS = (
    (http.REQUEST_ID_HEADER, "Every answer has it."),
    (http.PRIORITY_HEADER, "The priority that a generation request had."),
    (
        http.DEGRADED_HEADER,
        "What a rule of `overload.degrade` took: `max_tokens=256; rule=overload.degrade[0]; at=queue`. Also in a "
        "refusal by such a rule.",
    ),
    (
        "Retry-After",
        "When to come back, rounded up to whole seconds. Beside it `retry-after-ms`, which OpenAI's clients prefer.",
    ),
)

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
    "deadline_seconds": (
        "",
        "none",
        "From arrival; what is not finished then ends, and what would be late anyway is refused at once.",
    ),
    "service_tier": (
        f"one of {', '.join(f'`{tier}`' for tier in validation.SERVICE_TIERS)}",
        "`auto`",
        "`priority` and `fast` are priority 1, `flex` is -1, the others what the API key has (0 unless the key file "
        "says more). The answer's `service_tier` says by `priority`, `default` or `flex` which sign its priority had.",
    ),
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

_USAGE = """\
## Usage

`usage` counts each prompt once, whatever `n` is, and all choices. `prompt_tokens_details.cached_tokens` is how many
tokens of the prompts were found in the prefix cache, and so were not computed again; the last chunk of a stream has it,
too. The cache is shared among the requests of one API key; without a key file, among all.
"""

_CONSOLE = f"""\
## The console's data

`GET {http.CONSOLE_DATA_PATH}` answers within half a second, also while the engine is loading, in a long step, or gone.

| field | holds |
|---|---|
| `status` | what `{http.STATUS_PATH}` says, of the same moment |
| `at` | Unix time of the server |
| `batch` | the last step: number, sequences, tokens, seconds |
| `totals` | the counters that rates are made of, as `{http.METRICS_PATH}` has them |
| `advice` | what is not as it should be, the most severe first: {_codes()} |
| `settings` | every hot setting: `key`, `value`, `default` |
| `requests` | the {console.MOST_REQUESTS} sequences with most pages, the sums of all, `ageSeconds`; `null` at first |
| `crossings` | the last times that a line was crossed, the newest first |

No text, no key and no whole id is in it ([who may see it](../operations/console.md#who-may-see-it)).
"""

_ADMIN = (
    f"""\
## The configuration of a running engine

`GET {http.ADMIN_CONFIG_PATH}`: 200 with `hash`, `generation`, `restartHash` and `config`, the whole document in force.

`PUT {http.ADMIN_CONFIG_PATH}` takes a whole document, the file that `tidemark serve --config` reads, of at most
{admin.MAX_DOCUMENT_BYTES} bytes. `Content-Type` is one of
{", ".join(f"`{kind}`" for kind in admin.CONTENT_TYPES)}.

- What it leaves out has its default, also where a flag said otherwise at the start: it is not a patch. Only where
  model, files and address are (`model.source`, `server.host`, `server.port`, the paths `server.*File`) stays as it runs
  when it is left out.
- All hot settings take effect together between two steps, once the engine has confirmed them; or nothing changes.
  Requests in flight do not notice.
- `hash` names the settings without those places: the same file has the same. `generation` counts the configurations
  in force since the process started, from 1.

| status | body | when |
|---|---|---|
"""
    + "\n".join(
        f"| {status} | {body} | {when} |"
        for status, body, when in (
            (
                200,
                '`{"hash", "generation", "changed": {key: [old, new]}}`',
                "In force. Nothing changed: it was already.",
            ),
            (
                400,
                '`error` with `code` `config_invalid` and `problems`: `[{"key", "seen", "expected", "remedy"}]`',
                "Wrong; every problem is named.",
            ),
            (
                409,
                '`error` with `code` `restart_required` and `changes`: `[{"key", "running", "wanted"}]`',
                "Restart settings differ; all are named, nothing is changed.",
            ),
            ("401, 404, 408, 413, 415", "`error`", "No token, no `/admin`, too slow, too large, another content type."),
            (503, "`error` with `code` `loading`, `draining` or `engine_dead`", "Nothing is changed."),
            (
                503,
                "`error` with `code` `config_not_confirmed`",
                "The engine is in a long step and takes it over after it; send it again to hear of it.",
            ),
        )
    )
    + """

400 and 409 also have `hash` and `generation`, beside `error`: those of what stays in force.
"""
)

_ERRORS_HEADER = """\
## Errors

`{"error": {"message", "type", "param", "code"}}`. 429 and 503 (except `engine_dead`) carry `Retry-After` and
`retry-after-ms`; of a queue it is how long what waits is predicted to take. What to do about each 429:
[overload](../operations/overload.md).

| status | code | when |
|---|---|---|"""

_OTHER_ERRORS = (
    (400, "`config_invalid`", "A configuration sent to `/admin` is wrong."),
    (401, "`invalid_admin_token`", "No admin token, or one that is not in the token file."),
    (404, "`admin_disabled`", "No token file is set, so there is no `/admin`."),
    (404, "–", "There is no such route."),
    (405, "–", "The route takes another method."),
    (429, "`queue_full`", "The queue has `scheduler.maxQueuedRequests` requests."),
    (429, "`queue_tokens`", "The queue has `scheduler.maxQueuedTokens` tokens."),
    (429, "`queue_time`", "It is predicted to wait longer than `scheduler.maxQueueSeconds`."),
    (429, "`queue_timeout`", "No first turn within `scheduler.maxQueueSeconds`."),
    (
        429,
        "`deadline`",
        "It is predicted to wait past its own deadline; or that passed, before its first token or after it. Not 504: "
        "after `Retry-After` the same request may be in time.",
    ),
    (429, "`retry_budget`", "It is a retry, and as many retries wait as `scheduler.retryShare` leaves room for."),
    (429, "`shed`", "It waited, and its place went to one of higher priority, or to a first try."),
    (429, "`degraded`", "A rule of `overload.degrade` lets no more of its kind in now."),
    (500, "`engine_failed`", "The engine failed while it worked on this request."),
    (500, "`internal_error`", "The server failed; its log says why."),
    (503, "`loading`", "The model is still loading."),
    (503, "`draining`", "The server is shutting down."),
    (503, "`config_not_confirmed`", "The engine has not confirmed new settings yet."),
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
        "| header of a request | accepts | meaning |\n|---|---|---|",
        *(f"| `{name}` | {accepts} | {meaning} |" for name, accepts, meaning in _REQUEST_HEADERS),
        "",
        "| header of an answer | meaning |\n|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in _ANSWER_HEADERS),
        "",
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
        _USAGE,
        _CONSOLE,
        _ADMIN,
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
        if kind not in (errors.Overloaded, auth.NoAdmin):  # their codes are among the others
            code = f"`{kind.code}`" if kind.code else "–"
            yield kind.status, code, (kind.__doc__ or "").split("; `param`")[0].rstrip(".") + "."
    yield from _OTHER_ERRORS
