"""Bytes that a model's matrices take in memory, by format, before anything is loaded.

The same sum as `model.linear.LinearFactory.num_bytes`: matrices, biases, embedding and head. Norms (a few vectors a
layer, far below one in a thousand) are in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

UNQUANTIZED_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Dense formats -> bytes a weight."""
ROUNDED = ("int8", "int8_weight_only", "fp8_weight_only")
"""Made at load from an unquantized checkpoint."""
PACKED = ("awq", "gptq")
"""Read from the checkpoint in groups."""
FORMATS = (*UNQUANTIZED_BYTES, *ROUNDED, *PACKED)
PANEL_WIDTH = 16
"""Outputs that our kernel holds side by side on AVX2 and NEON; the last panel is filled up. 32 with AVX-512."""

_HALF_BYTES, _FLOAT_BYTES = 2, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixShape:
    """What the matrices of a decoder depend on. All sizes are numbers of elements."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tie_embeddings: bool = False
    """The head is the embedding table, in the same memory."""
    qkv_bias: bool = False

    @property
    def layer_matrices(self) -> tuple[tuple[int, int], ...]:
        """(outputs, inputs) of one layer's fused QKV, O, fused gate and up, down."""
        width = self.num_heads * self.head_dim
        qkv = width + 2 * self.num_kv_heads * self.head_dim
        hidden, inner = self.hidden_size, self.intermediate_size
        return ((qkv, hidden), (hidden, width), (2 * inner, hidden), (hidden, inner))

    @property
    def bias_elements(self) -> int:
        """Of one layer."""
        return self.layer_matrices[0][0] if self.qkv_bias else 0


@dataclass(frozen=True, slots=True)
class Groups:
    """How one matrix is cut: codes of `bits` bits, and for each output and group of inputs `beside_bytes`."""

    bits: int
    group_size: int
    """Inputs; -1: all of a row."""
    beside_bytes: int
    """Of scale, and of zero or minimum if there is one."""

    def matrix_bytes(self, num_outputs: int, num_inputs: int, panel_width: int = PANEL_WIDTH) -> int:
        size = num_inputs if self.group_size == -1 else self.group_size
        if size < 1 or num_inputs % size:
            raise ValueError(f"group_size is {self.group_size}, expected -1 or a divisor of {num_inputs} inputs")
        rows = _padded(num_outputs, panel_width)
        return rows * (num_inputs * self.bits // 8 + num_inputs // size * self.beside_bytes)


def held_dtype(file_dtype: str, dtype: str, quantization: str) -> str:
    """What unquantized matrices and tables are held in, of UNQUANTIZED_BYTES, where activations are `dtype`.

    A file's own 16 bits beside float32, except with quantization `none`. (Whether a second, wider form for many rows
    pays is timed at the start, and not planned for.)
    """
    keeps = quantization != "none" and dtype == "float32" and UNQUANTIZED_BYTES[file_dtype] == _HALF_BYTES
    return file_dtype if keeps else dtype


def weights_bytes(
    shape: MatrixShape,
    format: str,
    *,
    group_size: int = 128,
    bits: int = 4,
    act_order: bool = False,
    tables: str = "bfloat16",
    panel_width: int = PANEL_WIDTH,
) -> int:
    """Bytes of a model in `format`, one of FORMATS.

    `group_size` (-1: one group a row), `bits` (4 or 8) and `act_order` are of the PACKED formats, whose scales and
    zeros are 16 bits each. `tables`: what embedding and head are kept in beside weights that are only weights, one of
    UNQUANTIZED_BYTES; `int8` rounds them too. A model of many devices divides this by their number.
    Raises ValueError for an unknown format and a group size that does not divide.
    """
    if format not in FORMATS:
        raise ValueError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    if format in UNQUANTIZED_BYTES:
        return _dense_bytes(shape, UNQUANTIZED_BYTES[format], panel_width)
    layer = 0
    for num_outputs, num_inputs in shape.layer_matrices:
        groups = _groups(format, num_inputs, bits, group_size)
        layer += groups.matrix_bytes(num_outputs, num_inputs, panel_width)
        layer += _FLOAT_BYTES * num_inputs if act_order and format == "gptq" else 0
    layer += _FLOAT_BYTES * shape.bias_elements
    return shape.num_layers * layer + _num_tables(shape) * _table_bytes(shape, format, tables, panel_width)


def _groups(format: str, num_inputs: int, bits: int, group_size: int) -> Groups:
    if format in PACKED:
        return Groups(bits, group_size, 2 * _HALF_BYTES)
    if format == "fp8_weight_only":
        return Groups(8, -1, _FLOAT_BYTES)
    return Groups(8, 32 if num_inputs % 32 == 0 else 16, _HALF_BYTES)


def _dense_bytes(shape: MatrixShape, item: int, panel_width: int) -> int:
    """In panels, as the processor's kernel has them, biases in float32."""
    layer = sum(item * _padded(outputs, panel_width) * inputs for outputs, inputs in shape.layer_matrices)
    layer += _FLOAT_BYTES * shape.bias_elements
    rows = _num_tables(shape) * _padded(shape.vocab_size, panel_width)
    return shape.num_layers * layer + item * rows * shape.hidden_size


def _table_bytes(shape: MatrixShape, format: str, tables: str, panel_width: int) -> int:
    """Of the embedding, and as much again of a head of its own."""
    if format == "int8":
        return _groups(format, shape.hidden_size, 8, 0).matrix_bytes(shape.vocab_size, shape.hidden_size, panel_width)
    return UNQUANTIZED_BYTES[tables] * _padded(shape.vocab_size, panel_width) * shape.hidden_size


def _num_tables(shape: MatrixShape) -> int:
    return 1 if shape.tie_embeddings else 2


def _padded(num_outputs: int, panel_width: int) -> int:
    return -(-num_outputs // panel_width) * panel_width
