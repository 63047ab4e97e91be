"""How numbers travel between ranks: `parallel.Group` on torch.distributed, gloo on processors, nccl on CUDA.

Backends are used directly and belong to their object: there is no default group of the process, no port and no name
that two engines could share. Ranks find each other by a file in a private folder, then speak over the loopback address.

A step that fails on one rank must not leave the others waiting. Whoever fails *leaves* the group; that ends every wait
of the others within milliseconds, with `RankLost`. Afterwards all *meet* again, in a new group. A rank that neither
comes nor leaves (a stopped process) ends the wait after `WAIT_SECONDS`.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed

from tidemark_kernels import dispatch
from tidemark_runtime import errors
from tidemark_runtime.model import parallel
from tidemark_runtime.worker import accelerators, ranks

WAIT_SECONDS = 60.0
"""Longest wait for another rank, in a step and to meet. Between two sums ranks are apart by less than a millisecond;
the rest is for machines that are busy with something else."""
PIECE_BYTES = 1 << 20
"""On a processor so much is summed at a time, for that many bytes from each rank stand beside it meanwhile."""
ALL_REDUCE = "all_reduce"
"""What sums over ranks are called where the time of a step is told by op."""


_torch: Any = torch.distributed
"""Its stubs do not export what is used here."""


class _Work(Protocol):
    def wait(self) -> bool: ...


class _Backend(Protocol):
    """What is used of torch's backends; its own stubs leave it out."""

    def allreduce(self, tensors: list[torch.Tensor]) -> _Work: ...
    def broadcast(self, tensors: list[torch.Tensor], options: object) -> _Work: ...
    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: object) -> _Work: ...
    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor) -> _Work: ...
    def abort(self) -> None: ...


class _Base:
    """What gloo and nccl have in common: meeting, leaving, errors."""

    def __init__(self, shard: parallel.Shard, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        """`folder`: private, the same for all ranks. Nobody is met yet."""
        self.shard = shard
        self._folder = folder
        self._wait_seconds = wait_seconds
        self._backend: _Backend | None = None

    def meet(self, generation: int) -> None:
        """A new group, once all ranks have called this with the same number. Raises `RankLost`."""
        self.leave()
        # A file of its own for each: what an older group has left behind would be taken for this one's.
        store = _torch.FileStore(str(self._folder / f"group-{generation}"), self.shard.size)
        store.set_timeout(datetime.timedelta(seconds=self._wait_seconds))
        with _told("met"):
            self._backend = self._connect(store)

    def leave(self) -> None:
        """End the waits of the others, and all there is to the group. Harmless where there is none."""
        left, self._backend = self._backend, None
        if left is not None:
            with contextlib.suppress(RuntimeError):  # what is broken already cannot be broken again
                left.abort()

    def _connect(self, store: object) -> _Backend:
        raise NotImplementedError

    @property
    def _met(self) -> _Backend:
        if self._backend is None:
            raise errors.RankLost(f"rank {self.shard.rank} is in no group: it left after an error")
        return self._backend

    def broadcast(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`."""
        if x.numel():
            options = _torch.BroadcastOptions()
            options.rootRank, options.rootTensor = 0, 0
            with _told("broadcast"):
                self._met.broadcast([x], options).wait()
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`."""
        options = _torch.GatherOptions()
        options.rootRank = 0
        parts = [torch.empty_like(x) for _ in range(self.shard.size)] if self.shard.is_first else []
        with _told("gather"):
            self._met.gather([parts] if parts else [], [x.contiguous()], options).wait()
        return torch.cat(parts, dim=1) if parts else x


class GlooGroup(_Base):
    """Implements `parallel.Group` on processors.

    A sum adds the ranks' terms in the order of ranks, in float32: gloo's own sum begins with another rank in each part
    of the tensor, and a token's bits would depend on where in the batch it stands.
    """

    backend = "gloo"

    def __init__(self, shard: parallel.Shard, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        super().__init__(shard, folder, wait_seconds)
        self._kept: dict[torch.dtype, torch.Tensor] = {}

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`."""
        watch = dispatch.current().watch
        began = watch.now()
        num_rows = max(1, PIECE_BYTES * len(x) // max(1, x.numel() * x.element_size()))
        for start in range(0, len(x), num_rows):
            self._sum(x[start : start + num_rows])
        if began:
            watch.stopped(ALL_REDUCE, began)
        return x

    def _sum(self, piece: torch.Tensor) -> None:
        terms = self._room(self.shard.size * piece.numel(), piece.dtype)
        with _told("all_gather"):
            self._met._allgather_base(terms, piece.reshape(-1)).wait()
        each = terms.view(self.shard.size, *piece.shape)
        total = each[0].to(torch.float32)
        for term in each[1:]:
            total += term
        piece.copy_(total)

    def _room(self, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        """[num_elements], kept between sums: a heap gives blocks of this size back, and they would be zeroed anew."""
        found = self._kept.get(dtype)
        if found is None or found.numel() < num_elements:
            found = self._kept[dtype] = torch.empty(num_elements, dtype=dtype)
        return found[:num_elements]

    def _connect(self, store: object) -> _Backend:
        gloo = _torch.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname="127.0.0.1")]
        options._timeout = datetime.timedelta(seconds=self._wait_seconds)
        made: _Backend = gloo(store, self.shard.rank, self.shard.size, options)
        return made


class NcclGroup(_Base):
    """Implements `parallel.Group` on CUDA devices: sums in place on the current stream, which graphs can capture.

    A captured graph holds the group it was captured with: after `meet` it must be captured again.
    """

    backend = "nccl"

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`. NCCL adds in an order of its own choice; all ranks get the same bits."""
        with _told("all_reduce"):
            self._met.allreduce([x]).wait()
        return x

    def _connect(self, store: object) -> _Backend:
        nccl = _torch.ProcessGroupNCCL
        options = nccl.Options()
        options._timeout = datetime.timedelta(seconds=self._wait_seconds)
        made: _Backend = nccl(store, self.shard.rank, self.shard.size, options)
        return made


def of_device(device: str, shard: parallel.Shard, folder: Path) -> GlooGroup | NcclGroup:
    """`device`: as `accelerators.resolve` says. Raises ConfigError for a type whose backend nobody has tried."""
    if device in ("cpu", accelerators.INTERPRETER):
        return GlooGroup(shard, folder)
    if device == "cuda":
        return NcclGroup(shard, folder)
    remedy = f"Ranks on {device} need a backend of torch.distributed that this version does not know"
    raise errors.ConfigError([errors.Problem(ranks.KEY, shard.size, f"1 with hardware.device {device}", remedy)])


@contextlib.contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise errors.RankLost(f"{doing} between the ranks failed: {first_line[:200]}") from error
