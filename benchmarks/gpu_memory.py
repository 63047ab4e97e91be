"""Sections of `gpu.py`: what the card's memory and its link to the host give."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpu_frame import Bench, Row, Section


def copy(bench: Bench) -> Iterator[Row]:
    """The bandwidth that everything else is measured against: the best of three sizes."""
    for mebibytes in bench.some((256, 1024, 4096), (1, 2)):
        num_bytes = mebibytes * 2**20
        source = torch.ones(num_bytes, dtype=torch.uint8, device=bench.device)
        target = torch.empty_like(source)
        seconds = bench.seconds(lambda source=source, target=target: target.copy_(source))
        bandwidth = 2 * num_bytes / seconds
        bench.copy_bytes_a_second = max(bench.copy_bytes_a_second, bandwidth)
        yield {"copy": f"{mebibytes} MiB", "ms": 1000 * seconds, "GB/s read and written": bandwidth / 1e9}


def link(bench: Bench) -> Iterator[Row]:
    """Pinned memory of the host to the device and back, in pieces of pages and as a whole."""
    is_cuda = bench.device.type == "cuda"
    for mebibytes in bench.some((2, 64, 1024), (1,)):
        there = torch.empty(mebibytes * 2**20, dtype=torch.uint8, device=bench.device)
        here = torch.empty(mebibytes * 2**20, dtype=torch.uint8, pin_memory=is_cuda)
        row: Row = {"piece": f"{mebibytes} MiB"}
        for way, target, source in (("to the device", there, here), ("to the host", here, there)):
            run = lambda target=target, source=source: target.copy_(source, non_blocking=True)
            row[f"GB/s {way}"] = source.numel() / bench.seconds(run, cold=False, captured=False) / 1e9
        yield row


SECTIONS = (
    Section("copy", "Bandwidth of a copy on the card", copy, 20),
    Section("link", "Bandwidth between pinned memory of the host and the card", link, 20),
)
