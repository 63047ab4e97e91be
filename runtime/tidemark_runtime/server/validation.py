"""Which request fields exist, what each may hold, and what it does: the one table both endpoints share.

Every field is in exactly one of these groups:

- **supported**: OpenAI's, and the extras `top_k`, `min_p`, `repetition_penalty`, `ignore_eos`, `stop_token_ids`,
  `deadline_seconds` (both endpoints), `add_special_tokens` (completions); `service_tier` also for completions.
- **ignored**: OpenAI's fields that do not change what is generated: `user`, `metadata`, `store`, `safety_identifier`,
  `prompt_cache_key`, `prompt_cache_options`, `prompt_cache_retention`, `prediction`, `parallel_tool_calls`.
- **refused**: fields that would change the answer and that we do not have (`tools`, `response_format` other than
  text, `audio`, `suffix`, ...): 400 that names the field, unless the value asks for nothing.
- anything else: 400 that names the field and the nearest known one. A misspelt `max_token` is never silently lost.

A null value means that the field was left out, everywhere.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import errors

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric field: both limits are allowed values, except `above` (which is not)."""

    default: float
    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    whole: bool = False

    def describe(self) -> str:
        """For messages: what is expected."""
        noun = "a whole number" if self.whole else "a finite number"
        low = f"above {self.above:g}" if self.above > -math.inf else f"of at least {self._show(self.minimum)}"
        return f"{noun} {low}" if self.maximum == math.inf else f"{noun} {low} and at most {self._show(self.maximum)}"

    def _show(self, limit: float) -> str:
        return f"{int(limit)}" if self.whole else f"{limit:g}"


NUMBERS: Mapping[str, Number] = {
    "temperature": Number(1.0, minimum=0, maximum=2),
    "top_p": Number(1.0, above=0, maximum=1),
    "min_p": Number(0.0, minimum=0, maximum=1),
    "top_k": Number(0, minimum=-1, maximum=INT64_MAX, whole=True),
    "repetition_penalty": Number(1.0, minimum=0.01, maximum=100),
    "presence_penalty": Number(0.0, minimum=-2, maximum=2),
    "frequency_penalty": Number(0.0, minimum=-2, maximum=2),
    "seed": Number(0, minimum=INT64_MIN, maximum=INT64_MAX, whole=True),
    "n": Number(1, minimum=1, maximum=128, whole=True),
    "best_of": Number(1, minimum=1, maximum=128, whole=True),
    "max_tokens": Number(0, minimum=1, maximum=INT64_MAX, whole=True),
    "max_completion_tokens": Number(0, minimum=1, maximum=INT64_MAX, whole=True),
    "top_logprobs": Number(0, minimum=0, maximum=20, whole=True),
    "logprobs": Number(0, minimum=0, maximum=20, whole=True),
    "deadline_seconds": Number(0, above=0, maximum=86_400),
}
"""`seed`: any signed 64-bit number, -1 is one like the others, left out means random. `top_k`: 0 and -1 keep all.
`deadline_seconds`: from arrival; what is not finished by then ends, wherever it is. Left out: no deadline."""

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 1000
"""Of each. One of a megabyte, times `n`, would take seconds and gigabytes to prepare."""
MAX_STOP_TOKEN_IDS = 1024
MAX_BIASED_TOKENS = 1024
"""Each is looked at for every token generated: with a whole vocabulary of them, one request slows down all others."""
MAX_SEQUENCES = 128
"""Of one client request: prompts times `n`."""

SERVICE_TIERS = ("auto", "default", "flex", "priority", "fast")
"""`fast` is OpenAI's other name for `priority`."""

COMMON_FIELDS = frozenset(
    {"model", "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty", "frequency_penalty"}
    | {"seed", "n", "max_tokens", "stop", "stop_token_ids", "ignore_eos", "logit_bias", "logprobs"}
    | {"stream", "stream_options", "deadline_seconds", "service_tier"}
)
CHAT_FIELDS = COMMON_FIELDS | {"messages", "max_completion_tokens", "top_logprobs"}
COMPLETION_FIELDS = COMMON_FIELDS | {"prompt", "echo", "best_of", "add_special_tokens"}
IGNORED_FIELDS = frozenset(
    {"user", "metadata", "store", "safety_identifier", "prediction", "parallel_tool_calls"}
    | {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
)
REFUSED_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "moderation": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "suffix": ("",),
    "prompt_logprobs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "length_penalty": (1, 1.0),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "top_a": (0,),
}
"""Field -> values that ask for nothing and are therefore let through."""


def known_fields(body: Mapping[str, Any], supported: frozenset[str]) -> None:
    """Refuses every field that is neither supported nor harmless. Raises `InvalidRequest`."""
    for name, value in body.items():
        if name in supported or name in IGNORED_FIELDS:
            continue
        if name not in REFUSED_FIELDS:
            raise _unknown(name, supported)
        if value is not None and not _is_neutral(value, REFUSED_FIELDS[name]):
            raise errors.InvalidRequest(f"{name} is not supported by this server. Leave it out.", param=name)


def _is_neutral(value: Any, neutrals: tuple[Any, ...]) -> bool:
    """True when the value asks for nothing. Types are compared too: true is not 1 here."""
    return any(type(value) is type(neutral) and value == neutral for neutral in neutrals)


