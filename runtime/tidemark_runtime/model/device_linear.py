"""Weights on a device: one form for each way a checkpoint holds a matrix (`linear_forms.device`).

Nothing is measured at the start, as it is on a processor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tidemark_runtime.model import linear, tensors
from tidemark_runtime.model.linear_forms import base
from tidemark_runtime.model.linear_forms import device as device_forms
from tidemark_runtime.model.linear_forms import rounding as rounding_forms


def policy(dtype: torch.dtype, quantization: str, *, has_kernels: bool) -> linear.LinearPolicy:
    """`quantization` as in `model.quantization`, of the values that a device has. Without kernels groups are expanded:
    only ours read them."""
    if quantization == "none" or not has_kernels:
        return linear.LinearPolicy(dtype)
    groups = linear.FormsByRows.always(linear.Form.GROUPED)
    forms = {linear.Storage.GROUPED4: groups, linear.Storage.GROUPED8: groups}
    rounding = quantization if quantization in rounding_forms.WEIGHT_ONLY else None
    return linear.LinearPolicy(dtype, forms, rounding=rounding)


class DeviceFactory(linear.LinearFactory):
    """Puts each matrix on `device`; the host's copy is let go."""

    def __init__(self, wanted: linear.LinearPolicy, device: torch.device) -> None:
        super().__init__(wanted)
        self._device = device

    def embedding(self, table: tensors.HostTensor) -> linear.Embedding:
        """`table` [V, H]."""
        made = device_forms.make_device_embedding(self._held(table), self.policy.dtype, self._device)
        self._paths.setdefault("embedding", set()).add(made.path)
        self._num_bytes += made.num_bytes
        return made

    def head(self, source: tensors.HostTensor | linear.Embedding) -> linear.Linear:
        """The output layer, logits in float32; given an embedding it shares its memory (tied weights)."""
        if isinstance(source, torch.Tensor | tensors.Grouped):
            made = device_forms.make_device_head(self._held(source), self.policy.dtype, self._device)
            return self._note("head", made)
        return self._note("head", source.as_head())

    def _make_run(self, parts: Sequence[tensors.HostTensor], bias: torch.Tensor | None) -> base.Linear:
        held = [self._held(part) for part in parts]
        return device_forms.make_device_form(held, bias, self.policy.dtype, self._device)

    def _held(self, part: tensors.HostTensor) -> tensors.HostTensor:
        """Groups where the policy keeps them, else dense."""
        form = self.policy.forms_for(linear.storage_of(part)).few
        return part if form is linear.Form.GROUPED or isinstance(part, torch.Tensor) else part.dequantize()
