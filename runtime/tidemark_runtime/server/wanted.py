"""What a client asked for, checked and tokenized: the step between a parsed body and the engine's requests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.core import sampling
from tidemark_runtime.server import context, context_limit, validation

SEED_MODULUS = 2**64


@dataclass(frozen=True, slots=True)
class Wanted:
    """One client request, ready to run."""

    prompts: tuple[tuple[int, ...], ...]
    n: int
    """Choices for each prompt."""
    params: tuple[sampling.SamplingParams, ...]
    """One for each choice, prompt by prompt: `len(prompts) * n`."""
    stops: tuple[str, ...]
    hidden_ids: frozenset[int]
    """Tokens that end a choice and are not part of its text."""
    stream: bool
    include_usage: bool
    echo: bool = False
    deadline_seconds: float | None = None
    """From arrival; None: none."""
    service_tier: str | None = None
    """As asked for; None: left out."""

    @property
    def num_prompt_tokens(self) -> int:
        """Each prompt counted once, whatever `n` is."""
        return sum(len(prompt) for prompt in self.prompts)


def build(
    body: Mapping[str, Any],
    serving: context.Serving,
    prompts: Sequence[Sequence[int]],
    *,
    prompt_field: str,
    num_logprobs: int | None,
    max_tokens: int | None,
    echo: bool = False,
) -> Wanted:
    """Checks every field both endpoints share; `prompt_field` is where the prompts came from.

    Raises `InvalidRequest`, `ContextTooLong`.
    """
    num_choices = validation.whole(body, "n")
    if len(prompts) * num_choices > validation.MAX_SEQUENCES:
        message = f"{len(prompts)} prompts with n={num_choices} are more than {validation.MAX_SEQUENCES} choices."
        raise errors.InvalidRequest(message, param="n")
    stream = validation.flag(body, "stream")
    wants_usage = validation.include_usage(body, stream)
    stop_ids = frozenset(validation.stop_token_ids(body, serving.text.vocab_size))
    end_ids = frozenset() if validation.flag(body, "ignore_eos") else frozenset(serving.text.end_ids)
    seed = _seed(body)
    template = _template(body, serving.text.vocab_size, tuple(sorted(stop_ids | end_ids)), num_logprobs)
    params = []
    for position, prompt in enumerate(prompts):
        most = room(len(prompt), max_tokens, serving.limit, prompt_field)
        for choice in range(num_choices):
            index = position * num_choices + choice
            params.append(sampling.SamplingParams(max_tokens=most, seed=(seed + index) % SEED_MODULUS, **template))
    return Wanted(
        tuple(tuple(prompt) for prompt in prompts),
        num_choices,
        tuple(params),
        validation.stops(body),
        stop_ids | end_ids,
        stream,
        wants_usage,
        echo,
        validation.real(body, "deadline_seconds") or None,
        validation.service_tier(body),
    )


def room(num_prompt_tokens: int, max_tokens: int | None, limit: context_limit.ContextLimit, prompt_field: str) -> int:
    """How many tokens may be generated: what was asked for, or all that is left.

    Raises `InvalidRequest` for an empty prompt, `ContextTooLong` with the limit and the prompt's length.
    """
    if num_prompt_tokens == 0:
        raise errors.InvalidRequest("The prompt has no tokens. Send at least one.", param=prompt_field)
    if num_prompt_tokens + (max_tokens or 1) > limit.num_tokens:
        asked = f" and {max_tokens} to generate, {num_prompt_tokens + max_tokens} together" if max_tokens else ""
        raise errors.ContextTooLong(
            f"{limit} The prompt has {num_prompt_tokens} tokens{asked}. Shorten the prompt or ask for fewer tokens.",
            param=prompt_field if max_tokens is None else "max_tokens",
        )
    if max_tokens is not None:
        return max_tokens
    # A prompt that fills the whole slab is left to the engine, which refuses it with the arithmetic.
    left = limit.num_request_tokens - num_prompt_tokens
    return left if left >= 1 else limit.num_tokens - num_prompt_tokens


def _template(
    body: Mapping[str, Any], vocab_size: int, stop_token_ids: tuple[int, ...], num_logprobs: int | None
) -> dict[str, Any]:
    """The sampling parameters that all choices share."""
    return {
        "temperature": validation.real(body, "temperature"),
        "top_k": max(validation.whole(body, "top_k"), 0),
        "top_p": validation.real(body, "top_p"),
        "min_p": validation.real(body, "min_p"),
        "repetition_penalty": validation.real(body, "repetition_penalty"),
        "presence_penalty": validation.real(body, "presence_penalty"),
        "frequency_penalty": validation.real(body, "frequency_penalty"),
        "logit_bias": validation.logit_bias(body, vocab_size),
        "num_logprobs": num_logprobs,
        "stop_token_ids": stop_token_ids,
        "ignore_stop_tokens": not stop_token_ids,
    }


def _seed(body: Mapping[str, Any]) -> int:
    """The client's, or a random one. Choice i uses seed + i, modulo 2**64."""
    seed = validation.whole_or_none(body, "seed")
    return secrets.randbits(64) if seed is None else seed
