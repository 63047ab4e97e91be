"""From a checkpoint to a model that computes."""

from __future__ import annotations

from tidemark_runtime.model import batch, linear, registry, weights
from tidemark_runtime.model import checkpoint as checkpoints


def load(checkpoint: checkpoints.Checkpoint, factory: linear.LinearFactory, progress: weights.Progress) -> batch.Model:
    """Build the model, matrix after matrix, so that beside the finished ones only one is in work.

    Raises CorruptModel for missing tensors and wrong shapes, UnsupportedModel for tensors that have no place.
    """
    spec = checkpoint.spec
    source = weights.Weights(checkpoint, factory, progress)
    model = registry.FAMILIES[spec.architecture](spec, source)
    source.refuse_leftovers(lambda name: _has_no_effect(name, spec.tie_embeddings))
    progress("done", 1.0)
    return model


def _has_no_effect(name: str, tie_embeddings: bool) -> bool:
    """Tensors that old checkpoints carry and whose values follow from the rest."""
    return name.endswith(".rotary_emb.inv_freq") or (tie_embeddings and name == "lm_head.weight")
