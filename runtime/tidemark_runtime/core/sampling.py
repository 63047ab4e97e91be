"""What a client may ask of the sampler, as plain data that crosses process borders."""

from __future__ import annotations

from dataclasses import dataclass

GREEDY_BELOW_TEMPERATURE = 1e-5
"""A temperature under this acts as greedy: dividing logits by less overflows float32 (cases.md B015)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token of one sequence is chosen. Validated by the server before the engine sees it."""

    max_tokens: int
    """Upper bound of generated tokens; at least 1."""
    temperature: float = 1.0
    """0 (or anything under 1e-5) is greedy."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set whose probability reaches p; in (0, 1]."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the most likely one; in [0, 1]."""
    seed: int = 0
    """64-bit seed; a token depends on (seed, its position), never on who shares the batch."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens seen in prompt or output; 1 is off."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of each token already generated."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit for each time it was generated."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Added to the logits of these token ids."""
    num_logprobs: int | None = None
    """None: no log-probabilities. n: the chosen token's and the n most likely ones'."""
    stop_token_ids: tuple[int, ...] = ()
    """The sequence ends after generating any of these; the model's own end tokens are added by the server."""
    ignore_stop_tokens: bool = False
    """Generate until `max_tokens` whatever comes (`ignore_eos`)."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW_TEMPERATURE

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
