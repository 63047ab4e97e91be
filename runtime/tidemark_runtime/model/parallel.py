"""One model on several devices: which part of each layer a rank has, and how the parts become one again.

As in Megatron-LM (Shoeybi et al., arXiv 1909.08053). The matrices that make heads and the MLP's inner elements (Q, K,
V, gate, up) are divided by outputs; those that take them (o_proj, down_proj) by inputs, so that each rank has a term of
every output, and one sum over ranks behind each of the two gives all of them the whole. Embedding and output layer are
divided by tokens. Norms and the residual stream are in full on every rank.

    x ── Q K V of my heads ── my attention ── o_proj, my inputs ── all_reduce ── + ──
    x ── gate, up: my part ── silu(gate) * up ── down_proj, my inputs ── all_reduce ── + ──

Nothing here knows how numbers travel: a `Group` does. With one rank (`ALONE`) nothing is wrapped and nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional

from tidemark_runtime.model.linear_forms import base


@dataclass(frozen=True, slots=True)
class Shard:
    """The part that `rank` of `size` ranks has. What must divide has been checked (`planning.capacity.divided`)."""

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """The first rank has the output layer's sum, samples, and speaks for all."""
        return self.rank == 0

    def part(self, total: int) -> range:
        """Of `total` things of which each rank has as many: query heads, inner elements of the MLP."""
        width = total // self.size
        return range(self.rank * width, (self.rank + 1) * width)

    def kv_heads(self, num_kv_heads: int) -> range:
        """The KV heads that the rank's query heads read. Where there are fewer than ranks, several ranks have the same:
        each computes and keeps it for itself, which costs memory and needs no message."""
        first = self.rank * num_kv_heads // self.size
        return range(first, first + max(1, num_kv_heads // self.size))

    def tokens(self, vocab_size: int) -> range:
        """Rows of embedding and output layer; where they do not divide, the first ranks have one more."""
        width, more = divmod(vocab_size, self.size)
        first = self.rank * width + min(self.rank, more)
        return range(first, first + width + (self.rank < more))


class Group(Protocol):
    """The ranks that compute one model together. All of them call the same methods in the same order, with the same
    shapes. Raises `RankLost` where another rank has left or does not come."""

    @property
    def shard(self) -> Shard: ...

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' `x`, the same bits on all of them, in the memory of `x`, which is returned."""
        ...

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """x [S, C] of each rank -> [S, size * C] on the first, in the order of ranks. Elsewhere `x` itself."""
        ...

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """The first rank's `x`, in the memory of `x`, which is returned."""
        ...


class _Alone:
    """One rank: everything is there already."""

    shard = Shard(0, 1)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        return x


ALONE: Group = _Alone()


def summed(layer: base.Linear, group: Group) -> base.Linear:
    """`layer`, whose inputs are divided, with the sum over ranks behind it."""
    return layer if group.shard.size == 1 else _Summed(layer, group)


def embedding(table: base.Embedding, vocab_size: int, group: Group) -> base.Embedding:
    """The whole embedding, of which `table` holds the rank's rows (`Shard.tokens`)."""
    return table if group.shard.size == 1 else _TokenRows(table, vocab_size, group)


def head(layer: base.Linear, vocab_size: int, group: Group) -> base.Linear:
    """The output layer of all tokens, of which `layer` computes the rank's own. Other ranks than the first get those
    alone, and nobody looks at them."""
    return layer if group.shard.size == 1 else _Gathered(layer, vocab_size, group)


class _Summed:
    """Implements `base.Linear`."""

    def __init__(self, inner: base.Linear, group: Group) -> None:
        self._inner = inner
        self._group = group
        self.num_outputs: int = inner.num_outputs
        self.num_bytes: int = inner.num_bytes
        self.path: str = inner.path

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self._group.all_reduce(self._inner(x))


class _TokenRows:
    """Implements `base.Embedding`. A token that is another rank's is a row of zeros here: the sum is exact."""

    def __init__(self, inner: base.Embedding, vocab_size: int, group: Group) -> None:
        own = group.shard.tokens(vocab_size)
        self._inner = inner
        self._group = group
        self._first, self._count = own.start, len(own)
        self.num_bytes: int = inner.num_bytes

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        own = ids - self._first
        others = (own < 0) | (own >= self._count)
        rows = self._inner(own.masked_fill(others, 0))
        return self._group.all_reduce(rows.masked_fill_(others.unsqueeze(1), 0))

    def as_head(self) -> base.Linear:
        """The rank's own tokens only; `head` makes the whole of it."""
        return self._inner.as_head()


class _Gathered:
    """Implements `base.Linear`. Ranks with one token less than the first send a column of zeros beside."""

    def __init__(self, inner: base.Linear, vocab_size: int, group: Group) -> None:
        shards = [Shard(rank, group.shard.size) for rank in range(group.shard.size)]
        self._inner = inner
        self._group = group
        self._counts = [len(shard.tokens(vocab_size)) for shard in shards]
        self._padding = self._counts[0] - len(group.shard.tokens(vocab_size))
        self.num_outputs: int = vocab_size
        self.num_bytes: int = inner.num_bytes
        self.path: str = inner.path

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        logits = self._inner(x)
        if self._padding:
            logits = torch.nn.functional.pad(logits, (0, self._padding))
        whole = self._group.gather(logits)
        if not self._group.shard.is_first or self._counts[0] == self._counts[-1]:
            return whole
        width = self._counts[0]
        return torch.cat([whole[:, rank * width :][:, :count] for rank, count in enumerate(self._counts)], dim=1)
