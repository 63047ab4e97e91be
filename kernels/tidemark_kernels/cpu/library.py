"""The compiled library: loading it, the C structures, and one typed door per kernel.

Pointers travel as plain integers (`Tensor.data_ptr()`): ctypes turns those into `void *` in well under a microsecond.
ctypes releases the interpreter lock during each call. Nothing is checked here; `ops` does that.
"""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Sequence

import torch

_I32, _I64, _F32, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class LoadError(Exception):
    """The compiled library cannot be loaded; the message is one line."""


class Weight(ctypes.Structure):
    """`tm_weight` of panels.h."""

    _fields_ = (
        ("data", _POINTER),
        ("num_outputs", _I64),
        ("num_inputs", _I64),
        ("group", _I64),
        ("block_bytes", _I64),
        ("kind", _I32),
        ("offset", _I32),
        ("half_scales", _I32),
    )


class Segments(ctypes.Structure):
    """`tm_segments` of cache.h."""

    _fields_ = (
        ("k_offsets", _POINTER),
        ("v_offsets", _POINTER),
        ("k_dtypes", _POINTER),
        ("v_dtypes", _POINTER),
        ("k_scales", _POINTER),
        ("v_scales", _POINTER),
        ("k_fixed", _POINTER),
        ("v_fixed", _POINTER),
    )


class Slab(ctypes.Structure):
    """`tm_slab` of cache.h."""

    _fields_ = (("slab", _POINTER), ("num_pages", _I64), ("page_bytes", _I64), ("block_size", _I64))


class RopeShape(ctypes.Structure):
    """`tm_rope_shape` of cache.h."""

    _fields_ = (
        ("tokens", _I64),
        ("heads", _I64),
        ("kv_heads", _I64),
        ("head_dim", _I64),
        ("rotary_dim", _I64),
        ("eps", _F32),
        ("dtype", _I32),
    )


class Attention(ctypes.Structure):
    """`tm_attention` of cache.h."""

    _fields_ = (
        ("q", _POINTER),
        ("out", _POINTER),
        ("page_table", _POINTER),
        ("query_start", _POINTER),
        ("context_lens", _POINTER),
        ("max_pages", _I64),
        ("chunks", _I64),
        ("heads", _I64),
        ("kv_heads", _I64),
        ("head_dim", _I64),
        ("window", _I64),
        ("scale", _F32),
        ("softcap", _F32),
        ("dtype", _I32),
        ("tokens", _I64),
    )


class Step(ctypes.Structure):
    """`tm_step` of cache.h."""

    _fields_ = (
        ("shape", RopeShape),
        ("attention", Attention),
        ("slab", Slab),
        ("cosine", _POINTER),
        ("sine", _POINTER),
        ("token_page", _POINTER),
        ("token_row", _POINTER),
    )


_SIGNATURES: tuple[tuple[str, object, Sequence[object]], ...] = (
    ("tm_panel_width", ctypes.c_int, ()),
    ("tm_linear", None, (_POINTER, _POINTER, _POINTER, _I64, _I32)),
    ("tm_linear_int8", None, (_POINTER, _POINTER, _POINTER, _POINTER, _I64, _I32)),
    ("tm_rows", _I64, (_POINTER, _POINTER, _POINTER, _I64, _I32)),
    ("tm_rms_norm", None, (_I32, _POINTER, _POINTER, _POINTER, _POINTER, _I64, _I64, _F32, _I32)),
    ("tm_silu_mul", None, (_I32, _POINTER, _POINTER, _I64, _I64, _I32)),
    ("tm_rope_and_write", _I64, (*[_POINTER] * 11, _I32)),
    ("tm_paged_attention", _I64, (_POINTER, _POINTER, _POINTER, _I32)),
    ("tm_attend", _I64, (*[_POINTER] * 5, _I32)),
)


class Library:
    """The loaded kernels. The attributes are the C functions of the same name without `tm_`."""

    def __init__(self, path: pathlib.Path) -> None:
        loaded = _load(path)
        self.path = path
        for name, result, arguments in _SIGNATURES:
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
        self.linear = loaded.tm_linear
        self.linear_int8 = loaded.tm_linear_int8
        self.rows = loaded.tm_rows
        self.rms_norm = loaded.tm_rms_norm
        self.silu_mul = loaded.tm_silu_mul
        self.rope_and_write = loaded.tm_rope_and_write
        self.paged_attention = loaded.tm_paged_attention
        self.attend = loaded.tm_attend
        self.panel_width: int = loaded.tm_panel_width()


def _load(path: pathlib.Path) -> ctypes.CDLL:
    """Loads the library against torch's own OpenMP runtime.

    Usually torch has loaded that globally by now; where it has not, its file is beside torch's other libraries.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as first:
        runtimes = sorted((pathlib.Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
        runtimes += sorted((pathlib.Path(torch.__file__).parent.parent / "torch.libs").glob("libgomp*.so*"))
        if not runtimes:
            raise LoadError(f"cannot load {path}: {first}; torch brings no libgomp beside it") from first
        try:
            ctypes.CDLL(str(runtimes[0]), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(path))
        except OSError as cause:
            raise LoadError(f"cannot load {path} with {runtimes[0].name}: {cause}") from cause
