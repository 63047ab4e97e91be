"""The swap space of a device: pinned pages of the host, copied page by page in a stream of their own.

One copy a page: a page holds all layers (decision 3), so it is large enough to fill the link (2 MiB for an 8B model
with 16 tokens in 16 bits), and pages need not lie beside each other.

Who waits for whom, so that copies run beside the steps and nobody can tell:

- copies wait for the step that was launched before them: it may have written the pages that leave, or read what was in
  those that are filled;
- a step waits for the pages that come in with its plan;
- a step waits for pages that leave only if its plan gives one of them to somebody else. Until then they are read only.

In the copy stream everything is in the order of the plans, out before in: a page that left may be filled at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import torch

from tidemark_runtime import errors
from tidemark_runtime.core import step_plan
from tidemark_runtime.worker import accelerators

CHUNK_BYTES = 256 << 20
"""Pinned memory is asked for in pieces: torch rounds each up to a power of two."""
_MEASURED_PAGES = 8
_MEASURED_ROUNDS = 4


class DeviceSwap:
    """`num_pages` pages of the host. For the thread that launches."""

    def __init__(self, accelerator: accelerators.Accelerator, slab: torch.Tensor, num_pages: int) -> None:
        """`slab` uint8 [slab's pages, page_bytes]. Raises CapacityError where the system refuses the memory."""
        self._accelerator = accelerator
        self._slab = slab
        self._host = _pages(accelerator, num_pages, slab.shape[1])
        self._stream = accelerator.stream()
        self._leaving: dict[int, accelerators.Event] = {}
        """Page of the slab whose last copy out nobody has waited for -> the event behind that copy."""

    @property
    def num_pages(self) -> int:
        return len(self._host)

    def copy(self, plan: step_plan.StepPlan, after: accelerators.Event) -> None:
        """Launch the plan's copies behind `after`, an event behind the step before.

        Raises ValueError, and nothing was copied, where a plan names pages that cannot be meant.
        """
        if not (plan.swaps_out or plan.swaps_in):
            return
        self._check(plan.swaps_out, (copy.host_page for copy in plan.swaps_out))
        self._check(plan.swaps_in, (copy.page for copy in plan.swaps_in))
        with self._stream:
            after.wait()
            self._copy_out(plan.swaps_out)
            behind = self._accelerator.event()
            behind.record()
            self._leaving.update((copy.page, behind) for copy in plan.swaps_out)
            self._copy_in(plan.swaps_in)
            if plan.swaps_in:
                behind = self._accelerator.event()
                behind.record()
                self._leaving.update((copy.page, behind) for copy in plan.swaps_in)

    def waits(self, plan: step_plan.StepPlan) -> list[accelerators.Event]:
        """What the step must wait for before it computes: copies of pages that its plan hands to somebody."""
        if not self._leaving:
            return []
        given = [copy.page for copy in plan.swaps_in]
        given += [page for join in plan.joins for page in join.pages]
        given += [page for added in plan.new_pages for page in added.pages]
        found = {id(event): event for page in given if (event := self._leaving.pop(page, None)) is not None}
        return list(found.values())

    def measure(self) -> float:
        """Seconds that one page takes one way; 0 without pages. What the slab holds stays as it is."""
        count = min(_MEASURED_PAGES, self.num_pages, int(self._slab.shape[0]))
        if count == 0:
            return 0.0
        copies = tuple(step_plan.Copy(page, page) for page in range(count))
        best = math.inf
        for _ in range(_MEASURED_ROUNDS):
            started = time.perf_counter()
            with self._stream:
                self._copy_out(copies)
                self._copy_in(copies)
            self._stream.synchronize()
            best = min(best, time.perf_counter() - started)
        return best / (2 * count)

    def _copy_out(self, copies: Sequence[step_plan.Copy]) -> None:
        for copy in copies:
            self._host[copy.host_page].copy_(self._slab[copy.page], non_blocking=True)

    def _copy_in(self, copies: Sequence[step_plan.Copy]) -> None:
        for copy in copies:
            self._slab[copy.page].copy_(self._host[copy.host_page], non_blocking=True)

    def _check(self, copies: Sequence[step_plan.Copy], targets: Iterable[int]) -> None:
        """A plan that contradicts the memory there is, is a mistake of ours; negative numbers would count backwards."""
        for copy in copies:
            if not (0 <= copy.page < self._slab.shape[0] and 0 <= copy.host_page < self.num_pages):
                raise ValueError(
                    f"{copy}: the slab has {self._slab.shape[0]} pages, the swap space has {self.num_pages}"
                )
        if len(set(targets)) != len(copies):
            raise ValueError(f"two of {len(copies)} copies in one plan write to the same page")


def _pages(accelerator: accelerators.Accelerator, num_pages: int, page_bytes: int) -> list[torch.Tensor]:
    """uint8 [page_bytes] each."""
    found: list[torch.Tensor] = []
    at_once = max(1, CHUNK_BYTES // page_bytes)
    try:
        while len(found) < num_pages:
            count = min(at_once, num_pages - len(found))
            found += accelerator.pinned(count * page_bytes).view(count, page_bytes).unbind()
    except (RuntimeError, MemoryError) as error:
        raise errors.CapacityError(
            f"the system refuses {num_pages * page_bytes} bytes of pinned memory for the swap space ({len(found)} of "
            f"{num_pages} pages were given): {error}. Lower kvCache.swapSpace, or give this host or pod more memory"
        ) from error
    return found
