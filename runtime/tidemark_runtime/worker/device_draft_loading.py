"""Loads the draft model of speculative decoding onto a device, before the slab is sized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tidemark_kernels import device_dispatch
from tidemark_runtime import config
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import device_linear, probes, sources
from tidemark_runtime.model import loading as model_loading
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.model.backends import device as device_backend
from tidemark_runtime.planning import capacity, page_layout
from tidemark_runtime.worker import accelerators, device_draft, draft_loading, loading

Choose = Callable[[model_spec.ModelSpec, page_layout.PageLayout], device_dispatch.Choices]
"""Which path each op of a model runs; raises KernelPathError as strict kernels want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """A model that has no pages yet."""

    model: batches.Model
    layout: page_layout.PageLayout
    weights_bytes: int
    choices: device_dispatch.Choices
    device: torch.device

    def parts(self, num_pages: int, num_host_pages: int, token_bytes: int) -> device_draft.Parts:
        """With a slab of so many pages. `token_bytes`: planned of its activations for each token."""
        slab = torch.zeros((num_pages, self.layout.page_bytes), dtype=torch.uint8, device=self.device)
        memory = batches.KVMemory.of(slab, self.layout)
        return device_draft.Parts(
            model=self.model,
            memory=memory,
            num_host_pages=num_host_pages,
            choices=self.choices,
            token_bytes=token_bytes,
        )


def load(
    draft_model: str,
    wanted: draft_loading.Wanted,
    accelerator: accelerators.Accelerator,
    dtype: torch.dtype,
    choose: Choose,
    progress: model_weights.Progress,
) -> Drafted:
    """`draft_model`: its path; `dtype`: of activations. Its weights stay as its files hold them. Raises ModelError,
    ConfigError where it cannot guess for that model, and what `choose` raises."""
    checkpoint, layout = draft_loading.open_for(sources.resolve_draft(draft_model, Path()), wanted)
    choices = choose(checkpoint.spec, layout)
    backend = device_backend.Device(accelerator.device, choices, wanted.max_context_tokens)
    policy = device_linear.policy(dtype, config.AUTO, has_kernels=not accelerator.kernels)
    factory = device_linear.DeviceFactory(policy, accelerator.device)
    kept = probes.Probes()
    with torch.inference_mode():
        model = model_loading.load(checkpoint, factory, draft_loading.told(progress), kept, backend=backend)
    draft_loading.refuse_damaged(kept)
    return Drafted(
        model=model, layout=layout, weights_bytes=factory.num_bytes, choices=choices, device=accelerator.device
    )


def speculation(
    settings: config.SpeculativeConfig, drafted: Drafted | None, dtype: torch.dtype
) -> capacity.Speculation:
    """What guesses take of the device; indexes of texts are in the host's memory. `dtype`: of activations."""
    if settings.method == "none":
        return capacity.Speculation()
    if drafted is None:
        return capacity.guessing(settings.tokens)
    shape = loading.shape_of(drafted.model.spec, drafted.weights_bytes)
    return capacity.guessing(
        settings.tokens, draft=shape, draft_page_bytes=drafted.layout.page_bytes, item_bytes=dtype.itemsize
    )
