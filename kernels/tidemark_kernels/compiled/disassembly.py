"""Disassembles many compiled kernels in one run of nvdisasm.

A run costs 0.15 s of a core before its first instruction, and a kernel's instructions cost 0.02 s. So the code of many
kernels for one target is laid end to end, and the text is cut again where each begins. Branches are relative: they
arrive at the same instructions, wherever the code lies.
"""

from __future__ import annotations

import bisect
import itertools
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence

from tidemark_kernels.compiled import compiling

ELF = b"\x7fELF\x02\x01"
"""How a file of 64 bits with the lowest byte first begins (System V ABI, chapter 4)."""
CODE = ".text."
ARCHITECTURES = {80: "SM80", 89: "SM89", 90: "SM90a"}
"""Target -> what nvdisasm calls it; `a` has the matrix instructions of whole groups of warps."""
ADDRESS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/", re.MULTILINE)


def texts(cubins: Sequence[bytes], target: int) -> list[str]:
    """The instructions of each binary, with its own addresses, as `machine_code.read` takes them.

    Raises `ValueError` for a binary that is not one kernel's, or for a text that has not all instructions.
    """
    codes = [code(cubin) for cubin in cubins]
    starts = list(itertools.accumulate((len(one) for one in codes), initial=0))
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(b"".join(codes))
        file.flush()
        text = compiling.tool("nvdisasm", "--binary", ARCHITECTURES[target], "--no-dataflow", file.name)
    parts: list[list[str]] = [[] for _ in codes]
    for line in text.splitlines():
        found = ADDRESS.match(line)
        if found:
            parts[bisect.bisect_right(starts, int(found[1], 16)) - 1].append(line)
    for part, start, one in zip(parts, starts, codes, strict=False):
        _check_whole(part, start, len(one))
    return ["\n".join(part) for part in parts]


def _check_whole(lines: Sequence[str], start: int, size: int) -> None:
    """Every 16 bytes are one instruction on one line."""
    addresses = [int(found[1], 16) for found in map(ADDRESS.match, lines) if found]
    if addresses != list(range(start, start + size, 16)):
        raise ValueError(
            f"nvdisasm gave {len(addresses)} instructions for {size} bytes of code at {start:#x}, expected one for "
            "each 16 bytes; has its output another form in this version?"
        )


def code(cubin: bytes) -> bytes:
    """The machine code of the one kernel in a binary (an ELF file; System V ABI, chapter 4)."""
    if not cubin.startswith(ELF):
        raise ValueError(f"a binary begins with {cubin[:6]!r}, expected {ELF!r}: an ELF file of 64 bits")
    found = [(name, body) for name, body in _sections(cubin) if name.startswith(CODE)]
    if len(found) != 1:
        raise ValueError(f"a binary has code in {[name for name, _ in found]}, expected that of one kernel")
    return found[0][1]


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (headers,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_at = struct.unpack_from("<3H", elf, 0x3A)
    rows = [struct.unpack_from("<2I4Q", elf, headers + size * index) for index in range(count)]
    names = rows[names_at][4]
    for name, _, _, _, offset, length in rows:
        yield elf[names + name : elf.index(b"\0", names + name)].decode(), elf[offset : offset + length]
