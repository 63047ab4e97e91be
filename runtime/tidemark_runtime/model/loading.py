"""From a checkpoint to a model that computes."""

from __future__ import annotations

import torch

from tidemark_runtime.model import batch, linear, parallel, probes, registry, weights
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model.backends import base as backends


def load(
    checkpoint: checkpoints.Checkpoint,
    factory: linear.LinearFactory,
    progress: weights.Progress,
    kept: probes.Probes | None = None,
    backend: backends.Backend | None = None,
    group: parallel.Group = parallel.ALONE,
) -> batch.Model:
    """Build the model, matrix after matrix, so that beside the finished ones only one is in work; `kept`
    gets some rows of each kind of matrix, to test the finished layers with. `backend`: the processor, where not said.
    `group`: of the ranks that share the model, where `checkpoint` is one's part (`sharded_checkpoint`).

    Raises CorruptModel for missing tensors and wrong shapes, UnsupportedModel for tensors that have no place.
    """
    spec = checkpoint.spec
    source = weights.Weights(checkpoint, factory, progress, kept, backend, group)
    model = registry.FAMILIES[spec.architecture](spec, source)
    source.refuse_leftovers(lambda name: _has_no_effect(name, checkpoint))
    progress("done", 1.0)
    return model


def _has_no_effect(name: str, checkpoint: checkpoints.Checkpoint) -> bool:
    """Tensors that old checkpoints carry and whose values follow from the rest, or that add nothing.

    AutoGPTQ wrote a bias of zeros for every matrix.
    """
    if name.endswith(".rotary_emb.inv_freq") or (checkpoint.spec.tie_embeddings and name == "lm_head.weight"):
        return True
    if not name.endswith(".bias"):
        return False
    bias = checkpoint.tensor(name)
    return isinstance(bias, torch.Tensor) and not bool(bias.any())
