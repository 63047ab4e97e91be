"""How many programs of a kernel a multiprocessor holds at a time, and what limits that.

From the tables of compute capabilities in the CUDA programming guide: registers are given to a warp in pieces of 256,
shared memory in pieces of 128 bytes, and the system keeps 1 KiB of it for each program.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one multiprocessor."""

    warps: int
    programs: int
    shared_bytes: int
    registers: int = 65_536


LIMITS = {
    80: Limits(warps=64, programs=32, shared_bytes=164 * 1024),
    89: Limits(warps=48, programs=24, shared_bytes=100 * 1024),
    90: Limits(warps=64, programs=32, shared_bytes=228 * 1024),
}
"""Compute capability, times ten -> limits."""
WARP_SIZE = 32
REGISTER_PIECE = 256
SHARED_PIECE = 128
SYSTEM_SHARED_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Occupancy:
    programs: int
    """At a time on one multiprocessor; 0: the kernel cannot be launched at all."""
    warps_share: float
    """Of the warps that a multiprocessor can hold, 0 to 1."""
    limit: str
    """`registers`, `shared memory`, `warps` or `programs`."""


def of(target: int, num_warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """`registers` are those of a thread, `shared_bytes` those of a program."""
    limits = LIMITS[target]
    warp_registers = _rounded_up(max(registers, 1) * WARP_SIZE, REGISTER_PIECE)
    program_shared = _rounded_up(shared_bytes + SYSTEM_SHARED_BYTES, SHARED_PIECE)
    by = {
        "programs": limits.programs,
        "warps": limits.warps // num_warps,
        "registers": limits.registers // warp_registers // num_warps,
        "shared memory": limits.shared_bytes // program_shared,
    }
    limit = min(by, key=lambda name: by[name])
    return Occupancy(by[limit], by[limit] * num_warps / limits.warps, limit)


def _rounded_up(number: int, piece: int) -> int:
    return -(-number // piece) * piece
