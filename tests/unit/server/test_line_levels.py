"""Dashboards draw the lines where they lie in the configuration in force."""

from __future__ import annotations

import dataclasses

import pytest

LEVEL = "tidemark_watermark_level_ratio"


@pytest.mark.parametrize("levels", [(0.7, 0.9), (0.25, 1.0)])
async def test_both_lines_are_exported_as_they_are_in_force(http, shared, levels: tuple[float, float]) -> None:
    queue, preempt = levels
    lines = dataclasses.replace(shared.config.scheduler, queue_watermark=queue, preempt_watermark=preempt)
    shared.config = dataclasses.replace(shared.config, scheduler=lines)
    scraped = (await http.get("/metrics")).text
    assert f'{LEVEL}{{level="queue"}} {queue}\n' in scraped
    assert f'{LEVEL}{{level="preempt"}} {preempt}\n' in scraped
