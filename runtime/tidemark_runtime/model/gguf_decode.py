"""From the packed blocks of a GGUF tensor to a `tensors.HostTensor`, without loss.

Block layouts are those of ggml (`ggml-common.h`); the tests compare every type with `gguf.quants.dequantize`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from tidemark_runtime.model import gguf_file, tensors

_ELEMENTS_AT_A_TIME = 1 << 22
"""Decoded together: bounds the temporaries to some tens of megabytes, whatever the tensor's size."""

_Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""quants [num_blocks, block_elements], scales and mins float32 [num_blocks, groups in a block]."""


@dataclass(frozen=True, slots=True)
class _GroupedType:
    bits: int
    group_size: int
    has_mins: bool
    decode: Callable[[torch.Tensor], _Parts]
    """From uint8 [num_blocks, block_bytes]."""


def decode(info: gguf_file.TensorInfo) -> tensors.HostTensor:
    """Dense types as a view of the mapped file; quantized ones as exact groups."""
    data = torch.from_numpy(info.data)
    if info.type_name in _DENSE:
        return data.view(_DENSE[info.type_name]).view(info.shape)
    num_rows = info.shape[0] if len(info.shape) > 1 else 1
    return _decode_grouped(data.view(num_rows, -1), info.shape[-1], info.type_name)


def decode_part(info: gguf_file.TensorInfo, dim: int, own: range) -> tensors.Grouped | None:
    """Rows (`dim` 0) or inputs (1) `own` of a matrix in groups, and nothing else of it is unpacked. None for a dense
    one, of which a part is a view anyway, and where `own` begins or ends inside of a block."""
    if info.type_name in _DENSE or len(info.shape) != 2 or own.stop > info.shape[dim]:
        return None
    rows = torch.from_numpy(info.data).view(info.shape[0], -1)
    if dim == 0:
        return _decode_grouped(rows[own.start : own.stop], info.shape[1], info.type_name)
    block_bytes = _BLOCK_BYTES[info.type_name]
    block_elements = info.shape[1] * block_bytes // rows.shape[1]
    if own.start % block_elements or own.stop % block_elements:
        return None
    first, end = (at // block_elements * block_bytes for at in (own.start, own.stop))
    return _decode_grouped(rows[:, first:end], len(own), info.type_name)


def _decode_grouped(rows: torch.Tensor, width: int, type_name: str) -> tensors.Grouped:
    """`rows`: uint8 [N, bytes of a row of `width` elements]."""
    num_rows, kind, block_bytes = len(rows), _GROUPED[type_name], _BLOCK_BYTES[type_name]
    quants = torch.empty(num_rows, width, dtype=torch.uint8 if kind.bits == 4 else torch.int8)
    scales = torch.empty(num_rows, width // kind.group_size)
    mins = torch.empty_like(scales) if kind.has_mins else None
    rows_at_a_time = max(1, _ELEMENTS_AT_A_TIME // width)
    for start in range(0, num_rows, rows_at_a_time):
        some = slice(start, min(num_rows, start + rows_at_a_time))
        block_quants, block_scales, block_mins = kind.decode(rows[some].reshape(-1, block_bytes))
        quants[some] = block_quants.reshape(-1, width)
        scales[some] = block_scales.reshape(-1, width // kind.group_size)
        if mins is not None and block_mins is not None:
            mins[some] = block_mins.reshape(-1, width // kind.group_size)
    return tensors.Grouped(quants, scales, mins, kind.bits, kind.group_size)


def _q4_0(blocks: torch.Tensor) -> _Parts:
    """f16 scale | 16 bytes: element i in the low half of byte i, element i + 16 in the high half; offset 8."""
    scales = _float16(blocks[:, 0:2])
    return _halves(blocks[:, 2:18], 16), scales, scales * -8.0


def _q4_1(blocks: torch.Tensor) -> _Parts:
    """f16 scale | f16 min | 16 bytes as in Q4_0."""
    return _halves(blocks[:, 4:20], 16), _float16(blocks[:, 0:2]), _float16(blocks[:, 2:4])


def _q8_0(blocks: torch.Tensor) -> _Parts:
    """f16 scale | 32 signed bytes."""
    return blocks[:, 2:34].view(torch.int8), _float16(blocks[:, 0:2]), None


def _q4_k(blocks: torch.Tensor) -> _Parts:
    """f16 scale of scales | f16 scale of mins | 12 bytes: 8 scales and 8 mins of 6 bits | 128 bytes of quants.

    The 12 bytes: the low 6 bits of bytes 0-3 are scales 0-3, of bytes 4-7 mins 0-3; bytes 8-11 hold the low 4 bits of
    scales 4-7 (low half) and of mins 4-7 (high half), whose upper 2 bits are the upper 2 bits of bytes 0-7.
    """
    low, mid, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat([low & 0x3F, (high & 0x0F) | ((low >> 2) & 0x30)], dim=1)
    mins = torch.cat([mid & 0x3F, (high >> 4) | ((mid >> 2) & 0x30)], dim=1)
    return _halves(blocks[:, 16:144], 32), _float16(blocks[:, 0:2]) * scales, -(_float16(blocks[:, 2:4]) * mins)


def _q6_k(blocks: torch.Tensor) -> _Parts:
    """128 bytes of low 4 bits | 64 bytes of upper 2 bits | 16 signed scales | f16 scale of scales; offset 32."""
    num_blocks = blocks.shape[0]
    low = _halves(blocks[:, 0:128], 64)
    upper = blocks[:, 128:192].reshape(num_blocks, 2, 32)
    high = torch.stack([(upper >> shift) & 3 for shift in (0, 2, 4, 6)], dim=2).view(num_blocks, 256)
    quants = (low | (high << 4)).view(torch.int8) - 32
    return quants, _float16(blocks[:, 208:210]) * blocks[:, 192:208].view(torch.int8), None


def _halves(packed: torch.Tensor, run: int) -> torch.Tensor:
    """Per `run` bytes first all low halves, then all high halves: [B, n] -> [B, 2 n]."""
    runs = packed.reshape(packed.shape[0], -1, run)
    return torch.stack([runs & 0x0F, runs >> 4], dim=2).view(packed.shape[0], -1)


def _float16(pairs: torch.Tensor) -> torch.Tensor:
    """[B, 2] bytes -> [B, 1] float32."""
    return pairs.contiguous().view(torch.float16).to(torch.float32)


_DENSE: Mapping[str, torch.dtype] = MappingProxyType(
    {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
)
_GROUPED: Mapping[str, _GroupedType] = MappingProxyType(
    {
        "Q4_0": _GroupedType(4, 32, True, _q4_0),
        "Q4_1": _GroupedType(4, 32, True, _q4_1),
        "Q8_0": _GroupedType(8, 32, False, _q8_0),
        "Q4_K": _GroupedType(4, 32, True, _q4_k),
        "Q6_K": _GroupedType(8, 16, False, _q6_k),
    }
)
_BLOCK_BYTES: Mapping[str, int] = MappingProxyType(
    {kind.name: kind.block_bytes for kind in gguf_file.TENSOR_TYPES.values()}
)
