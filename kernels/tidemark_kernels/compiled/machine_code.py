"""What the instructions of a compiled kernel say: how wide it loads, whether it multiplies matrices, whether it spills.

Read from the disassembly (SASS), after the assembler's last decision, not from PTX. Loads count where the work is:
those in the innermost loops, if any loop loads (programs that take one piece of work after the other are loops as a
whole); each with the bytes it brings one thread. So an address or a scale of four bytes beside tiles of sixteen lowers
the share of wide bytes, as it does on the device.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

WIDE_BYTES = 16
LOADS = ("LDG", "LDGSTS", "LD")
"""From global memory to registers, to shared memory, and by an address of any kind."""
BULK_LOADS = ("UBLKCP", "UTMALDG")
"""Copies of whole tiles by the memory accelerator."""
SPILLS = ("LDL", "STL")
"""To and from a thread's local memory."""
MATRIX = ("HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
"""Part of an instruction's name -> bytes; without one, four."""
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    name: str
    """In parts: `LDG.E.128`."""
    depth: int
    """Loops that it is in."""

    @property
    def opcode(self) -> str:
        return self.name.partition(".")[0]

    @property
    def width_bytes(self) -> int:
        """Of a load, for one thread."""
        return next((WIDTHS[part] for part in self.name.split(".") if part in WIDTHS), 4)


@dataclass(frozen=True, slots=True)
class Code:
    loads: dict[int, int]
    """Bytes a thread -> instructions, of the loads that are deepest in loops."""
    num_bulk_loads: int
    matrix: dict[str, int]
    """Opcode -> instructions, all."""
    num_spill_instructions: int

    @property
    def wide_share(self) -> float:
        """Of the bytes that loads bring a thread, those in pieces of 16; copies of whole tiles count as such."""
        if self.num_bulk_loads:
            return 1.0
        total = sum(width * count for width, count in self.loads.items())
        return self.loads.get(WIDE_BYTES, 0) * WIDE_BYTES / total if total else 0.0


def read(disassembly: str) -> Code:
    """From the text of one kernel, `disassembly.texts`: an instruction a line, with its address."""
    instructions = list(_instructions(disassembly))
    loads = [one for one in instructions if one.opcode in LOADS]
    deepest = max((one.depth for one in loads), default=0)
    working = [one for one in loads if one.depth == deepest]
    return Code(
        loads=dict(sorted(Counter(one.width_bytes for one in working).items(), reverse=True)),
        num_bulk_loads=sum(one.opcode in BULK_LOADS for one in instructions),
        matrix=dict(sorted(Counter(one.opcode for one in instructions if one.opcode in MATRIX).items())),
        num_spill_instructions=sum(one.opcode in SPILLS for one in instructions),
    )


def usage(resources: str) -> tuple[int, int]:
    """Registers of a thread and bytes it keeps in local memory, from the text of `cuobjdump -res-usage`."""
    found = USAGE.search(resources)
    if found is None:
        raise ValueError(f"cuobjdump -res-usage said {resources!r}, expected a line with REG, STACK, SHARED and LOCAL")
    registers, stack, local = (int(number) for number in found.groups())
    return registers, stack + local


def _instructions(disassembly: str) -> list[Instruction]:
    """In order; those between an instruction and a later branch back to it are in a loop."""
    names: list[str] = []
    places: dict[int, int] = {}
    """Address of an instruction -> its place."""
    loops: dict[int, int] = {}
    """First instruction -> last one: of several branches back to it, the last."""
    for address, name, operands in INSTRUCTION.findall(disassembly):
        places[int(address, 16)] = len(names)
        target = TARGET.search(operands) if name.partition(".")[0] == "BRA" else None
        # An address that is known already lies behind us.
        if target and int(target[1], 16) in places:
            loops[places[int(target[1], 16)]] = len(names)
        names.append(name)
    return [
        Instruction(name, sum(start <= index <= end for start, end in loops.items()))
        for index, name in enumerate(names)
    ]
