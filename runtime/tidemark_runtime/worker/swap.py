"""The swap space: pages in the host's memory, and whole pages copied between it and the slab.

One copy of contiguous bytes a page. Indexing all pages at once was tried, in torch and in numpy: on bytes it moves
0.5 and 2 GB/s where a copy a page moves 6 to 20, since it goes element by element.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import torch

from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import slab as slabs

_MEASURED_PAGES = 8
"""In one round of a measurement: more than a cache holds where pages are large."""
_MEASURED_ROUNDS = 4
"""The first one makes the kernel provide the memory; the best one counts."""


class SwapSpace:
    """`num_pages` pages beside the slab, backed by memory once they are first written."""

    def __init__(self, slab: torch.Tensor, num_pages: int) -> None:
        """`slab` uint8 [slab's pages, page_bytes]. Raises CapacityError where the system refuses the address space."""
        self._slab = slab.numpy()
        self._host = slabs.allocate(num_pages, slab.shape[1], "kvCache.swapSpace").numpy()

    @property
    def num_pages(self) -> int:
        return int(self._host.shape[0])

    def copy_out(self, copies: Sequence[step_plan.Copy]) -> None:
        """From the slab. Raises ValueError, and nothing was copied, where a plan names pages that cannot be meant."""
        self._check(copies, (copy.host_page for copy in copies))
        for copy in copies:
            self._host[copy.host_page] = self._slab[copy.page]

    def copy_in(self, copies: Sequence[step_plan.Copy]) -> None:
        """To the slab. Raises as `copy_out`."""
        self._check(copies, (copy.page for copy in copies))
        for copy in copies:
            self._slab[copy.page] = self._host[copy.host_page]

    def measure(self) -> float:
        """Seconds that one page takes one way; 0 without pages. What the slab holds stays as it is."""
        count = min(_MEASURED_PAGES, self.num_pages, int(self._slab.shape[0]))
        if count == 0:
            return 0.0
        copies = tuple(step_plan.Copy(page, page) for page in range(count))
        best = math.inf
        for _ in range(_MEASURED_ROUNDS):
            started = time.perf_counter()
            self.copy_out(copies)
            self.copy_in(copies)
            best = min(best, time.perf_counter() - started)
        return best / (2 * count)

    def _check(self, copies: Sequence[step_plan.Copy], targets: Iterable[int]) -> None:
        """A plan that contradicts the memory there is, is a mistake of ours; negative numbers would count backwards."""
        for copy in copies:
            if not (0 <= copy.page < self._slab.shape[0] and 0 <= copy.host_page < self.num_pages):
                raise ValueError(
                    f"{copy}: the slab has {self._slab.shape[0]} pages, the swap space has {self.num_pages}"
                )
        if len(set(targets)) != len(copies):
            raise ValueError(f"two of {len(copies)} copies in one plan write to the same page")
