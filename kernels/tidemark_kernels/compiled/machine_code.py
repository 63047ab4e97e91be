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
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_\w+):")
TARGET = re.compile(r"`\((\.L_\w+)\)")
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
    """From the text of `nvdisasm -c`."""
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
    """In order; those between a label and a later branch back to it are in a loop."""
    names: list[str] = []
    labels: dict[str, int] = {}
    loops: dict[int, int] = {}
    """First instruction -> last one: of several branches back to a label, the last."""
    for line in disassembly.splitlines():
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(names)
            continue
        found = INSTRUCTION.search(line)
        if not found:
            continue
        target = TARGET.search(found[2])
        # A label that is known already lies behind us.
        if found[1].partition(".")[0] == "BRA" and target and target[1] in labels:
            loops[labels[target[1]]] = len(names)
        names.append(found[1])
    return [
        Instruction(name, sum(start <= index <= end for start, end in loops.items()))
        for index, name in enumerate(names)
    ]
