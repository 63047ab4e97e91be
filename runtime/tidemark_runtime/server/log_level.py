"""How much is logged to standard error: at the start, and whenever the setting changes."""

from __future__ import annotations

import logging


def apply(level: str) -> None:
    """`level`: debug, info, warning or error. Libraries say only what is wrong, except with debug."""
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
