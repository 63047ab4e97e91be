"""What is kept of a checkpoint's matrices until the self-test: some rows, to hold the finished layers against.

One layer of each kind: use, form, width, and how the checkpoint stores it. Another of a kind costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tidemark_kernels.selftests import target
from tidemark_runtime.model import tensors

_ROWS_AT_EACH_END = 24
"""More than a panel of the widest vectors; the last ones lie in one that may be mostly padding."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A finished layer, and rows of the matrices it was made of as the checkpoint says they are."""

    use: str
    """`linear`, `embedding` or `head`."""
    name: str
    """The first such layer, for messages."""
    path: str
    """The form: what is planned to compute it."""
    layer: Callable[[torch.Tensor], torch.Tensor]
    """Of `linear` and `head`: [T, K] -> [T, N]. Of `embedding`: ids [T] -> [T, K]."""
    rows: torch.Tensor
    """int64 [R], from 0 to N - 1."""
    weight: torch.Tensor
    """float32 [R, K]."""
    bias: torch.Tensor | None
    """float32 [R]."""
    formats: tuple[target.WeightFormat, ...]
    """How the checkpoint holds the parts that are in groups."""


class Probes:
    """Collects them while a model is built."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Probe] = {}

    @property
    def found(self) -> list[Probe]:
        """In the order of loading."""
        return list(self._found.values())

    def linear(
        self,
        name: str,
        path: str,
        layer: Callable[[torch.Tensor], torch.Tensor],
        parts: Sequence[tensors.HostTensor],
        bias: torch.Tensor | None,
    ) -> None:
        self._keep("linear", name, path, layer, parts, bias)

    def embedding(self, path: str, layer: Callable[[torch.Tensor], torch.Tensor], table: tensors.HostTensor) -> None:
        self._keep("embedding", "the embedding", path, layer, [table], None)

    def head(self, path: str, layer: Callable[[torch.Tensor], torch.Tensor], matrix: tensors.HostTensor | None) -> None:
        """`matrix` None: the embedding's own table."""
        if matrix is not None:
            self._keep("head", "the output layer", path, layer, [matrix], None)
            return
        tied = next(probe for probe in self._found.values() if probe.use == "embedding")
        self._found["head",] = Probe(
            "head", "the output layer", path, layer, tied.rows, tied.weight, None, tied.formats
        )

    def _keep(
        self,
        use: str,
        name: str,
        path: str,
        layer: Callable[[torch.Tensor], torch.Tensor],
        parts: Sequence[tensors.HostTensor],
        bias: torch.Tensor | None,
    ) -> None:
        formats = tuple(dict.fromkeys(_format(part) for part in parts if isinstance(part, tensors.Grouped)))
        orders = tuple(isinstance(part, tensors.Grouped) and part.order is not None for part in parts)
        key = (use, path, parts[0].shape[1], formats, orders, bias is None)
        if key not in self._found:
            rows = _ends(sum(part.shape[0] for part in parts))
            weight = _rows_of(parts, rows)
            kept = None if bias is None else bias[rows].to(torch.float32)
            self._found[key] = Probe(use, name, path, layer, rows, weight, kept, formats)


def _ends(num_rows: int) -> torch.Tensor:
    """The first and the last rows; all of a small matrix."""
    if num_rows <= 2 * _ROWS_AT_EACH_END:
        return torch.arange(num_rows)
    return torch.cat((torch.arange(_ROWS_AT_EACH_END), torch.arange(num_rows - _ROWS_AT_EACH_END, num_rows)))


def _rows_of(parts: Sequence[tensors.HostTensor], rows: torch.Tensor) -> torch.Tensor:
    """float32 [R, K] of the matrix that `parts` make, one under the other."""
    found = []
    start = 0
    for part in parts:
        stop = start + part.shape[0]
        inside = rows[(rows >= start) & (rows < stop)] - start
        if len(inside):
            some = part.rows(inside).dequantize() if isinstance(part, tensors.Grouped) else part[inside]
            found.append(some.to(torch.float32))
        start = stop
    return torch.cat(found)


def _format(part: tensors.Grouped) -> target.WeightFormat:
    offset = "min" if part.mins is not None else "zero" if part.zeros is not None else ""
    is_float = part.quants.dtype is torch.float8_e4m3fn
    return target.WeightFormat(part.shape[1], part.bits, part.group_size, offset, is_float)
