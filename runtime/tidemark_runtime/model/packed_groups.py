"""From the packed tensors of AWQ and GPTQ to groups, without loss: weight = (code - zero) * scale.

Both keep a matrix [N outputs, K inputs] as four or two codes in the bytes of int32 words, little end first:

- AWQ (Lin et al., arXiv 2306.00978; AutoAWQ's `gemm`): `qweight` [K, N / 8], `qzeros` [G, N / 8], `scales` [G, N].
  The eight outputs of a word stand in the order 0 2 4 6 1 3 5 7.
- GPTQ (Frantar et al., arXiv 2210.17323; AutoGPTQ): `qweight` [K / 8, N], eight inputs a word in their order; `qzeros`
  [G, N / 8], less one in the first format (as all readers do, one is added without wrapping around: 16 is a zero, too);
  `scales` [G, N]; `g_idx` [K], the group of each input.

With act-order the groups of neighbouring inputs differ. Inputs are put in the order of their groups, once, while
loading, and the layer reads its activations in that order: the same products, summed in another order.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import packing, tensors

PARTS = ("qweight", "qzeros", "scales", "g_idx")
"""Tensors of one matrix, after its name; only `g_idx` may be missing."""
REQUIRED = PARTS[:3]
_WORD_BITS = 32
_AWQ_NIBBLE_OF_OUTPUT = (0, 4, 1, 5, 2, 6, 3, 7)
_SCALE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def decode(name: str, parts: Mapping[str, torch.Tensor], how: packing.Packing) -> tensors.Grouped:
    """`name`: of the matrix, with its folder, for messages; `parts`: by PARTS.

    Raises CorruptModel for a part that is missing or has the wrong dtype or shape, UnsupportedModel for a group size
    that does not divide.
    """
    missing = [part for part in REQUIRED if part not in parts]
    if missing:
        raise errors.CorruptModel(
            f"{name}: the tensor {name.rsplit(' ', 1)[-1]}.{missing[0]} is missing beside .qweight. Nothing is assumed "
            "in its place: fetch the checkpoint again, or quantize again"
        )
    _check_dtype(name, "qweight", parts["qweight"], (torch.int32,))
    _check_dtype(name, "qzeros", parts["qzeros"], (torch.int32,))
    _check_dtype(name, "scales", parts["scales"], _SCALE_DTYPES)
    if how.method == packing.AWQ:
        return _awq(name, parts, how)
    return _gptq(name, parts, how)


def cut(
    parts: Mapping[str, torch.Tensor], how: packing.Packing, dim: int, own: range, total: int
) -> Mapping[str, torch.Tensor] | None:
    """Those of `own` of the matrix's `total` outputs (`dim` 0) or inputs (1), as views: what `decode` makes of them is
    that part of what it makes of the whole.

    None where that cannot be: parts that do not fit each other (`decode` says what is wrong), words or groups that
    would be cut, inputs in act-order.
    """
    if not all(part in parts and parts[part].dim() == 2 for part in REQUIRED):
        return None
    a_word = _WORD_BITS // how.bits
    packs_outputs = how.method == packing.AWQ
    rows, columns = parts["qweight"].shape
    inputs, outputs = (rows, columns * a_word) if packs_outputs else (rows * a_word, columns)
    if (outputs, inputs)[dim] != total or own.start % a_word or own.stop % a_word:
        return None
    words = slice(own.start // a_word, own.stop // a_word)
    whole = slice(own.start, own.stop)
    if dim == 0:
        found = {
            "qweight": parts["qweight"][:, words if packs_outputs else whole],
            "qzeros": parts["qzeros"][:, words],
            "scales": parts["scales"][:, whole],
        }
        return {**parts, **found}
    groups = slice(0, 1)
    if how.group_size != packing.WHOLE_ROW:
        if own.start % how.group_size or own.stop % how.group_size:
            return None
        groups = slice(own.start // how.group_size, own.stop // how.group_size)
    found = {
        "qweight": parts["qweight"][whole if packs_outputs else words],
        "qzeros": parts["qzeros"][groups],
        "scales": parts["scales"][groups],
    }
    order = parts.get("g_idx")
    if order is not None:
        in_place = torch.arange(inputs, dtype=order.dtype) // how.group_of(inputs)
        if order.shape != in_place.shape or not torch.equal(order, in_place):
            return None
        found["g_idx"] = order[whole] - groups.start
    return found


def _awq(name: str, parts: Mapping[str, torch.Tensor], how: packing.Packing) -> tensors.Grouped:
    qweight = parts["qweight"]
    a_word = _WORD_BITS // how.bits
    num_inputs, num_outputs = qweight.shape[0], qweight.shape[1] * a_word
    scales = _affine(name, parts, how, (num_inputs, num_outputs))
    zeros = _awq_outputs(parts["qzeros"])
    quants = _awq_outputs(qweight).t().contiguous()
    return tensors.Grouped(quants, scales, None, how.bits, how.group_of(num_inputs), zeros.t().float().contiguous())


def _awq_outputs(words: torch.Tensor) -> torch.Tensor:
    """int32 [R, N / 8] -> uint8 [R, N], outputs in their order."""
    codes = _codes(words, 4)
    return codes.view(len(words), -1, 8)[:, :, list(_AWQ_NIBBLE_OF_OUTPUT)].reshape(len(words), -1)


def _gptq(name: str, parts: Mapping[str, torch.Tensor], how: packing.Packing) -> tensors.Grouped:
    qweight = parts["qweight"]
    num_inputs, num_outputs = qweight.shape[0] * (_WORD_BITS // how.bits), qweight.shape[1]
    scales = _affine(name, parts, how, (num_inputs, num_outputs))
    zeros = _codes(parts["qzeros"], how.bits).t().float() + how.zero_offset
    quants = _codes(qweight.t().contiguous(), how.bits)
    if how.bits == 8:  # signed, as 8-bit groups are
        quants, zeros = (quants ^ 128).view(torch.int8), zeros - 128
    group_size = how.group_of(num_inputs)
    order = _order(name, parts.get("g_idx"), how, num_inputs)
    if order is not None:
        quants = quants.index_select(1, order)
    return tensors.Grouped(quants, scales, None, how.bits, group_size, zeros.contiguous(), order)


def _codes(words: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 [R, C] -> uint8 [R, C * 32 / bits], low bits first."""
    packed = words.contiguous().view(torch.uint8)
    return packed if bits == 8 else torch.stack((packed & 15, packed >> 4), dim=-1).flatten(1)


