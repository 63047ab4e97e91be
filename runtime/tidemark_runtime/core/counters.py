"""What the scheduler has counted since the start, for metrics. It decides nothing by these."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Each is written where it happens: in `transitions`, `restoring`, `prompts` and `results`."""

    preemptions: dict[str, int] = field(default_factory=lambda: {"recompute": 0, "swap": 0})
    resumes: dict[str, int] = field(default_factory=lambda: {"recompute": 0, "swap": 0})
    prompt_tokens: int = 0
    generated_tokens: int = 0
    swapped_out_pages: int = 0
    swapped_in_pages: int = 0
