"""How a matrix of 4 or 8 bits lies on a device: one form for GGUF's, AWQ's, GPTQ's and our own groups.

Nothing is rounded: codes, scales, mins and zeros are the checkpoint's, in another order. `jit/packed_formats.py` tells
that order and why it is so. Outputs are padded to PADDED_OUTPUTS, inputs to PADDED_INPUTS, with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tidemark_kernels.device import packed_scales
from tidemark_kernels.jit import packed_formats as formats

PADDED_OUTPUTS = 128
"""The tallest tile: no launch needs a mask for codes and scales."""
PADDED_INPUTS = 128
GROUP_MULTIPLE = 16
"""Inputs of one matrix instruction: a group is never cut inside one."""
K_RUNS = (2, 4)
INT4, INT8, E4M3 = int(formats.INT4.value), int(formats.INT8.value), int(formats.E4M3.value)
_KINDS = {torch.uint8: INT4, torch.int8: INT8, torch.float8_e4m3fn: E4M3}
_WORDS_A_LOAD = 4
"""A thread's, of 32 bits."""
_CODES_AT_A_TIME = 1 << 26
"""Moved and placed together: bounds the temporaries, of a byte a code, to some hundred megabytes."""


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A `[num_outputs, num_inputs]` matrix: w = code * scale + min, or (code - zero) * scale."""

    codes: torch.Tensor
    """int32 `[padded_outputs / 16, num_pieces, 32 lanes, 4 words]`; a piece has 64 inputs of 4 bits, or 32 of 8."""
    affine: packed_scales.PackedScales
    order: torch.Tensor | None
    """int32 `[num_inputs]`, of act-order: which input each column is."""
    num_outputs: int
    num_inputs: int
    group_size: int
    kind: int
    """INT4, INT8 or E4M3."""
    k_run: int
    """Neighbouring inputs of a thread, as the device's matrix instructions want them: 2 or 4."""

    @classmethod
    def pack(
        cls,
        quants: torch.Tensor,
        scales: torch.Tensor,
        mins: torch.Tensor | None,
        group_size: int,
        zeros: torch.Tensor | None = None,
        order: torch.Tensor | None = None,
        device: torch.device | None = None,
        k_run: int | None = None,
    ) -> PackedWeight:
        """Packs on `device` (default: where `quants` are), to which the arguments are moved, codes in portions.

        `quants` `[N, K]`: uint8 0..15 for 4 bits, int8 or float8_e4m3fn for 8. `scales`, `mins` or `zeros`: float32
        `[N, K / group_size]`. `order`: int32 `[K]`. `k_run`: default, what `device` wants.
        Raises `ValueError` naming what does not fit.
        """
        device = quants.device if device is None else device
        run = run_of(device) if k_run is None else k_run
        if run not in K_RUNS:
            raise ValueError(f"k_run is {run}, expected one of {K_RUNS}")
        _check(quants, {"scales": scales, "mins": mins, "zeros": zeros}, order, group_size)
        kind = _KINDS[quants.dtype]
        num_outputs, num_inputs = quants.shape
        # Of the inputs that only fill up: their codes are 0, and so are their scales.
        num_groups = 1 if group_size == num_inputs else -(-_up(num_inputs, PADDED_INPUTS) // group_size)
        affine = packed_scales.pack(
            scales.to(device),
            None if mins is None else mins.to(device),
            None if zeros is None else zeros.to(device),
            is_int4=kind == INT4,
            group_size=group_size,
            num_rows=num_groups,
            width=_up(num_outputs, PADDED_OUTPUTS),
        )
        return cls(
            codes=_placed(quants, kind, run, device),
            affine=affine,
            order=None if order is None else order.to(device),
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            group_size=group_size,
            kind=kind,
            k_run=run,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_outputs, self.num_inputs

    @property
    def device(self) -> torch.device:
        return self.codes.device

    @property
    def padded_outputs(self) -> int:
        return self.codes.shape[0] * 16

    @property
    def num_pieces(self) -> int:
        """In one row; a piece is what one load of 16 bytes a thread brings."""
        return self.codes.shape[1]

    @property
    def padded_inputs(self) -> int:
        return self.num_pieces * (256 // self.bits)

    @property
    def group(self) -> int:
        """As kernels are told: inputs that share a scale, 0 if all do, whose number then is not compiled in."""
        return 0 if self.group_size == self.num_inputs else self.group_size

    @property
    def bits(self) -> int:
        return 4 if self.kind == INT4 else 8

    @property
    def num_bytes(self) -> int:
        """Of device memory, padding included."""
        held = (self.codes, self.affine.words, self.affine.supers, self.order)
        return sum(part.numel() * part.element_size() for part in held if part is not None)

    def dequantize(self) -> torch.Tensor:
        """float32 `[num_outputs, num_inputs]`, inputs in their own order; in plain torch: what the bytes mean."""
        codes = _unplaced(self.codes, self.kind, self.k_run)[: self.num_outputs, : self.num_inputs]
        num_groups = self.num_inputs // self.group_size
        scales, beside = (part[:num_groups, : self.num_outputs].t().unsqueeze(-1) for part in self.affine.unpacked())
        groups = codes.reshape(self.num_outputs, -1, self.group_size)
        has_min = self.affine.offset == packed_scales.MIN
        values = groups * scales + beside if has_min else (groups - beside) * scales
        values = values.reshape(self.num_outputs, self.num_inputs)
        if self.order is None:
            return values
        return torch.empty_like(values).index_copy_(1, self.order.long(), values)


def run_of(device: torch.device) -> int:
    """Neighbouring inputs a thread holds in the left operand there: 4 where Triton compiles to `mma.sync`."""
    if device.type != "cuda":
        return 2
    return 2 if torch.cuda.get_device_capability(device)[0] == 9 else 4


def _placed(quants: torch.Tensor, kind: int, run: int, device: torch.device) -> torch.Tensor:
    """Codes `[N, K]` in the order of `packed_formats`, as words on `device`; some rows after the other."""
    num_outputs, num_inputs = quants.shape
    width = _up(num_inputs, PADDED_INPUTS)
    a_piece = 64 if kind == INT4 else 32
    shape = (_up(num_outputs, PADDED_OUTPUTS) // 16, width // a_piece, 32, _WORDS_A_LOAD)
    words = torch.empty(shape, dtype=torch.int32, device=device)
    rows_at_a_time = max(1, _CODES_AT_A_TIME // width // PADDED_OUTPUTS) * PADDED_OUTPUTS
    for start in range(0, num_outputs, rows_at_a_time):
        some = quants[start : start + rows_at_a_time].view(torch.uint8).to(device)
        padded = some.new_zeros(_up(len(some), PADDED_OUTPUTS), width)
        padded[: len(some), :num_inputs] = some ^ 128 if kind == INT8 else some
        words[start // 16 : (start + len(padded)) // 16] = _placed_rows(padded, kind, run)
    return words


def _placed_rows(padded: torch.Tensor, kind: int, run: int) -> torch.Tensor:
    """uint8 `[R, W]` -> int32 `[R / 16, num_pieces, 32, 4]`."""
    steps = 4 if kind == INT4 else 2
    # Output: tile, output + 8, g. Input: piece, step, then (input + run, t, neighbour) or (t, input + run, neighbour).
    inner = (2, 4, 2) if run == 2 else (4, 2, 2)
    named = padded.view(padded.shape[0] // 16, 2, 8, -1, steps, *inner)
    below, g, piece, step, neighbour = 1, 2, 3, 4, 7
    far, t = (5, 6) if run == 2 else (6, 5)
    if kind == INT4:
        placed = named.permute(0, piece, g, t, step, neighbour, far, below).reshape(-1, 2)
        data = placed[:, 0] | placed[:, 1] << 4
    else:
        data = named.permute(0, piece, g, t, step, far, neighbour, below).reshape(-1)
    return data.view(torch.int32).view(padded.shape[0] // 16, -1, 32, _WORDS_A_LOAD)


def _unplaced(words: torch.Tensor, kind: int, run: int) -> torch.Tensor:
    """The way back: float32 `[padded_outputs, padded_inputs]`."""
    num_tiles, num_pieces = words.shape[:2]
    data = words.contiguous().view(torch.uint8)
    if kind == INT4:
        codes = torch.stack((data & 15, data >> 4), dim=-1)
        named = codes.view(num_tiles, num_pieces, 8, 4, 4, 2, 2, 2)
        below, g, piece, step, neighbour, far, t = 7, 2, 1, 4, 5, 6, 3
    else:
        named = (data ^ 128 if kind == INT8 else data).view(num_tiles, num_pieces, 8, 4, 2, 2, 2, 2)
        below, g, piece, step, neighbour, far, t = 7, 2, 1, 4, 6, 5, 3
    inner = (far, t, neighbour) if run == 2 else (t, far, neighbour)
    codes = named.permute(0, below, g, piece, step, *inner).reshape(num_tiles * 16, -1).contiguous()
    return codes.view({INT4: torch.uint8, INT8: torch.int8, E4M3: torch.float8_e4m3fn}[kind]).float()


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _check(
    quants: torch.Tensor, parts: Mapping[str, torch.Tensor | None], order: torch.Tensor | None, group_size: int
) -> None:
    if quants.dtype not in _KINDS or quants.dim() != 2 or 0 in quants.shape:
        wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in _KINDS)
        raise ValueError(f"quants are {quants.dtype} {list(quants.shape)}, expected {wanted} [num_outputs, num_inputs]")
    if group_size < GROUP_MULTIPLE or group_size % GROUP_MULTIPLE:
        raise ValueError(f"group_size is {group_size}, expected a multiple of {GROUP_MULTIPLE}")
    num_outputs, num_inputs = quants.shape
    if num_inputs % group_size:
        raise ValueError(f"num_inputs is {num_inputs}, expected a multiple of group_size {group_size}")
    shape = (num_outputs, num_inputs // group_size)
    for name, part in parts.items():
        if part is not None and (part.dtype != torch.float32 or tuple(part.shape) != shape):
            raise ValueError(f"{name} are {part.dtype} {list(part.shape)}, expected torch.float32 {list(shape)}")
    if parts["mins"] is not None and parts["zeros"] is not None:
        raise ValueError("mins and zeros are given, expected one of them at most")
    if order is not None and (order.dtype != torch.int32 or tuple(order.shape) != (num_inputs,)):
        raise ValueError(f"order is {order.dtype} {list(order.shape)}, expected torch.int32 [{num_inputs}]")
    if quants.dtype == torch.uint8 and int(quants.max()) > 15:
        raise ValueError(f"a 4-bit code is {int(quants.max())}, expected 0 to 15")
    if quants.dtype == torch.float8_e4m3fn and bool((quants.view(torch.uint8) & 127 == 127).any()):
        raise ValueError("quants hold a NaN, expected numbers: kernels would read it as 480")
