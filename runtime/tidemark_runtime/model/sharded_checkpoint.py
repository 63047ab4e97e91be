"""A checkpoint as one rank of several sees it: its own rows or inputs of each matrix, and a spec to match.

What is cut is what the file holds, before it gets the form in which it computes: each rank packs its part alone, and
where the format allows (`Checkpoint.part`) nothing else of a quantized matrix is unpacked.
Groups are never cut: a group's scale is of all its inputs, and half a group in a form that computes group by group
would be another number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import checkpoint as checkpoints
from tidemark_runtime.model import packing, parallel, tensors
from tidemark_runtime.model import spec as model_spec

_Spec = model_spec.ModelSpec
_Shard = parallel.Shard


@dataclass(frozen=True, slots=True)
class Cut:
    """`own` of the `total` elements along `dim` of a tensor: 0 outputs, 1 inputs."""

    dim: int
    own: range
    total: int


def _heads(spec: _Spec, shard: _Shard) -> tuple[range, int]:
    return _times(shard.part(spec.num_heads), spec.head_dim), spec.num_heads * spec.head_dim


def _kv_heads(spec: _Spec, shard: _Shard) -> tuple[range, int]:
    return _times(shard.kv_heads(spec.num_kv_heads), spec.head_dim), spec.num_kv_heads * spec.head_dim


def _inner(spec: _Spec, shard: _Shard) -> tuple[range, int]:
    return shard.part(spec.intermediate_size), spec.intermediate_size


def _tokens(spec: _Spec, shard: _Shard) -> tuple[range, int]:
    return shard.tokens(spec.vocab_size), spec.vocab_size


def _times(own: range, width: int) -> range:
    return range(own.start * width, own.stop * width)


_CUTS: Mapping[str, tuple[int, Callable[[_Spec, _Shard], tuple[range, int]]]] = MappingProxyType(
    {
        "q_proj": (0, _heads),
        "k_proj": (0, _kv_heads),
        "v_proj": (0, _kv_heads),
        "o_proj": (1, _heads),
        "gate_proj": (0, _inner),
        "up_proj": (0, _inner),
        "down_proj": (1, _inner),
        "embed_tokens": (0, _tokens),
        "lm_head": (0, _tokens),
    }
)
"""Last word of a matrix's name -> what it is cut along, and which part a rank has. All other tensors are whole."""


class ShardedCheckpoint:
    """Implements `checkpoint.Checkpoint`: `inner`'s part of `shard`."""

    def __init__(self, inner: checkpoints.Checkpoint, shard: _Shard) -> None:
        """The shape has been checked to divide. Raises nothing; `tensor` raises for groups that do not divide."""
        self._inner = inner
        self._shard = shard
        self.whole: _Spec = inner.spec
        self.spec = own_spec(inner.spec, shard)
        self.packed: packing.Packing | None = inner.packed

    @property
    def num_bytes(self) -> int:
        """Of the whole: progress is told by it."""
        return self._inner.num_bytes

    def tensor_bytes(self, name: str) -> int:
        return self._inner.tensor_bytes(name)

    def names(self) -> frozenset[str]:
        return self._inner.names()

    def tensor(self, name: str) -> tensors.HostTensor:
        """The rank's part. Raises UnsupportedModel where a group would be cut or inputs are in act-order."""
        cut = self._cut_of(name)
        if cut is None:
            return self._inner.tensor(name)
        part = self._inner.part(name, cut.dim, cut.own, cut.total)
        if part is not None:
            return part
        found = self._inner.tensor(name)
        if found.shape[cut.dim] != cut.total:
            raise errors.CorruptModel(
                f"the tensor {name} has the shape {list(found.shape)}, expected {cut.total} along {_AXES[cut.dim]}"
            )
        return cut_out(name, found, cut, self._shard.size)

    def part(self, name: str, dim: int, own: range, total: int) -> tensors.HostTensor | None:
        """Of a part there are no parts."""
        return None

    def release(self, name: str) -> None:
        self._inner.release(name)

    def _cut_of(self, name: str) -> Cut | None:
        stem, _, kind = name.rpartition(".")
        dim, part = _CUTS.get(stem.rpartition(".")[2], (0, None))
        if part is None or (kind == "bias" and dim == 1):
            return None
        return Cut(dim, *part(self.whole, self._shard))


_AXES = ("its outputs", "its inputs")


def own_spec(spec: _Spec, shard: _Shard) -> _Spec:
    """What the rank's layers are made for. `vocab_size` stays: ids and logits are of all tokens."""
    return dataclasses.replace(
        spec,
        num_heads=len(shard.part(spec.num_heads)),
        num_kv_heads=len(shard.kv_heads(spec.num_kv_heads)),
        intermediate_size=len(shard.part(spec.intermediate_size)),
    )


def cut_out(name: str, found: tensors.HostTensor, cut: Cut, size: int) -> tensors.HostTensor:
    """`found`'s part of `cut`: a view of dense rows, else a copy. `size`: ranks, for messages.

    Raises UnsupportedModel, naming `name`, where a group would be cut or inputs are in act-order.
    """
    own = slice(cut.own.start, cut.own.stop)
    if isinstance(found, torch.Tensor):
        return found[own] if cut.dim == 0 else found[:, own].contiguous()
    return found.rows(own) if cut.dim == 0 else _inputs(name, found, cut, size)


def _inputs(name: str, found: tensors.Grouped, cut: Cut, size: int) -> tensors.Grouped:
    own, group_size = cut.own, found.group_size
    if found.order is not None:
        raise errors.UnsupportedModel(
            f"{name}: GPTQ's act-order (desc_act) puts inputs of all {size} ranks into each group of {group_size}, and "
            "a rank has only its own inputs. Quantize again without desc_act, or set hardware.tensorParallel to 1"
        )
    if own.start % group_size == 0 and own.stop % group_size == 0:
        groups = slice(own.start // group_size, own.stop // group_size)
    elif own.start // group_size == (own.stop - 1) // group_size and len(own) % packing.GROUP_MULTIPLE == 0:
        # All of one group, as where a row has one scale: a group of fewer inputs with the same scale.
        groups, group_size = slice(own.start // group_size, own.start // group_size + 1), len(own)
    else:
        raise errors.UnsupportedModel(
            f"{name}: {cut.total} inputs in groups of {group_size} cannot be divided among {size} ranks: "
            f"{len(own)} inputs each would cut a group. Set hardware.tensorParallel to a number that divides the "
            f"{cut.total // group_size} groups, or quantize again with a group_size that divides {len(own)}"
        )
    return dataclasses.replace(
        found,
        quants=found.quants.view(torch.uint8)[:, own.start : own.stop].contiguous().view(found.quants.dtype),
        scales=found.scales[:, groups].contiguous(),
        mins=None if found.mins is None else found.mins[:, groups].contiguous(),
        zeros=None if found.zeros is None else found.zeros[:, groups].contiguous(),
        group_size=group_size,
    )
