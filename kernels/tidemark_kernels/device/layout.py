"""Where in a page one layer's K and V lie, as a table on the device that kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidemark_kernels import segments as segments_module

K, V = 0, 1
"""First index of both tables."""
ELEMENTS, SCALES, CODE = 0, 1, 2
"""Last index of `table`."""
CODES = tuple(code for code in segments_module.CODE_DTYPES if code != segments_module.INT4_CODE)
"""Dtypes that kernels of a device read. Four bits are not among them: their loss is not worth kernels of their own."""


@dataclass(frozen=True, slots=True)
class DeviceSegments:
    """One layer. Offsets are bytes in a page; an element segment is `[block_size, head_dim]`, scales of a quantized one
    float32 `[block_size]`."""

    table: torch.Tensor
    """int64 `[2, num_kv_heads, 3]`: K then V; offset of the elements, offset of the scales (-1: none in the page),
    dtype code (`segments.DTYPE_CODES`)."""
    fixed: torch.Tensor
    """float32 `[2, num_kv_heads]`: one scale for all rows of a segment, 0 where there is none."""
    k_codes: tuple[int, ...]
    """The dtype codes that occur, sorted: kernels are compiled for exactly these. One: no branch."""
    v_codes: tuple[int, ...]
    num_kv_heads: int
    source: segments_module.LayerSegments
    """The same on the host, for checks and references."""
    forms: tuple[tuple[int, int, bool, bool], ...]
    """(code of K, code of V, K has a fixed scale, V has one) of all heads, each once, sorted."""

    @classmethod
    def of(cls, source: segments_module.LayerSegments, device: torch.device) -> DeviceSegments:
        """Raises `ValueError` for a dtype without a kernel."""
        k_codes, v_codes = (tuple(sorted(set(each.tolist()))) for each in (source.k_dtypes, source.v_dtypes))
        for code in (*k_codes, *v_codes):
            if code not in CODES:
                known = ", ".join(segments_module.code_name(each) for each in CODES)
                raise ValueError(
                    f"KV dtype {segments_module.code_name(code)} has no kernel for a device, expected one of {known}"
                )
        rows = [
            torch.stack((offsets, scales, dtypes.long()), dim=1)
            for offsets, scales, dtypes in (
                (source.k_offsets, source.k_scales, source.k_dtypes),
                (source.v_offsets, source.v_scales, source.v_dtypes),
            )
        ]
        table = torch.stack(rows).contiguous().to(device)
        fixed = torch.stack((source.k_fixed, source.v_fixed)).contiguous().to(device)
        columns = (source.k_dtypes, source.v_dtypes, source.k_fixed > 0, source.v_fixed > 0)
        forms = tuple(sorted(set(zip(*(each.tolist() for each in columns), strict=True))))
        return cls(table, fixed, k_codes, v_codes, source.num_kv_heads, source, forms)
