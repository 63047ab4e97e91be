"""The plan of one step: frozen, plain data. The worker sees this and never the scheduler.

What a plan holds happens in this order, and plans happen in the order of their numbers:

1. `swaps_out`: pages are copied to the host's swap space. The slab's page may be another sequence's from here on.
2. `swaps_in`: and back.
3. `joins`: sequences enter slots, with all the pages they hold.
4. `new_pages`: pages are appended to the page tables.
5. `decodes`, `chunks` and `verifications`: tokens are computed.

A worker may overlap as it likes as long as nobody can tell the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_runtime.core import sampling


@dataclass(frozen=True, slots=True)
class Copy:
    """One whole page, all layers."""

    page: int
    """Of the slab."""
    host_page: int
    """Of the swap space."""


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
    pages: tuple[int, ...] = ()
    """All the pages it holds, in the order of its tokens. The first may hold KV already: found in the prefix cache, or
    swapped in."""


@dataclass(frozen=True, slots=True)
class NewPages:
    """Pages appended to the page table of `slot`."""

    slot: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Compute tokens [start, start + count) of `slot`: a part of a prompt, or of what is computed again."""

    slot: int
    start: int
    """Position of the first token to compute; the KV of [0, start) is in the slot's pages already."""
    count: int
    samples: bool
    """True where the chunk ends with the last known token, so that the next one is sampled from it."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Compute the last known token of `slot` and guesses behind it, and sample after each of them, as long as the guess
    is what was sampled. So it brings 1 to `count` + 1 tokens, the same as so many decodes would.

    The KV of guesses that were wrong stays in the pages, behind the text: it is written over before it is read.
    """

    slot: int
    count: int
    """Guesses, at least 1; there are pages for all of them."""
    guesses: tuple[int, ...] = ()
    """`count` token ids; empty where the worker's draft model makes them, at most `count`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """What one step computes: never nothing of everything. A slot is in `decodes`, in one chunk or in one verification,
    not in two of them."""

    step: int
    swaps_out: tuple[Copy, ...] = ()
    swaps_in: tuple[Copy, ...] = ()
    joins: tuple[Join, ...] = ()
    new_pages: tuple[NewPages, ...] = ()
    decodes: tuple[int, ...] = ()
    """Slots whose last known token is computed and the next one sampled. The worker's tables say which position that
    is: the value of a token that it sampled in an earlier step is taken from there, since the plan may be made before
    that value has come back. The same object as in the step before while nobody joins or leaves."""
    chunks: tuple[Chunk, ...] = ()
    verifications: tuple[Verification, ...] = ()

    @property
    def num_tokens(self) -> int:
        return len(self.decodes) + sum(chunk.count for chunk in self.chunks) + self._num_verified

    @property
    def num_samples(self) -> int:
        """Rows of logits that are wanted."""
        return len(self.decodes) + sum(chunk.samples for chunk in self.chunks) + self._num_verified

    @property
    def num_sequences(self) -> int:
        return len(self.decodes) + len(self.chunks) + len(self.verifications)

    @property
    def _num_verified(self) -> int:
        return sum(1 + each.count for each in self.verifications)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log-probabilities from the distribution before temperature and filters; always finite."""

    chosen: float
    """Of the token that was sampled."""
    top_ids: tuple[int, ...]
    """The most likely tokens, best first; as many as `num_logprobs` asked for."""
    top: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification brought."""

    num_guesses: int
    """That were checked: what the plan says, or what the draft model made, maybe none."""
    num_tokens: int
    """The guesses that were right, and the token after them: 1 to `num_guesses` + 1."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What the worker returns: a token for each slot of `decodes`, then one for each chunk with `samples`, then those
    of the verifications, as many as `verified` says of each."""

    step: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs | None, ...]
    """As long as `token_ids`; None where none were asked for."""
    execute_seconds: float
    swap_seconds: float = 0.0
    """Of these, time spent on copies."""
    op_seconds: Mapping[str, float] | None = None
    """By op, where this step was timed: they sum to `execute_seconds`."""
    verified: tuple[Verified, ...] = ()
    """One for each of the plan's verifications."""
