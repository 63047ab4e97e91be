"""What a model's layers ask of whatever computes. Handed down from whoever loads the model; nothing is looked up.

Matrix products are not here: a matrix is turned into a callable where it is loaded (`model.linear`). What is here is
looked up once, when a layer is made, so that a call costs what calling the op itself costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from tidemark_kernels import steps
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import rotary


class RmsNorm(Protocol):
    """x `[num_tokens, width]` -> normalised x; `residual`, where given, becomes `residual + x` and is normalised."""

    def __call__(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        residual: torch.Tensor | None = None,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor: ...


class SiluMul(Protocol):
    """gate_up `[num_tokens, 2 * width]`, gate first -> silu(gate) * up `[num_tokens, width]`."""

    def __call__(self, gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor: ...


class Attention(Protocol):
    """One step's attention, all layers: what their tables share has been checked and prepared."""

    def attend(
        self,
        qkv: torch.Tensor,
        layer: int,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """qkv `[num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]` -> `[num_tokens, num_heads * head_dim]`.

        K and V of the tokens are in their pages afterwards.
        """
        ...


Begin = Callable[[batches.ForwardBatch, batches.KVMemory], Attention]
"""Begins a step. Raises `ValueError` naming what does not fit."""


class Backend(Protocol):
    """One way of computing."""

    @property
    def device(self) -> torch.device:
        """Where weights lie and steps compute."""
        ...

    @property
    def rms_norm(self) -> RmsNorm: ...

    @property
    def silu_mul(self) -> SiluMul: ...

    def attention(self, shape: steps.HeadShape, turns: rotary.Rotary) -> Begin:
        """What begins the steps of a model."""
        ...
