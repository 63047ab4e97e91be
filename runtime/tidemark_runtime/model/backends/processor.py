"""The processor: our C kernels, or plain torch where there is no compiler (`tidemark_kernels.ops`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemark_kernels import ops, steps
from tidemark_kernels import segments as segments_module
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import rotary
from tidemark_runtime.model.backends import base


class Processor:
    """Implements `base.Backend`."""

    device = torch.device("cpu")
    rms_norm = staticmethod(ops.rms_norm)
    silu_mul = staticmethod(ops.silu_mul)

    def attention(self, shape: steps.HeadShape, turns: rotary.Rotary) -> base.Begin:
        def begin(batch: batches.ForwardBatch, memory: batches.KVMemory) -> base.Attention:
            cos, sin = turns.at(batch.positions)
            tables = steps.StepTables(
                slab=memory.slab,
                block_size=memory.block_size,
                cos=cos,
                sin=sin,
                token_page=batch.token_page,
                token_row=batch.token_row,
                page_table=batch.page_table,
                query_start=batch.query_start,
                context_lens=batch.context_lens,
            )
            return _Attention(steps.AttentionStep(shape, tables), memory.segments)

        return begin


class _Attention:
    """Implements `base.Attention`."""

    __slots__ = ("_attend", "_segments")

    def __init__(self, step: steps.AttentionStep, segments: Sequence[segments_module.LayerSegments]) -> None:
        self._attend = step.attend
        self._segments = segments

    def attend(
        self,
        qkv: torch.Tensor,
        layer: int,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        return self._attend(qkv, self._segments[layer], q_norm, k_norm, scale, window)
