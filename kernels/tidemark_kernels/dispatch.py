"""Which path each op runs, and why. Decided once a process, at first use; never changed silently."""

from __future__ import annotations

import functools
import logging
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_kernels.cpu import build, library

OPS = (
    "dense_linear_f32",
    "grouped_linear",
    "grouped_linear_int8",
    "grouped_rows",
    "paged_attention",
    "rms_norm",
    "rope_and_write",
    "silu_mul",
)
"""Every op of `ops`; a test compares the two."""

_LOGGER = logging.getLogger(__name__)

DEFAULT_PANEL_WIDTH = 16
"""Outputs a panel where no library says otherwise: that of AVX2."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The compiled library, or None and the reason why there is none."""

    library: library.Library | None
    reason: str
    """One line: which instructions, or what is missing and what to do."""

    @property
    def panel_width(self) -> int:
        return self.library.panel_width if self.library else DEFAULT_PANEL_WIDTH

    def paths(self) -> dict[str, str]:
        """Op -> name of the path that runs it: `cpu-c` or `torch`. Short and stable: it becomes a metric's label."""
        return dict.fromkeys(OPS, "cpu-c" if self.library else "torch")


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
