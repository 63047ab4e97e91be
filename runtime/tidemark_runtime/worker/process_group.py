"""How numbers travel between ranks: `parallel.Group` on torch.distributed, gloo on processors, the vendor's own backend
on devices (`planning.vendors`: nccl on CUDA).

Backends are used directly and belong to their object: there is no default group of the process, no port and no name
that two engines could share. Ranks find each other by a file in a private folder, then speak over the loopback address.

A step that fails on one rank must not leave the others waiting. Whoever fails *leaves* the group; that ends every wait
of the others within milliseconds, with `RankLost`. Afterwards all *meet* again, in a new group. A rank that neither
comes nor leaves (a stopped process) ends the wait after `WAIT_SECONDS`.

On a device a sum is queued like a kernel, and nobody on the host waits for it: that another rank is lost is noticed by
whoever listens to the ranks (`device_ranks`), who leaves the group from a thread of its own.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
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
        self._leaving = threading.Lock()

    def meet(self, generation: int) -> None:
        """A new group, once all ranks have called this with the same number. Raises `RankLost`."""
        self.leave()
        # A file of its own for each: what an older group has left behind would be taken for this one's.
        store = _torch.FileStore(str(self._folder / f"group-{generation}"), self.shard.size)
        store.set_timeout(datetime.timedelta(seconds=self._wait_seconds))
        with _told("met"):
            self._backend = self._connect(store)

    def leave(self) -> None:
        """End the waits of the others, and all there is to the group. Harmless where there is none; from any thread."""
        with self._leaving:
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
    can_leave = True

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


class DeviceGroup(_Base):
    """Implements `parallel.Group` on devices: sums in place, queued behind the current stream.

    nccl adds in an order of its own choice; all ranks get the same bits.
    """

    def __init__(self, backend: str, shard: parallel.Shard, folder: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        super().__init__(shard, folder, wait_seconds)
        self.backend = backend

    @property
    def can_leave(self) -> bool:
        """Whether leaving is known to end what others wait for on the device. `ncclCommAbort` does; nobody has tried
        the others."""
        return self.backend == NCCL

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`."""
        with _told("all_reduce"):
            self._met.allreduce([x]).wait()
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """See `parallel.Group`. Not every vendor's backend gathers to one rank; all of them gather to all."""
        if self.backend == NCCL:
            return super().gather(x)
        num_rows, width = x.shape
        terms = torch.empty(self.shard.size * x.numel(), dtype=x.dtype, device=x.device)
        with _told("all_gather"):
            self._met._allgather_base(terms, x.reshape(-1)).wait()
        each = terms.view(self.shard.size, num_rows, width)
        return each.transpose(0, 1).reshape(num_rows, -1) if self.shard.is_first else x

    def _connect(self, store: object) -> _Backend:
        timeout = datetime.timedelta(seconds=self._wait_seconds)
        if self.backend == NCCL:
            # Its watchdog would end this process without a word when a rank is lost; whoever listens to the ranks says
            # which one it was. Nothing but the environment tells it so.
            os.environ.setdefault(_NO_WATCHDOG, "0")
            nccl = _torch.ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = timeout
            made: _Backend = nccl(store, self.shard.rank, self.shard.size, options)
            return made
        return _registered(self.backend, store, self.shard, timeout)


NCCL = "nccl"
_NO_WATCHDOG = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
"""0: errors are noted and nothing is done about them (torch's page on ProcessGroupNCCL's environment variables)."""


def _registered(backend: str, store: object, shard: parallel.Shard, timeout: datetime.timedelta) -> _Backend:
    """What torch or the vendor's plugin has registered (`torch.distributed.Backend.register_backend`), without the
    default group that torch's own door would make. Raises ConfigError where it is not there."""
    with _told("backend"):
        _torch.Backend._ensure_backend_registered(backend)
    found = _torch.Backend._plugins.get(backend.upper())
    if found is None:
        remedy = "The vendor's plugin for torch registers it when it is imported: is it installed, and of this torch?"
        expected = f"1 where torch.distributed has no backend {backend}"
        raise errors.ConfigError([errors.Problem(ranks.KEY, shard.size, expected, remedy)])
    if not found.extended_api:
        made: _Backend = found.creator_fn(store, shard.rank, shard.size, timeout)
        return made
    options: Any = torch._C._distributed_c10d._DistributedBackendOptions()
    options.store, options.timeout = store, timeout
    options.group_rank, options.group_size = shard.rank, shard.size
    options.group_id = "tidemark"
    options.global_ranks_in_group = list(range(shard.size))
    extended: _Backend = found.creator_fn(options, None)
    return extended


def of_device(device: str, shard: parallel.Shard, folder: Path) -> GlooGroup | DeviceGroup:
    """`device`: as `accelerators.resolve` says."""
    backend = accelerators.collectives_of(device)
    return GlooGroup(shard, folder) if backend == GlooGroup.backend else DeviceGroup(backend, shard, folder)


@contextlib.contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise errors.RankLost(f"{doing} between the ranks failed: {first_line[:200]}") from error
