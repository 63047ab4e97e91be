"""What a test of a device op is made of, so that one test can count which op lacks which kind of case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

KINDS = (
    "odd shape",
    "one token",
    "empty",
    "page border",
    "every dtype",
    "precision map",
    "poisoned output",
    "poisoned pages",
    "permuted pages",
)
"""Every op needs a case of every kind, unless its `LACKS` says why not."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One result beside what the reference says in float64."""

    got: torch.Tensor
    expected: torch.Tensor
    tolerance: float
    """Of the largest difference, as a share of the root mean square of `expected`; 0: equal bits."""


@dataclass(frozen=True, slots=True)
class Case:
    """Runs one op once, under the interpreter."""

    op: str
    """Name of the function in `tidemark_kernels.device`, for example `paged_attention`."""
    name: str
    covers: frozenset[str]
    """Of KINDS."""
    run: Callable[[], list[Compared]]

    def __str__(self) -> str:
        return f"{self.op}-{self.name}"


def check(case: Case) -> None:
    """NaN where the reference has NaN, and nowhere else; differences within the tolerance."""
    for index, one in enumerate(case.run()):
        got, expected = one.got.double(), one.expected.double()
        assert got.shape == expected.shape, f"{case} [{index}]: shape {got.shape}, expected {expected.shape}"
        assert torch.equal(got.isnan(), expected.isnan()), f"{case} [{index}]: NaN in other places than expected"
        got, expected = got.nan_to_num(), expected.nan_to_num()
        if not expected.numel():
            continue
        scale = max(expected.square().mean().sqrt().item(), 1e-30)
        error = (got - expected).abs().max().item() / scale
        assert error <= one.tolerance, f"{case} [{index}]: error {error:.3g}, expected at most {one.tolerance:g}"
