"""The table of self-tests: one for each op. A test discovers the ops and fails for one without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

import torch

from tidemark_kernels.selftests import attention, elementwise, outcomes, products, target

SelfTest = Callable[[target.Target, torch.Generator], Iterator[outcomes.Outcome]]

EVERY: Mapping[str, SelfTest] = MappingProxyType(
    {
        "dense_linear_f32": products.dense_linear_f32,
        "grouped_linear": products.grouped_linear,
        "grouped_linear_int8": products.grouped_linear_int8,
        "grouped_rows": products.grouped_rows,
        "half_linear": products.half_linear,
        "half_rows": products.half_rows,
        "paged_attention": attention.steps_of_layers,
        "rms_norm": elementwise.rms_norm,
        "rope_and_write": attention.steps_of_layers,
        "silu_mul": elementwise.silu_mul,
    }
)
"""Op -> its self-test: yields as many outcomes as it compares things. One may test two ops that run together."""

_SEED = 20_25
"""The same numbers at each start: what fails once fails again."""


def run(given: target.Target, op_names: Collection[str]) -> list[outcomes.Outcome]:
    """The worst outcome of each op and dtype, sorted. Raises `KeyError` for an op without a self-test."""
    found: list[outcomes.Outcome] = []
    with torch.inference_mode():
        for self_test in dict.fromkeys(EVERY[name] for name in sorted(op_names)):
            found += self_test(given, torch.Generator().manual_seed(_SEED))
    return outcomes.worst(outcome for outcome in found if outcome.op in op_names)
