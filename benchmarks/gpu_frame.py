"""What sections of `gpu.py` are made of, and the clock that they are given.

A section is a function that yields rows. Rows are kept as they come, an error becomes part of the outcome with its
traceback, and a section that is over its time stops between two rows.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

Row = dict[str, Any]
FLUSH_BYTES = 256 * 2**20
"""Written before every timed run: more than a card's second-level cache (50 MB on an H200), so that nothing is warm."""
LEAST_RUNS, MOST_RUNS = 5, 50
TIMED_SECONDS = 0.3
"""Of runs for one row, within the bounds above."""


@dataclass(slots=True)
class Bench:
    """What sections are given: the device, the size of things, and the clock."""

    device: torch.device
    is_tiny: bool
    """Every line with the smallest shapes, for a machine without a card; times mean nothing then."""
    copy_bytes_a_second: float = 0.0
    """Measured by the first section: read and written bytes of a large copy."""
    notes: list[str] = field(default_factory=list)
    """Of the section that runs, for the report."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What several sections share and is dear to make."""
    _flush: torch.Tensor | None = None

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.is_tiny else full

    def some(self, full: Iterable[Any], tiny: Iterable[Any]) -> list[Any]:
        return list(tiny if self.is_tiny else full)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, run: Callable[[], Any], cold: bool = True, captured: bool = True) -> float:
        """Median of one `run`, first calls (which compile) apart.

        `cold`: with nothing of it in the device's cache. `captured`: replayed from a graph, so that what the host needs
        to launch it is not measured.
        """
        if self.device.type != "cuda":
            started = time.perf_counter()
            run()
            return max(time.perf_counter() - started, 1e-9)
        run()
        run = self._captured(run) if captured else run
        run()
        self.synchronize()
        started = time.perf_counter()
        run()
        self.synchronize()
        once = time.perf_counter() - started
        count = min(MOST_RUNS, max(LEAST_RUNS, round(TIMED_SECONDS / max(once, 1e-6))))
        return statistics.median(self._timed(run, cold) for _ in range(count))

    def _captured(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """The same work as a graph; as it is where that cannot be had, which the report then says."""
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                run()
        except RuntimeError as error:
            self.notes.append(f"Not captured, times include launches: {str(error).splitlines()[0]}")
            self.synchronize()
            return run
        return graph.replay

    def _timed(self, run: Callable[[], Any], cold: bool) -> float:
        # While the device fills the cache with something else, the host has time to launch what is measured.
        if self._flush is None:
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=self.device)
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if cold:
            self._flush.zero_()
        before.record()
        run()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1000

    def share_of_copy(self, num_bytes: float, seconds: float) -> float:
        """Of the measured bandwidth of a copy, in percent."""
        if not self.copy_bytes_a_second:
            raise RuntimeError("the bandwidth of a copy has not been measured: run the section `copy` first")
        return 100 * num_bytes / seconds / self.copy_bytes_a_second


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    title: str
    """What is measured, and the goals."""
    run: Callable[[Bench], Iterable[Row]]
    budget_seconds: float


def run_section(bench: Bench, section: Section) -> dict[str, Any]:
    """Whatever happens in it, an outcome comes back: name, title, seconds, rows, error (a traceback), note."""
    rows: list[Row] = []
    error = ""
    bench.notes.clear()
    started = time.perf_counter()
    try:
        for row in section.run(bench):
            rows.append(row)
            if not bench.is_tiny and time.perf_counter() - started > section.budget_seconds:
                bench.notes.append(f"Stopped after its {section.budget_seconds:.0f} s; later rows are missing.")
                break
        bench.synchronize()
    except Exception:  # noqa: BLE001  # the others must still run; the report has the traceback
        error = traceback.format_exc()
    return {
        "name": section.name,
        "title": section.title,
        "seconds": round(time.perf_counter() - started, 1),
        "rows": rows,
        "error": error,
        "note": " ".join(dict.fromkeys(bench.notes)),
    }
