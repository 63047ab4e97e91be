"""How long a step takes on a device that is not here: two formulas behind one door.

*Roofline*, from published figures of a device and a model:

    memory  = (weights bytes + KV token bytes x (tokens read + tokens computed)) / (bandwidth x its efficiency)
    compute = (2 x parameters x tokens computed + 4 x layers x heads x head dim x pairs) / (FLOP/s x its efficiency)
    copies  = page bytes x pages copied / (link bytes/s x its efficiency)
    seconds = overhead + max(memory, compute)             and copies beside it, or after it (`overlaps_copies`)

The weights are read once a step, however many sequences share it; each decode reads its whole context; a chunk of a
prompt reads its context once and computes a (token, KV token) pair for each token it attends to. Two FLOPs a
parameter and token are the multiply and the add of the matrix products; four a pair and head dimension those of QK^T
and PV. (Williams, Waterman, Patterson, "Roofline", CACM 2009.) What the formula leaves out: activations, the
difference between prompt and decode kernels, how well small shapes fill a device. The efficiencies and the overhead
stand for those.

*Linear*, from measured steps: the prices that a running engine has fitted (`core.step_time`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidemark_runtime.core import step_time


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Of one step."""

    total: float
    copies: float
    """Of these, by how much copies made it longer."""


class StepCost(Protocol):
    """Answers how long a step takes. Pure."""

    @property
    def page_copy_seconds(self) -> float:
        """One page between slab and swap space, one way; 0 where there is no swap space."""
        ...

    def seconds(self, work: step_time.Work, prompt_tokens_read: int, num_copies: int) -> StepSeconds:
        """Of a step that holds `work` and copies `num_copies` pages, out and in together.

        `prompt_tokens_read`: KV tokens that the step's chunks read, each chunk its context once.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineCost:
    """See the head of this module. Bytes, FLOPs and seconds."""

    weights_bytes: int
    num_params: int
    attention_flops_a_pair: int
    """4 x layers x heads x head dim."""
    kv_token_bytes: float
    page_bytes: int
    bandwidth: float
    """Bytes/s that are reached."""
    flops: float
    """FLOP/s that are reached."""
    link_bandwidth: float
    """Bytes/s that are reached between the device and its host, one way."""
    overhead_seconds: float
    overlaps_copies: bool = True
    """Copies run beside the computation, on an engine of their own, and the step is done when both are."""

    @property
    def page_copy_seconds(self) -> float:
        return self.page_bytes / self.link_bandwidth

    def seconds(self, work: step_time.Work, prompt_tokens_read: int, num_copies: int) -> StepSeconds:
        tokens = work.decodes + work.prompt_tokens
        busy = 0.0
        if tokens:
            kv_tokens = work.tokens_read + prompt_tokens_read + tokens
            memory = (self.weights_bytes + self.kv_token_bytes * kv_tokens) / self.bandwidth
            pairs = work.pairs + work.tokens_read
            compute = (2.0 * self.num_params * tokens + self.attention_flops_a_pair * pairs) / self.flops
            busy = max(memory, compute)
        copies = num_copies * self.page_copy_seconds
        longer = max(0.0, copies - busy) if self.overlaps_copies else copies
        return StepSeconds(self.overhead_seconds + busy + longer, longer)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """The formula of `core.step_time`, with prices in seconds. Copies come on top, as they do on a processor."""

    base: float
    decode: float
    prompt_token: float
    token_read: float
    pair: float
    page_copy_seconds: float = 0.0

    def seconds(self, work: step_time.Work, prompt_tokens_read: int, num_copies: int) -> StepSeconds:
        busy = (
            self.base
            + self.decode * work.decodes
            + self.prompt_token * work.prompt_tokens
            + self.token_read * work.tokens_read
            + self.pair * work.pairs
        )
        copies = num_copies * self.page_copy_seconds
        return StepSeconds(busy + copies, copies)
