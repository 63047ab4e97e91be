"""Loads the draft model of speculative decoding, before the slab is sized: its pages are as many as the model's.

`open_for` is of processors and devices; `load` makes the processor's model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import linear, probes, sources
from tidemark_runtime.model import loading as model_loading
from tidemark_runtime.model import weights as model_weights
from tidemark_runtime.planning import page_layout
from tidemark_runtime.worker import draft_model, selftest_layers, slab

_KEY = "speculative.draftModel"


@dataclass(frozen=True, slots=True)
class Drafted:
    """A model that has no pages yet."""

    model: batches.Model
    layout: page_layout.PageLayout
    weights_bytes: int

    def parts(self, num_pages: int, num_host_pages: int) -> draft_model.Parts:
        """With a slab of so many pages. Raises CapacityError where the system refuses it."""
        memory = batches.KVMemory.of(slab.allocate(num_pages, self.layout.page_bytes), self.layout)
        return draft_model.Parts(self.model, memory, num_host_pages)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the first model has decided."""

    max_context_tokens: int
    kv_dtype: str
    block_size: int
    num_ranks: int


def load(
    source: sources.ModelSource,
    wanted: Wanted,
    policy_of: Callable[[checkpoints.Checkpoint], linear.LinearPolicy],
    progress: model_weights.Progress,
) -> Drafted:
    """Raises as `open_for`, and ModelError."""
    checkpoint, layout = open_for(source, wanted)
    with torch.inference_mode():
        factory, kept = linear.LinearFactory(policy_of(checkpoint)), probes.Probes()
        model = model_loading.load(checkpoint, factory, told(progress), kept)
    refuse_damaged(kept)
    return Drafted(model, layout, factory.num_bytes)


def open_for(source: sources.ModelSource, wanted: Wanted) -> tuple[checkpoints.Checkpoint, page_layout.PageLayout]:
    """Its files and what its pages hold. Raises ModelError, or ConfigError where it cannot guess for that model. That
    the tokenizers are the same is checked by who has them (`text.vocabulary`)."""
    checkpoint = checkpoints.open_checkpoint(source)
    problems = list(_problems(source, checkpoint, wanted))
    if problems:
        raise errors.ConfigError(problems)
    return checkpoint, page_layout.PageLayout(checkpoint.spec.kv_shape, wanted.block_size, wanted.kv_dtype)


def refuse_damaged(kept: probes.Probes) -> None:
    """Raises CorruptModel where a matrix that was kept of the draft model holds no numbers. Its kernels are not held
    against references as the model's are: a guess that is wrong changes no text, but one of NaN ends the engine."""
    for probe in kept.found:
        selftest_layers.refuse_damaged(probe, f"{_KEY}: ")


def told(progress: model_weights.Progress) -> model_weights.Progress:
    """With one phase for all of it."""
    return lambda _, share: progress("loading the draft model", share)


def _problems(source: sources.ModelSource, checkpoint: checkpoints.Checkpoint, wanted: Wanted) -> list[errors.Problem]:
    problems: list[errors.Problem] = []
    own = checkpoint.spec.max_context_tokens
    if own < wanted.max_context_tokens:
        expected = f"a model for at least model.maxContextTokens, {wanted.max_context_tokens} tokens; it is for {own}"
        remedy = f"Set model.maxContextTokens to at most {own}, or name another draft model"
        problems.append(errors.Problem(_KEY, source.name, expected, remedy))
    if wanted.num_ranks > 1:
        expected = f"none where {wanted.num_ranks} devices share the model"
        problems.append(errors.Problem(_KEY, source.name, expected, "Choose the method ngram, or one device"))
    return problems