def _affine(name: str, parts: Mapping[str, torch.Tensor], how: packing.Packing, shape: tuple[int, int]) -> torch.Tensor:
    """Scales float32 [N, G], after the shapes of scales and zeros were checked for `shape` (inputs, outputs)."""
    num_inputs, num_outputs = shape
    group_size = how.group_of(num_inputs)
    if num_inputs % group_size or group_size % packing.GROUP_MULTIPLE:
        raise errors.UnsupportedModel(
            f"{name}: {num_inputs} inputs cannot be cut into groups of {group_size}, expected a group_size that "
            f"divides them and is a multiple of {packing.GROUP_MULTIPLE}. Quantize again with such a one, or with -1"
        )
    groups = num_inputs // group_size
    _check_shape(name, "scales", parts["scales"], (groups, num_outputs))
    _check_shape(name, "qzeros", parts["qzeros"], (groups, num_outputs * how.bits // _WORD_BITS))
    scales = parts["scales"].t().float().contiguous()
    if not bool(scales.isfinite().all()):
        raise errors.CorruptModel(f"{name}.scales: got an infinity or a NaN, expected numbers. Quantize again")
    return scales


def _order(name: str, g_idx: torch.Tensor | None, how: packing.Packing, num_inputs: int) -> torch.Tensor | None:
    """int32 [K]: the input at each place after sorting by group; None where they stand so already."""
    group_size = how.group_of(num_inputs)
    if g_idx is None:
        if how.act_order and group_size < num_inputs:
            raise errors.CorruptModel(
                f"{name}: the tensor {name.rsplit(' ', 1)[-1]}.g_idx is missing, but quantization_config says "
                "desc_act: which inputs share a scale is not known. Fetch the checkpoint again, or quantize again"
            )
        return None
    _check_dtype(name, "g_idx", g_idx, (torch.int32, torch.int64))
    _check_shape(name, "g_idx", g_idx, (num_inputs,))
    order = torch.argsort(g_idx, stable=True)
    places = torch.arange(num_inputs)
    if not torch.equal(g_idx[order].long(), places // group_size):
        raise errors.CorruptModel(
            f"{name}.g_idx: got groups of unequal size, expected {group_size} inputs in each of "
            f"{num_inputs // group_size} groups. Quantize again"
        )
    return None if torch.equal(order, places) else order.int()


def _check_dtype(name: str, part: str, seen: torch.Tensor, wanted: tuple[torch.dtype, ...]) -> None:
    if seen.dtype not in wanted:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in wanted)
        got = str(seen.dtype).removeprefix("torch.")
        raise errors.UnsupportedModel(f"{name}.{part}: got {got}, expected {names}. Quantize again")


def _check_shape(name: str, part: str, seen: torch.Tensor, wanted: tuple[int, ...]) -> None:
    if tuple(seen.shape) != wanted:
        raise errors.CorruptModel(
            f"{name}.{part}: got the shape {list(seen.shape)}, expected {list(wanted)} beside this .qweight and the "
            "group_size of quantization_config. Is it another format than that says?"
        )
