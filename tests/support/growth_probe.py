"""Run as a program: measures what functions make a process grow by, and prints it as JSON.

A process of its own, because the heap of one that has lived for long keeps large blocks: what takes those does not make
it grow, and what was freed into them stays. An engine measures before that can happen.
"""

from __future__ import annotations

import json

import torch

from tidemark_runtime.worker import measuring

MIB = 1 << 20


def _one_after_the_other() -> None:
    for _ in range(4):
        torch.ones(10 * MIB // 4)


def main() -> None:
    torch.ones(64 << 10)  # the first of its kind brings code and threads of torch into memory
    probes = {"once": lambda: torch.ones(40 * MIB // 4), "one after the other": _one_after_the_other}
    print(json.dumps({name: measuring.peak_growth_bytes(probe) for name, probe in probes.items()}))


if __name__ == "__main__":
    main()
