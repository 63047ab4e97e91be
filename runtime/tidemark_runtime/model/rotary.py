"""Rotary positions (Su et al., arXiv 2104.09864): the angles by which a step's tokens turn their heads."""

from __future__ import annotations

import math

import torch

from tidemark_runtime.model import spec as model_spec


class Rotary:
    """Cosines and sines of a model's rotary frequencies, computed for the positions of a step.

    On a processor no table: for a context of 131072 it would take 64 MB, and a step's few rows cost some microseconds.
    A device has one, made of these, because each op is a launch there.
    """

    def __init__(self, spec: model_spec.ModelSpec) -> None:
        self._frequencies = frequencies(spec)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """positions int64 [T] -> (cos, sin), float32 [T, rope_dim / 2].

        In float64 until the end: at position 100000 a float32 angle is off by up to 0.004.
        """
        angles = positions.to(torch.float64).unsqueeze(1) * self._frequencies
        return angles.cos().to(torch.float32), angles.sin().to(torch.float32)


def frequencies(spec: model_spec.ModelSpec) -> torch.Tensor:
    """Radians per position, float64 [rope_dim / 2], scaling applied."""
    exponents = torch.arange(0, spec.rope_dim, 2, dtype=torch.float64) / spec.rope_dim
    plain = spec.rope_theta**-exponents
    match spec.rope_scaling:
        case None:
            return plain
        case model_spec.LinearScaling(factor):
            return plain / factor
        case model_spec.FactorScaling(factors):
            return plain / torch.tensor(factors, dtype=torch.float64)
        case model_spec.Llama3Scaling() as scaling:
            return _llama3(plain, scaling)


def _llama3(plain: torch.Tensor, scaling: model_spec.Llama3Scaling) -> torch.Tensor:
    """Kept where the original context holds more than `high_freq_factor` turns, divided where it holds fewer than
    `low_freq_factor`, blended between (Llama 3.1 release, `apply_scaling`)."""
    turns = scaling.original_max_context_tokens * plain / (2 * math.pi)
    kept_share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept_share = kept_share.clamp(0.0, 1.0)
    return kept_share * plain + (1.0 - kept_share) * plain / scaling.factor
