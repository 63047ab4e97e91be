"""What a self-test says, and how far a result may lie from its reference."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch

FLOAT32_TOLERANCE = 1e-4
"""Sums of some thousand float32 products differ by 1e-6 where only their order does; a wrong sum differs by 1."""
BFLOAT16_TOLERANCE = 3e-2
"""One rounding of the largest elements, four times the root mean square: 4 * 2^-8, and a margin of two."""

TOLERANCES: Mapping[torch.dtype, float] = MappingProxyType(
    {torch.float32: FLOAT32_TOLERANCE, torch.bfloat16: BFLOAT16_TOLERANCE}
)
"""By the dtype of activations."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """One op in one dtype: how far its result was from the reference."""

    op: str
    dtype: str
    error: float
    """The largest difference, over the root mean square of what the reference says: `difference`."""
    tolerance: float
    """0: they must be equal, bit for bit or as numbers."""
    note: str = ""
    """What was compared, in words, for the message of a failure."""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance

    @property
    def severity(self) -> float:
        """To find the worst of several; above 1 it has failed."""
        if self.tolerance:
            return self.error / self.tolerance
        return math.inf if self.error else 0.0


def difference(have: torch.Tensor, want: torch.Tensor) -> float:
    """Largest |have - want| over the root mean square of `want`; infinite where either is no finite number."""
    have, want = have.double(), want.double()
    if not bool(have.isfinite().all()) or not bool(want.isfinite().all()):
        return math.inf
    size = float(want.square().mean().sqrt())
    largest = float((have - want).abs().max())
    return largest / size if size else (math.inf if largest else 0.0)


def poisoned(num_rows: int, width: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Room for a result, full of NaN: what a kernel leaves out is seen; fresh memory may hold an old result."""
    return torch.full((num_rows, width), math.nan, dtype=dtype)


def equal(have: torch.Tensor, want: torch.Tensor) -> float:
    """An error for tolerance 0: 0 where they are equal, else their difference, and never 0."""
    return 0.0 if torch.equal(have, want) else max(difference(have, want), math.ulp(0.0))


def worst(found: Iterable[Outcome]) -> list[Outcome]:
    """The worst of each op and dtype, sorted."""
    kept: dict[tuple[str, str], Outcome] = {}
    for outcome in found:
        before = kept.setdefault((outcome.op, outcome.dtype), outcome)
        if (outcome.ok, outcome.severity) != (before.ok, before.severity) and outcome.severity > before.severity:
            kept[outcome.op, outcome.dtype] = outcome
    return [kept[key] for key in sorted(kept)]
