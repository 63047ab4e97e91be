"""Six weeks of made series that end now, for a real Prometheus: one service got worse in the last week, one did not."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ABSENT = "promtool is not on this machine; Debian's package `prometheus` has it"
DAY = 86_400
DAYS = 42
INTERVAL = 600
"""Seconds between samples: twice what Prometheus looks back, so half of the moments have none. That is enough here."""
ADDRESS = "engine.example:8000"
"""Of the worse one, as Prometheus scrapes it."""
BUCKETS = ("0.1", "1.0", "2.5", "5.0", "+Inf")
REQUESTS_PER_SECOND = 0.05
WORSE, STEADY, RECORDED = "chat", "steady", "recorded"
"""The third has recorded series as well, which say something else than the raw ones: they come first."""
RECORDED_FILL, RECORDED_WAIT = (0.6, 0.2), (0.3, 1.8)
"""Before and in the last week."""
BEFORE = {"fill": 0.5, "bucket": 0}
"""The share of full places, and the bucket that waits end in (0: up to 0.1 s)."""
AFTER = {"fill": 0.3, "bucket": 2}
PREEMPT_SHARE = 0.2
"""Of the last day, above the preempt line, of the worse one."""


def fill(folder: Path, now: int) -> None:
    """One block in `folder/data`."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(ABSENT)
    lines: dict[str, list[str]] = {}
    for service in (WORSE, STEADY, RECORDED):
        for name, labels, value, at in _samples(service, now):
            own = f",{labels}" if labels else ""
            where = "" if name.startswith("service:") else f',pod="{service}-1",job="tidemark-engine"'
            series = f'{name}{{namespace="team",service="{service}"{where}{own}}}'
            lines.setdefault(name, []).append(f"{series} {value:.3f} {at}\n")
    text = "".join(line for name in sorted(lines) for line in lines[name])
    (folder / "series.txt").write_text(f"{text}# EOF\n", encoding="utf-8")
    command = [program, "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=4374h"]
    subprocess.run(
        [*command, str(folder / "series.txt"), str(folder / "data")], check=True, capture_output=True, timeout=100
    )


def _samples(service: str, now: int) -> Iterator[tuple[str, str, float, int]]:
    """Name, labels, value, time."""
    requests, waits, above = 0.0, [0.0] * len(BUCKETS), 0.0
    for at in range(now - DAYS * DAY, now + 1, INTERVAL):
        figures = AFTER if service == WORSE and at > now - 7 * DAY else BEFORE
        requests += REQUESTS_PER_SECOND * INTERVAL
        for number in range(int(figures["bucket"]), len(BUCKETS)):
            waits[number] += REQUESTS_PER_SECOND * INTERVAL
        if service == WORSE and at > now - DAY:
            above += PREEMPT_SHARE * INTERVAL
        yield "up", f'instance="{ADDRESS if service == WORSE else service}"', 1.0, at
        yield "tidemark_batch_fill_ratio", "", figures["fill"], at
        yield "tidemark_kv_usage_ratio", "", 0.5, at
        yield "tidemark_kv_fragmentation_ratio", "", 0.05, at
        yield "tidemark_requests_running", "", 4.0, at
        yield "tidemark_requests_total", 'outcome="stop"', requests, at
        yield "tidemark_watermark_seconds_total", 'level="preempt"', above, at
        yield "tidemark_queue_wait_seconds_count", "", waits[-1], at
        if service == RECORDED:
            late = at > now - 7 * DAY
            # At night nobody comes: a share of nothing is not a number.
            night = at % DAY < DAY / 4
            yield "service:tidemark_batch_fill:ratio_avg5m", "", 0.0 if night else RECORDED_FILL[late], at
            yield "service:tidemark_queue_wait_seconds:p95_rate5m", "", math.nan if night else RECORDED_WAIT[late], at
        for edge, count in zip(BUCKETS, waits, strict=True):
            yield "tidemark_queue_wait_seconds_bucket", f'le="{edge}"', count, at
