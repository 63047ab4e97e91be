"""What both processes, server and engine, log to standard error: one format, one level."""

from __future__ import annotations

import logging
import sys


def set_up(level: str) -> None:
    """At the start of a process. `level`: as for `apply`."""
    logging.basicConfig(
        stream=sys.stderr,
        format="time=%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        force=True,
    )
    apply(level)


def apply(level: str) -> None:
    """`level`: debug, info, warning or error. Libraries say only what is wrong, except with debug."""
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
