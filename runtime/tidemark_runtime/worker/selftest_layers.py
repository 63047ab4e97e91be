"""The model's own finished layers against rows of the checkpoint they were made of: what `model.probes` kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidemark_kernels import dispatch
from tidemark_kernels.selftests import outcomes
from tidemark_runtime import errors as runtime_errors
from tidemark_runtime.model import linear_choice, probes

_SEED = 20_25
_FEW_ROWS = (1, 3)
_BY_ROWS = "rows<="
"""In the path of a layer with a second form for many rows."""

EIGHT_BIT_TOLERANCE = 0.15
"""Weights or activations in 8 bits: one code of 127 of a row's largest is 0.03 root mean squares, in both; largest of
some hundred outputs. A wrong scale, code or row differs by more than 1."""
FLOAT8_TOLERANCE = 0.4
"""E4M3 has a step of 1/16 of each weight."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the weights, in one use."""

    use: str
    path: str
    outcome: outcomes.Outcome


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A layer that no kernel of the processor computes: nothing is counted."""

    row_counts: tuple[int, ...]
    """One for each form of launch."""


def run(probe: probes.Probe, dtype: torch.dtype, on_device: OnDevice | None = None) -> Form:
    """`dtype`: of activations. The layer's outputs at the kept rows; an embedding's rows.

    Raises `CorruptModel` where the checkpoint itself holds no numbers: that is no kernel's fault.
    """
    refuse_damaged(probe)
    before = None if on_device else dispatch.current().calls
    row_counts = on_device.row_counts if on_device else _row_counts(probe)
    errors = (
        [_embedding(probe, dtype)]
        if probe.use == "embedding"
        else [_product(probe, dtype, num_rows) for num_rows in row_counts]
    )
    name = _dtype_name(probe, dtype, [] if before is None else dispatch.current().ran(before))
    note = f"{probe.name}, {probe.path}, {len(probe.rows)} of its outputs"
    return Form(probe.use, probe.path, outcomes.Outcome(probe.use, name, max(errors), tolerance(probe, dtype), note))


def refuse_damaged(probe: probes.Probe, prefix: str = "") -> None:
    """Raises `CorruptModel`, its message beginning with `prefix`, where the checkpoint itself holds no numbers."""
    if bool(probe.weight.isfinite().all()) and (probe.bias is None or bool(probe.bias.isfinite().all())):
        return
    raise runtime_errors.CorruptModel(
        f"{prefix}{probe.name}: the checkpoint has an infinity or a NaN in it, expected numbers. Fetch the model "
        "again, or quantize or convert it again"
    )


def tolerance(probe: probes.Probe, dtype: torch.dtype) -> float:
    """By the coarsest of: activations, what the form rounds weights to, what it rounds activations to."""
    if "e4m3" in probe.path and not any(each.is_float for each in probe.formats):
        return FLOAT8_TOLERANCE
    rounds_weights = ("grouped8" in probe.path or "packed8" in probe.path) and not probe.formats
    if "int8" in probe.path or rounds_weights:
        return EIGHT_BIT_TOLERANCE
    exact = dtype is torch.float32 and "bfloat16" not in probe.path
    return outcomes.FLOAT32_TOLERANCE if exact else outcomes.BFLOAT16_TOLERANCE


def _row_counts(probe: probes.Probe) -> tuple[int, ...]:
    if probe.use == "head":  # the largest matrix, and as a rule one row for each sequence
        return (1,)
    return (*_FEW_ROWS, linear_choice.MANY_ROWS) if _BY_ROWS in probe.path else _FEW_ROWS


def _product(probe: probes.Probe, dtype: torch.dtype, num_rows: int) -> float:
    seeded = torch.Generator().manual_seed(_SEED)
    x = torch.randn(num_rows, probe.weight.shape[1], generator=seeded).to(dtype)
    have = probe.layer(x).index_select(1, probe.rows)
    want = x.double() @ probe.weight.double().T
    return outcomes.difference(have, want if probe.bias is None else want + probe.bias)


def _embedding(probe: probes.Probe, dtype: torch.dtype) -> float:
    return outcomes.difference(probe.layer(probe.rows), probe.weight.to(dtype))


def _dtype_name(probe: probes.Probe, dtype: torch.dtype, ran: list[dispatch.OpPath]) -> str:
    """Of our kernels what they counted; of torch's, what the form is called, else the activations'."""
    if ran:
        return " ".join(sorted({each.dtype for each in ran}))
    return "bfloat16" if probe.path.startswith("bfloat16") else dispatch.dtype_name(dtype)
