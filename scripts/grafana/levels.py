"""Where the lines lie if a service does not say otherwise: for colours of numbers. Those drawn are the real ones."""

from __future__ import annotations

from tidemark_runtime import config

QUEUE = config.SchedulerConfig().queue_watermark
PREEMPT = config.SchedulerConfig().preempt_watermark