def number(body: Mapping[str, Any], name: str, label: str | None = None) -> float | None:
    """The field's value, None when it was left out. Raises `InvalidRequest` for anything else than `NUMBERS` says."""
    value = body.get(name)
    return None if value is None else check_number(value, NUMBERS[name], label or name)


def check_number(value: Any, limits: Number, label: str) -> float:
    """`value` when it is a number within `limits`. NaN fails every comparison, so finiteness is asked first."""
    wanted = int if limits.whole else (int, float)
    if (
        isinstance(value, bool)
        or not isinstance(value, wanted)
        or (isinstance(value, float) and not math.isfinite(value))
        or not limits.minimum <= value <= limits.maximum
        or not value > limits.above
    ):
        raise wrong(label, value, limits.describe())
    return value


def real(body: Mapping[str, Any], name: str) -> float:
    """A number with its default."""
    value = number(body, name)
    return float(NUMBERS[name].default if value is None else value)


def whole(body: Mapping[str, Any], name: str) -> int:
    """A whole number with its default."""
    value = number(body, name)
    return int(NUMBERS[name].default if value is None else value)


def whole_or_none(body: Mapping[str, Any], name: str) -> int | None:
    """A whole number, None when it was left out."""
    value = number(body, name)
    return None if value is None else int(value)


def flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A boolean with its default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(name, value, "true or false")
    return value


def stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    """`stop`: one text or up to 16, none of them empty or over the limit."""
    value = body.get("stop")
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    expected = f"a text or a list of at most {MAX_STOPS} texts, each of 1 to {MAX_STOP_CHARACTERS} characters"
    if not isinstance(texts, list) or len(texts) > MAX_STOPS:
        raise wrong("stop", value, expected)
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_STOP_CHARACTERS for text in texts):
        raise wrong("stop", value, expected)
    return tuple(dict.fromkeys(texts))


def token_ids(value: Any, label: str, vocab_size: int) -> list[int]:
    """A list of token ids, each in the vocabulary. Raises `InvalidRequest`."""
    expected = f"a list of token ids from 0 to {vocab_size - 1}"
    if not isinstance(value, list):
        raise wrong(label, value, expected)
    for item in value:
        if type(item) is not int or not 0 <= item < vocab_size:
            raise wrong(label, item, expected)
    return value


def stop_token_ids(body: Mapping[str, Any], vocab_size: int) -> list[int]:
    """`stop_token_ids`: up to `MAX_STOP_TOKEN_IDS` ids, each in the vocabulary."""
    value = body.get("stop_token_ids")
    if isinstance(value, list) and len(value) > MAX_STOP_TOKEN_IDS:
        raise wrong("stop_token_ids", value, f"at most {MAX_STOP_TOKEN_IDS} token ids")
    return [] if value is None else token_ids(value, "stop_token_ids", vocab_size)


def logit_bias(body: Mapping[str, Any], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """`logit_bias`: token ids (as JSON keys, so texts) to numbers from -100 to 100."""
    value = body.get("logit_bias")
    if value is None:
        return ()
    if not isinstance(value, dict) or len(value) > MAX_BIASED_TOKENS:
        raise wrong("logit_bias", value, f"an object of at most {MAX_BIASED_TOKENS} token ids and numbers")
    pairs = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 19 and int(key) < vocab_size):
            raise wrong("logit_bias", key, f"token ids from 0 to {vocab_size - 1} as keys")
        pairs[int(key)] = float(check_number(bias, Number(0, minimum=-100, maximum=100), f"logit_bias.{key}"))
    return tuple(sorted(pairs.items()))


def include_usage(body: Mapping[str, Any], stream: bool) -> bool:
    """`stream_options.include_usage`. Raises `InvalidRequest` when there is no stream to have options for."""
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise errors.InvalidRequest("stream_options is only allowed with stream: true.", param="stream_options")
    if not isinstance(options, dict):
        raise wrong("stream_options", options, 'an object such as {"include_usage": true}')
    for key, value in options.items():
        if key not in ("include_usage", "include_obfuscation") or not isinstance(value, bool | None):
            raise wrong(f"stream_options.{key}", value, "include_usage: true or false")
    return bool(options.get("include_usage"))


def service_tier(body: Mapping[str, Any]) -> str | None:
    """`service_tier`: one of `SERVICE_TIERS`, None when it was left out."""
    value = body.get("service_tier")
    if value is None:
        return None
    if not isinstance(value, str) or value not in SERVICE_TIERS:
        raise wrong("service_tier", value, f"one of {', '.join(SERVICE_TIERS)}")
    return value


def wrong(label: str, seen: Any, expected: str) -> errors.InvalidRequest:
    """An error that names the field, what was seen (shortened), and what is expected."""
    text = repr(seen) if not isinstance(seen, list | dict) else f"a {type(seen).__name__} of {len(seen)}"
    shown = text if len(text) <= 80 else text[:77] + "..."
    return errors.InvalidRequest(f"{label}: got {shown}, expected {expected}.", param=label.split("[")[0])


def _unknown(name: str, supported: frozenset[str]) -> errors.InvalidRequest:
    shown = name if len(name) <= 80 else name[:77] + "..."
    near = difflib.get_close_matches(shown, supported, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Leave it out."
    return errors.InvalidRequest(f"{shown} is not a field of this endpoint. {hint}", param=shown)
