"""RMS norm, and silu times up."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tidemark_kernels import dispatch, ops, reference
from tidemark_kernels.selftests import outcomes, target

_ROWS = 3
_EPS = 1e-5


def rms_norm(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    """Alone, one row, and with a residual that grows in place."""
    name, tolerance = dispatch.dtype_name(given.dtype), outcomes.TOLERANCES[given.dtype]
    weight = torch.randn(given.hidden_size, generator=seeded)
    x, residual = (torch.randn(_ROWS, given.hidden_size, generator=seeded).to(given.dtype) for _ in range(2))
    for rows in (1, _ROWS):
        room = outcomes.poisoned(rows, given.hidden_size, given.dtype)
        have = ops.rms_norm(x[:rows], weight, _EPS, out=room)
        want = reference.rms_norm(x[:rows], weight, _EPS, compute=torch.float64)
        error = outcomes.difference(have, want)
        yield outcomes.Outcome("rms_norm", name, error, tolerance, f"{rows} rows of {given.hidden_size}")
    have_sum, want_sum = residual.clone(), residual.clone()
    have = ops.rms_norm(x.clone(), weight, _EPS, have_sum)
    want = reference.rms_norm(x, weight, _EPS, want_sum, compute=torch.float64)
    for what, error in (
        ("the residual's sum", outcomes.difference(have_sum, want_sum)),
        ("the norm of a residual's sum", outcomes.difference(have, want)),
    ):
        yield outcomes.Outcome("rms_norm", name, error, tolerance, what)


def silu_mul(given: target.Target, seeded: torch.Generator) -> Iterator[outcomes.Outcome]:
    """Gates from -12 to 12: both ends of the exponential."""
    name, tolerance = dispatch.dtype_name(given.dtype), outcomes.TOLERANCES[given.dtype]
    for rows in (1, _ROWS):
        gate_up = (torch.randn(rows, 2 * given.intermediate_size, generator=seeded) * 4).clamp(-12, 12).to(given.dtype)
        have = ops.silu_mul(gate_up, outcomes.poisoned(rows, given.intermediate_size, given.dtype))
        want = reference.silu_mul(gate_up, torch.float64)
        note = f"{rows} rows of {given.intermediate_size}"
        yield outcomes.Outcome("silu_mul", name, outcomes.difference(have, want), tolerance, note)
