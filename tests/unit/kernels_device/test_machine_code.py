"""What is read of generated code, and what a table of it says: on texts and numbers made by hand."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from tidemark_kernels.compiled import machine_code, occupancy, table

LOOP = """\
        /*1000*/                   LDG.E R2, desc[UR14][R6.64] ;
        /*1010*/                   LDGSTS.E.BYPASS.LTC128B.128 [R11], desc[UR14][R6.64], P1 ;
        /*1020*/              @!P0 LDG.E.U8 R2, desc[UR14][R6.64] ;
        /*1030*/                   LDG.E.64.CONSTANT R2, desc[UR14][R6.64] ;
        /*1040*/                   LDG.E R2, desc[UR14][R6.64+0x20] ;
        /*1050*/                   HMMA.16816.F32.BF16 R24, R4, R8, R24 ;
        /*1060*/              @!P0 BRA 0x1010 ;
        /*1070*/                   STL.64 [R1], R2 ;
        /*1080*/                   BRA 0x10a0 ;
        /*1090*/                   LDG.E.128 R2, desc[UR14][R6.64] ;
        /*10a0*/                   EXIT ;
"""


def test_loads_are_counted_by_width_where_the_loop_is() -> None:
    code = machine_code.read(LOOP)
    assert code.loads == {16: 1, 8: 1, 4: 1, 1: 1}
    assert code.wide_share == pytest.approx(16 / 29)


def test_matrix_instructions_and_spills_are_counted() -> None:
    code = machine_code.read(LOOP)
    assert code.matrix == {"HMMA": 1}
    assert code.num_spill_instructions == 1


def test_without_loads_in_loops_all_loads_count() -> None:
    code = machine_code.read("\n".join(line for line in LOOP.splitlines() if "BRA 0x1010" not in line))
    assert code.loads == {16: 2, 8: 1, 4: 2, 1: 1}


def test_of_loops_in_a_loop_the_inner_ones_count() -> None:
    """A program that takes one piece of work after the other is a loop as a whole."""
    around = LOOP.replace("EXIT ;", "@!P0 BRA 0x1000 ;")
    assert machine_code.read(around).loads == machine_code.read(LOOP).loads


def test_copies_of_whole_tiles_are_wide() -> None:
    code = machine_code.read(LOOP.replace("LDG.E R2, desc[UR14][R6.64+0x20]", "UTMALDG.2D [UR8], [UR4]"))
    assert code.num_bulk_loads == 1
    assert code.wide_share == 1.0


def test_registers_and_local_memory_are_read() -> None:
    text = " Function toy:\n  REG:92 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:400 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    assert machine_code.usage(text) == (92, 24)
    with pytest.raises(ValueError, match="expected a line with REG"):
        machine_code.usage("nothing")


@pytest.mark.parametrize(
    ("target", "num_warps", "registers", "shared_kib", "programs", "limit"),
    [
        # By hand, and as NVIDIA's occupancy calculator has them.
        (80, 4, 32, 0, 16, "warps"),
        (80, 4, 128, 0, 4, "registers"),
        (80, 8, 168, 0, 1, "registers"),
        (80, 4, 64, 48, 3, "shared memory"),
        (89, 4, 32, 0, 12, "warps"),
        (89, 1, 32, 0, 24, "programs"),
        (90, 4, 255, 100, 2, "registers"),
        (90, 4, 64, 227, 1, "shared memory"),
        (90, 4, 64, 228, 0, "shared memory"),
    ],
)
def test_programs_that_fit_on_a_multiprocessor(
    target: int, num_warps: int, registers: int, shared_kib: int, programs: int, limit: str
) -> None:
    held = occupancy.of(target, num_warps, registers, shared_kib * 1024)
    assert (held.programs, held.limit) == (programs, limit)


READING = {
    "registers": 96,
    "spill_bytes": 0,
    "spill_instructions": 0,
    "shared_bytes": 32768,
    "programs": 5,
    "limited_by": "registers",
    "warps_percent": 31,
    "wide_percent": 90,
    "loads": "16:8",
    "matrix": "HMMA:32",
}
VERSIONS = {"triton": "3", "ptxas": "12"}
RULES = {"is_hot": True, "wide_loads": True, "tensor_cores": True}


def made_table() -> table.Table:
    targets = ("sm_80", "sm_90")
    form = {"rules": dict(RULES), "key": "1", "kernel": "jit.file.kernel", "targets": targets}
    return table.of(VERSIONS, {"kernel[a]": form}, {("kernel[a]", target): dict(READING) for target in targets})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"spill_bytes": 8}, "spills 8 bytes"),
        ({"spill_instructions": 2}, "spills 0 bytes a thread (2 instructions)"),
        ({"wide_percent": 49}, "loads 49 % of its bytes in pieces of 16 (16:8), expected 50 %"),
        ({"matrix": ""}, "has no matrix instruction"),
        ({"programs": 0}, "cannot be launched"),
    ],
)
def test_each_rule_can_be_broken(changed: dict[str, object], message: str) -> None:
    made = made_table()
    assert table.broken_rules(made) == []
    made["kernels"]["kernel[a]"]["targets"]["sm_90"].update(changed)
    (line,) = table.broken_rules(made)
    assert line.startswith("kernel[a] for sm_90: ")
    assert message in line


def test_what_is_not_planned_is_no_rule() -> None:
    made = made_table()
    made["kernels"]["kernel[a]"]["rules"] = dict.fromkeys(RULES, False)
    made["kernels"]["kernel[a]"]["targets"]["sm_90"].update(spill_bytes=8, wide_percent=0, matrix="")
    assert table.broken_rules(made) == []


def test_what_moved_is_named_with_before_and_after() -> None:
    before, now = made_table(), made_table()
    assert table.moved(before, now) == []
    now["kernels"]["kernel[a]"]["targets"]["sm_90"].update(registers=128, programs=4)
    now["kernels"]["kernel[b]"] = copy.deepcopy(now["kernels"]["kernel[a]"])
    before["kernels"]["kernel[c]"] = copy.deepcopy(before["kernels"]["kernel[a]"])
    del now["kernels"]["kernel[a]"]["targets"]["sm_80"]
    assert table.moved(before, now) == [
        "kernel[b]: is not in the table",
        "kernel[c]: is in the table, but no kernel has such a form",
        "kernel[a] for sm_90: registers 96 -> 128 (of a thread; more of them, fewer programs at a time)",
        "kernel[a] for sm_90: programs 5 -> 4 (at a time on one multiprocessor)",
        "kernel[a] for sm_80: is in the table, but the form is for no such target",
    ]


def test_another_compiler_is_not_compared() -> None:
    before, now = made_table(), made_table()
    now["compiler"]["triton"] = "4"
    now["kernels"]["kernel[a]"]["targets"]["sm_90"]["registers"] = 128
    assert table.moved(before, now) == []


def test_what_has_the_same_source_and_compiler_is_known() -> None:
    listing = {
        name: {"rules": RULES, "key": "1", "kernel": "jit.file.kernel", "targets": ["sm_80", "sm_90"]}
        for name in ("kernel[a]", "kernel[b]")
    }
    before = made_table()
    before["kernels"]["kernel[a]"]["targets"]["sm_90"]["registers"] = 128
    both = {("kernel[a]", "sm_80"): READING, ("kernel[a]", "sm_90"): {**READING, "registers": 128}}
    assert table.known(before, VERSIONS, listing) == both
    assert table.known(before, {**VERSIONS, "ptxas": "13"}, listing) == {}
    listing["kernel[a]"]["targets"] = ["sm_90"]
    assert table.known(before, VERSIONS, listing) == {("kernel[a]", "sm_90"): both["kernel[a]", "sm_90"]}
    listing["kernel[a]"]["key"] = "2"
    assert table.known(before, VERSIONS, listing) == {}


def test_forms_are_chosen_by_the_file_of_their_kernel() -> None:
    made = made_table()
    other = copy.deepcopy(made["kernels"]["kernel[a]"])
    made["kernels"]["other[a]"] = {**other, "kernel": "jit.pages.move"}
    made["kernels"]["kernel[a]"]["kernel"] = "jit.attention.attend"
    assert table.modules(made["kernels"]) == {"attention", "pages"}
    assert list(table.of_modules(made, ["pages"])["kernels"]) == ["other[a]"]
    assert table.of_modules(made, []) == made


def lacking(*path: str) -> str:
    """The text of a table without one part."""
    made: Any = made_table()
    inner = made
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1 is not JSON"),
        ("| a | table |", "line 1, column 1 is not JSON"),
        (table.text(made_table())[:200], "is not JSON (.*); is it cut"),
        ("[]", "the table is [], expected a mapping with compiler, kernels"),
        (lacking("kernels"), "the table lacks 'kernels'"),
        (lacking("compiler", "ptxas"), "compiler lacks 'ptxas', expected triton, ptxas"),
        (lacking("kernels", "kernel[a]", "key"), "kernel[a] lacks 'key'"),
        (lacking("kernels", "kernel[a]", "rules", "is_hot"), "kernel[a], rules lacks 'is_hot'"),
        (lacking("kernels", "kernel[a]", "targets", "sm_90", "loads"), "kernel[a] for sm_90 lacks 'loads'"),
        (json.dumps(made_table()).replace("32768", '"32 KiB"'), "shared_bytes is '32 KiB', expected int"),
        (json.dumps(made_table()).replace('"matrix"', '"matrices": 1, "matrix"'), "has ['matrices'], expected"),
    ],
)
def test_a_broken_table_says_what_is_broken_and_where(text: str, message: str) -> None:
    with pytest.raises(table.TableError, match=re.escape(message).replace(re.escape("(.*)"), "(.*)")):
        table.parsed(text)


def test_the_text_is_the_table() -> None:
    assert table.parsed(table.text(made_table())) == made_table()
    assert "| a | hot, wide, matrix | 96 r · 32 KiB · 5 programs (31 %) · 90 % wide · HMMA:32 |" in table.page(
        made_table()
    )
