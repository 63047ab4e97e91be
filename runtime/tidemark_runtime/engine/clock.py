"""Time as an argument, so that tests own it."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds that only grow."""

monotonic: Clock = time.monotonic
