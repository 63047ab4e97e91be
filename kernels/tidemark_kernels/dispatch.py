"""Which path each op runs, and why. Decided once a process, at first use; never changed silently.

What is planned and what runs are kept apart: every op says after each call which path it took (`count`), so that what
is shown to people is what happened and not what was meant to happen.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tidemark_kernels.cpu import build, library

OPS = (
    "dense_linear_f32",
    "grouped_linear",
    "grouped_linear_int8",
    "grouped_rows",
    "half_linear",
    "half_rows",
    "paged_attention",
    "rms_norm",
    "rope_and_write",
    "silu_mul",
)
"""Every op of `ops`; a test compares the two."""

COMPILED = "cpu-c"
"""The C kernels: what is planned on a processor."""
TORCH = "torch"
"""The plain references: right, but slow."""

_LOGGER = logging.getLogger(__name__)

DEFAULT_PANEL_WIDTH = 16
"""Outputs a panel where no library says otherwise: that of AVX2."""

_KV_NAMES = {torch.float8_e4m3fn: "fp8_e4m3", torch.float8_e5m2: "fp8_e5m2", torch.bits4x2: "int4"}
"""As settings spell them."""


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`, `int8`, `fp8_e4m3`: short and stable, for a metric's label."""
    return _KV_NAMES.get(dtype) or str(dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True, order=True)
class OpPath:
    """One op in one dtype, and the path that ran it."""

    op: str
    planned: str
    path: str
    """Short and stable: it becomes a metric's label."""
    dtype: str
    reason: str = ""
    """Where the path is not the planned one: one line, why, and what to do."""

    @property
    def is_planned(self) -> bool:
        return self.path == self.planned


Call = tuple[str, str, tuple[str, ...]]
"""Op, path, dtypes."""


class Stopwatch:
    """What the ops of a timed step take. It stands still otherwise, and then costs an op a call of `float`."""

    __slots__ = ("now", "seconds")

    def __init__(self) -> None:
        self.now: Callable[[], float] = float
        """What an op asks before it computes: seconds; 0 while nobody wants to know."""
        self.seconds: dict[str, float] = {}
        """By op, of all its calls since the watch was started."""

    def stopped(self, op: str, began: float) -> None:
        """`op` has come to its end; `began` is what `now` told it before, and not 0."""
        self.seconds[op] = self.seconds.get(op, 0.0) + time.perf_counter() - began

    @contextlib.contextmanager
    def running(self) -> Iterator[dict[str, float]]:
        """Ops are timed inside; yields what becomes `seconds`. For one thread, and not within itself."""
        self.seconds = {}
        self.now = time.perf_counter
        try:
            yield self.seconds
        finally:
            self.now = float


@dataclass(frozen=True, slots=True)
class Choice:
    """The compiled library, or None and the reason why there is none."""

    library: library.Library | None
    reason: str
    """One line: which instructions, or what is missing and what to do."""
    counts: dict[Call, list[int]] = field(default_factory=dict, compare=False)
    """In lists of one number: a count of every call of every op is looked up once, not twice."""
    watch: Stopwatch = field(default_factory=Stopwatch, compare=False)
    """Runs while a step is timed."""

    @property
    def calls(self) -> dict[Call, int]:
        """How often each path of each op has run to its end in this process; a copy."""
        return {call: count for call, (count,) in list(self.counts.items())}

    @property
    def panel_width(self) -> int:
        return self.library.panel_width if self.library else DEFAULT_PANEL_WIDTH

    @property
    def path(self) -> str:
        """What ops run on: `cpu-c` or `torch`."""
        return COMPILED if self.library else TORCH

    def count(self, op: str, path: str, dtypes: tuple[str, ...], began: float = 0.0) -> None:
        """Called by an op when a path of it has come to its end: a fraction of a microsecond. `began`: what the watch
        told it before."""
        count = self.counts.get((op, path, dtypes))
        if count is None:
            self.counts[op, path, dtypes] = [1]
        else:
            count[0] += 1
        if began:
            self.watch.stopped(op, began)

    def ran(self, since: Mapping[Call, int] | None = None) -> list[OpPath]:
        """What has run, sorted; `since`: an earlier copy of `calls`, and only what has run after it counts."""
        seen = [call for call, count in self.calls.items() if count > (since or {}).get(call, 0)]
        found = {(op, path, dtype) for op, path, dtypes in seen for dtype in dtypes}
        return sorted(OpPath(op, COMPILED, path, dtype, self._reason(path)) for op, path, dtype in found)

    def _reason(self, path: str) -> str:
        if path == COMPILED:
            return ""
        if self.library is None:
            return self.reason
        return f"its weights are not in panels of {self.panel_width}, which the compiled library reads"


def choose(
    find: build.FindCompiler = build.find_compiler,
    folder: pathlib.Path | None = None,
    target_flags: Sequence[str] | None = None,
    source_folder: pathlib.Path | None = None,
) -> Choice:
    """Builds or finds the compiled library; without it the plain torch path, with the reason and a warning."""
    try:
        loaded = library.Library(build.build(find, folder, target_flags, source_folder))
    except (build.BuildError, library.LoadError) as cause:
        _LOGGER.warning("kernels run on the slow torch path: %s", cause)
        return Choice(None, str(cause))
    return Choice(loaded, f"panels of {loaded.panel_width}, {loaded.path.name}")


@functools.cache
def current() -> Choice:
    """This process's choice."""
    return choose()
