"""The plan of one step: frozen, plain data. The worker sees this and never the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_runtime.core import sampling


@dataclass(frozen=True, slots=True)
class Join:
    """A sequence enters (or, after a preemption, re-enters) the running batch in `slot`.

    The worker forgets whatever the slot held before: its tokens, its pages.
    """

    slot: int
    """Row of the worker's per-sequence tables, 0 <= slot < max_num_seqs."""
    token_ids: tuple[int, ...]
    """All tokens known so far: the prompt, and after a preemption what was generated, too."""
    num_prompt_tokens: int
    """How many of `token_ids` are the prompt; penalties on output count the others."""
    params: sampling.SamplingParams


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute tokens [start, start + count) of the sequence in `slot`.

    The value of a token the worker itself sampled in an earlier step is taken from the worker's own
    tables: the plan may be made before that value has come back (one step ahead).
    """

    slot: int
    start: int
    """Position of the first token to compute; the KV of [0, start) is in the slot's pages already."""
    count: int
    new_pages: tuple[int, ...]
    """Pages appended to the slot's page table before this chunk computes."""
    samples: bool
    """True where the chunk ends with the last known token, so that the next one is sampled from it."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step computes. `chunks` is never empty; at most one chunk a slot."""

    step: int
    joins: tuple[Join, ...]
    chunks: tuple[Chunk, ...]

    @property
    def num_tokens(self) -> int:
        return sum(chunk.count for chunk in self.chunks)

    @property
    def num_samples(self) -> int:
        return sum(chunk.samples for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities from the distribution before temperature and filters; always finite."""

    chosen: float
    """Of the token that was sampled."""
    top_ids: tuple[int, ...]
    """The most likely tokens, best first; as many as `num_logprobs` asked for."""
    top: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the worker returns: one token for each chunk with `samples`, in the plan's order."""

    step: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...]
    """As long as `token_ids`; None where none were asked for."""
    execute_seconds: float
