"""Every code of 8 bits as a number: plain Triton under the interpreter, and the PTX, computed here."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from tidemark_kernels import segments as segments_module
from tidemark_kernels.jit import numbers

CODES = tuple(segments_module.LARGEST)


@triton.jit
def _planes(words, low, high, CODE: tl.constexpr):
    index = tl.arange(0, 256)
    found = tl.load(words + index)
    tl.store(low + index, numbers.plane(found, CODE, 0, numbers.INTERPRETED))
    tl.store(high + index, numbers.plane(found, CODE, 1, numbers.INTERPRETED))


@triton.jit
def _floats(bits, out, CODE: tl.constexpr):
    index = tl.arange(0, 256)
    tl.store(out + index, numbers.to_float(tl.load(bits + index), CODE))


def exact(code: int) -> torch.Tensor:
    """What `plane` should make of the codes 0 to 255: float16, of E4M3 a 256th."""
    every = torch.arange(256, dtype=torch.uint8).view(segments_module.CODE_DTYPES[code]).float()
    return (every / 256 if code == int(numbers.E4M3) else every).half()


@pytest.mark.parametrize("code", CODES)
def test_planes_of_every_code(code: int) -> None:
    every = torch.arange(256, dtype=torch.int32)
    words = (every | (255 - every) << 8).to(torch.int16)
    low, high = torch.empty(256, dtype=torch.float16), torch.empty(256, dtype=torch.float16)
    _planes[(1,)](words, low, high, CODE=code)
    expected = exact(code)
    if code == int(numbers.E4M3):
        # Its NaN codes are read as numbers: no row has any but a broken one.
        expected[0x7F], expected[0xFF] = 1.875, numbers.E4M3_BROKEN.value
    torch.testing.assert_close(low, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(high, expected.flip(0), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("code", range(6))
def test_float_of_every_code(code: int) -> None:
    dtype = segments_module.CODE_DTYPES[code]
    width = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[dtype.itemsize]
    every = torch.arange(256, dtype=torch.int64) * {1: 1, 2: 257, 4: 16843009}[dtype.itemsize]
    bits = every.to(width)
    out = torch.empty(256)
    _floats[(1,)](bits, out, CODE=code)
    torch.testing.assert_close(out, bits.view(dtype).float(), rtol=0, atol=0, equal_nan=True)


def test_broken_codes_are_what_no_number_becomes() -> None:
    assert exact(int(numbers.INT8))[0x80] == numbers.INT8_BROKEN.value
    assert exact(int(numbers.E5M2))[0xFF].isnan()


# -------------------------------------------------------------------------------------------------------- the PTX


def executed(instructions: str, words: np.ndarray) -> np.ndarray:
    """Few instructions are known; any other raises KeyError. words uint32 -> uint32."""
    registers: dict[str, np.ndarray] = {"$1": words}

    def value(name: str) -> np.ndarray:
        return registers[name] if name in registers else np.full_like(words, int(name, 0))

    for one in re.sub(r"[{}]|\.reg[^;]*;", "", instructions).split(";"):
        if not one.strip():
            continue
        name, _, rest = one.strip().partition(" ")
        to, *operands = (each.strip() for each in rest.split(","))
        registers[to] = OPERATIONS[name](*(value(each) for each in operands))
    return registers["$0"]


def _lop3(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    found = np.zeros_like(a)
    for index in range(8):
        if int(table.flat[0]) >> index & 1:
            found |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return found


def _sub_halves(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.view(np.float16) - b.view(np.float16)).view(np.uint32)


OPERATIONS = {
    "mov.b32": lambda a: a,
    "and.b32": lambda a, b: a & b,
    "shl.b32": lambda a, b: a << b,
    "shr.u32": lambda a, b: a >> b,
    "lop3.b32": _lop3,
    "sub.rn.f16x2": _sub_halves,
}


@pytest.mark.parametrize(("code", "is_high"), sorted(numbers.PTX))
def test_ptx_gives_what_plain_triton_gives(code: int, is_high: int) -> None:
    every = np.arange(65536, dtype=np.uint32)
    words = every << np.uint32(16) | every[::-1]  # two words of two codes, all that there are in either half
    found = executed(numbers.PTX[code, is_high], words).view(np.uint16).reshape(-1, 2)
    codes = words.view(np.uint8).reshape(-1, 2, 2)[:, :, is_high]
    expected = exact(code).view(torch.uint16).numpy().copy()
    if code == int(numbers.E4M3):
        expected[0x7F], expected[0xFF] = np.array([1.875, -1.875], dtype=np.float16).view(np.uint16)
    is_nan = np.isnan(exact(code).numpy())[codes] & (code == int(numbers.E5M2))
    assert np.array_equal(found[~is_nan], expected[codes][~is_nan])
    assert np.isnan(found[is_nan].view(np.float16)).all()
