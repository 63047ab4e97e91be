"""Rows of attention's tiles: what work lists are made for, so it needs neither torch nor Triton."""

from __future__ import annotations


def ladder(head_dim: int) -> tuple[int, ...]:
    """Sizes of tiles, each of which has a launch: decode steps, drafts, prompts.

    Predicted: sums of 128 rows of more than 128 elements leave no registers.
    """
    return (16, 64, 128) if head_dim <= 128 else (16, 64)
