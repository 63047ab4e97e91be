"""Writes AWQ and GPTQ checkpoints, from a model of a Hugging Face folder, by rounding to nearest.

Packed bit by bit as AutoAWQ's `gemm` and AutoGPTQ do it, so that readers can be tested; nobody is meant to serve them:
real tools look for better codes than the nearest.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output of each nibble of a word."""
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, kw_only=True)
class Format:
    """What is written."""

    method: str
    bits: int = 4
    group_size: int = 128
    """-1: one group a row."""
    sym: bool = False
    act_order: bool = False
    stored_format: str = "gptq"
    """GPTQ's `checkpoint_format`."""

    @property
    def config(self) -> dict[str, Any]:
        if self.method == "awq":
            return {
                "quant_method": "awq",
                "bits": self.bits,
                "group_size": self.group_size,
                "zero_point": not self.sym,
                "version": "gemm",
                "modules_to_not_convert": None,
            }
        return {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group_size,
            "sym": self.sym,
            "desc_act": self.act_order,
            "checkpoint_format": self.stored_format,
        }


@dataclass(frozen=True)
class Rounded:
    """Codes of a matrix [N, K]; inputs belong to groups as `group_of_input` says."""

    codes: torch.Tensor
    """int32 [N, K], 0 to 2^bits - 1."""
    scales: torch.Tensor
    """float16 [N, G]."""
    zeros: torch.Tensor
    """int32 [N, G]."""
    group_of_input: torch.Tensor
    """int32 [K]."""

    def dequantized(self) -> torch.Tensor:
        """float32 [N, K]: (code - zero) * scale."""
        groups = self.group_of_input.long()
        return (self.codes - self.zeros[:, groups]).float() * self.scales.float()[:, groups]


def round_to_nearest(weight: torch.Tensor, how: Format, seed: int = 0) -> Rounded:
    """With act-order inputs are dealt to groups at random, as an order by activation looks to a reader."""
    num_inputs = weight.shape[1]
    size = num_inputs if how.group_size == -1 else how.group_size
    order = torch.arange(num_inputs)
    if how.act_order:
        order = torch.randperm(num_inputs, generator=torch.Generator().manual_seed(seed))
    groups = weight.float()[:, order].reshape(len(weight), -1, size)
    most, middle = 2**how.bits - 1, 2 ** (how.bits - 1)
    if how.sym:
        scales = (groups.abs().amax(2) / (most / 2)).clamp(min=1e-5).half()
        zeros = torch.full(scales.shape, middle, dtype=torch.int32)
    else:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scales = ((high - low) / most).clamp(min=1e-5).half()
        zeros = (-low / scales.float()).round().clamp(0, most).int()
        if how.stored_format == "gptq" and how.method == "gptq":
            zeros = zeros.clamp(min=1)  # the first format cannot store 0
    codes = (groups / scales.float().unsqueeze(2)).round() + zeros.unsqueeze(2)
    codes = codes.clamp(0, most).int().flatten(1)
    back = torch.argsort(order)
    group_of_input = (torch.arange(num_inputs) // size)[back]
    return Rounded(codes[:, back], scales, zeros, group_of_input.int())


def packed_tensors(stem: str, rounded: Rounded, how: Format) -> dict[str, torch.Tensor]:
    """The tensors of one matrix, as the tools name and pack them."""
    if how.method == "awq":
        return {
            f"{stem}.qweight": _pack_outputs(rounded.codes.t(), how.bits, AWQ_ORDER),
            f"{stem}.qzeros": _pack_outputs(rounded.zeros.t(), how.bits, AWQ_ORDER),
            f"{stem}.scales": rounded.scales.t().contiguous(),
        }
    in_order = tuple(range(32 // how.bits))
    offset = 1 if how.stored_format == "gptq" else 0
    return {
        f"{stem}.qweight": _pack_outputs(rounded.codes, how.bits, in_order).t().contiguous(),
        f"{stem}.qzeros": _pack_outputs(rounded.zeros.t() - offset, how.bits, in_order),
        f"{stem}.scales": rounded.scales.t().contiguous(),
        f"{stem}.g_idx": rounded.group_of_input,
    }


def _pack_outputs(values: torch.Tensor, bits: int, order: tuple[int, ...]) -> torch.Tensor:
    """[R, C] -> int32 [R, C * bits / 32]: nibble (byte) i of a word holds column `order[i]` of its eight (four)."""
    words = torch.zeros(values.shape[0], values.shape[1] // len(order), dtype=torch.int64)
    for place, column in enumerate(order):
        words |= values[:, column :: len(order)].long() << (bits * place)
    return words.where(words < 2**31, words - 2**32).int()


def pack(weights: Mapping[str, torch.Tensor], how: Format) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """(tensors of the packed checkpoint, the same weights dequantized to float32): matrices of the layers only.

    Q, K and V of a layer, and gate and up, have the same act-order, as they have the same activations.
    """
    packed: dict[str, torch.Tensor] = {}
    plain: dict[str, torch.Tensor] = {}
    for name, weight in weights.items():
        stem = name.removesuffix(".weight")
        if stem.rsplit(".", 1)[-1] not in MATRICES:
            packed[name] = plain[name] = weight
            continue
        rounded = round_to_nearest(weight, how)
        packed |= packed_tensors(stem, rounded, how)
        plain[name] = rounded.dequantized()
    return packed, plain


def convert(source: Path, folder: Path, how: Format) -> Path:
    """The checkpoint in `source` (one safetensors file) as a packed one in `folder`, tokenizer included."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder / file.name)
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": how.config}))
    packed, _ = pack(safetensors.torch.load_file(source / "model.safetensors"), how)
    safetensors.torch.save_file(packed, folder / "model.safetensors")
    return folder
