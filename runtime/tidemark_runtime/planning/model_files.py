"""What a checkpoint on this machine says of its size, from its headers alone: no weights are read, nothing is imported
that computes.

A `.gguf` file, a Hugging Face folder, or its `config.json` by itself. The engine reads the same headers more strictly
(`model.spec`) before it loads; a test compares what the two find.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.planning import gguf_header, safetensors_header, weight_bytes

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""Decoders whose memory is this sum."""
EXPECTED = "a .gguf file, a Hugging Face folder, or its config.json"
AUTO, NONE, AS_STORED = "auto", "none", "as stored"
_CONFIG = "config.json"
_QWEN3_HEAD = 128
_MOST = 1 << 32

GGUF_GROUPS: Mapping[str, weight_bytes.Groups] = {
    "Q4_0": weight_bytes.Groups(4, 32, 4),
    "Q4_1": weight_bytes.Groups(4, 32, 4),
    "Q8_0": weight_bytes.Groups(8, 32, 2),
    "Q4_K": weight_bytes.Groups(4, 32, 8),
    "Q6_K": weight_bytes.Groups(8, 16, 4),
}
"""How our kernels hold the quantized types: their own groups, with what the file packs tighter (scales of scales)
written out. Scales and minima take 2 bytes where float16 holds them exactly, else 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Of an AWQ or GPTQ checkpoint."""

    method: str
    bits: int
    group_size: int
    act_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """What was found."""

    where: str
    matrices: weight_bytes.MatrixShape
    max_context_tokens: int
    dtype: str
    """Of unquantized weights: float32, bfloat16 or float16."""
    packing: Packing | None = None
    stored: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Of a GGUF: tensor type -> (outputs, inputs) of each matrix; empty for a Hugging Face folder."""
    summed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of a GGUF: `o_proj` and `down_proj`, whose inputs several devices divide -> the types of its tensors."""


@dataclass(frozen=True, slots=True)
class Held:
    """Weights in memory."""

    format: str
    num_bytes: int


def read(path: Path) -> ModelFile:
    """Raises `ConfigError` naming `path`, what is wrong with it and what was expected; also where files of weights are
    shorter than their headers say: the engine would not start with them."""
    try:
        if path.is_dir():
            found = _folder(path / _CONFIG)
            safetensors_header.check_whole(path)
            return found
        return _gguf(path) if path.suffix == ".gguf" else _folder(path)
    except FileNotFoundError as error:
        raise _problem(path, f"no {error.filename or path}", f"Is it {EXPECTED}?") from error
    except OSError as error:
        raise _problem(path, str(error.strerror), "Make it readable for this user") from error
    except (errors.ModelError, ValueError) as error:
        raise _problem(path, str(error), "Name another one, or a known model") from error


def held(model: ModelFile, *, dtype: str, quantization: str, has_kernels: bool = True) -> Held:
    """The weights as `model.quantization` asks: auto as stored, none expanded to `dtype`, or one made at load. Without
    kernels of ours (`vendors.Vendor.has_kernels`) all is expanded, whatever is asked for.

    Raises `ConfigError` for a quantization that the checkpoint does not have.
    """
    if quantization in weight_bytes.PACKED and (model.packing is None or model.packing.method != quantization):
        problem = errors.Problem("model.weights.quantization", quantization, f"auto: {model.where} is not packed so")
        raise errors.ConfigError([problem])
    if not has_kernels:
        quantization = NONE
    if model.stored:
        return _held_gguf(model, dtype, quantization)
    kept = weight_bytes.held_dtype(model.dtype, dtype, quantization)
    if model.packing is not None and quantization != NONE:
        packing = model.packing
        found = weight_bytes.weights_bytes(
            model.matrices,
            packing.method,
            group_size=packing.group_size,
            bits=packing.bits,
            act_order=packing.act_order,
            tables=kept,
        )
        order = ", act-order" if packing.act_order else ""
        return Held(f"{packing.method} {packing.bits}-bit, groups of {packing.group_size}{order}", found)
    name = quantization if quantization in weight_bytes.ROUNDED else kept
    return Held(name, weight_bytes.weights_bytes(model.matrices, name, tables=kept))


def _held_gguf(model: ModelFile, dtype: str, quantization: str) -> Held:
    total, types = 4 * model.matrices.num_layers * model.matrices.bias_elements, []
    item = weight_bytes.UNQUANTIZED_BYTES[dtype]
    for name, shapes in model.stored.items():
        groups = None if quantization == NONE else GGUF_GROUPS.get(name)
        if groups is None and quantization in weight_bytes.ROUNDED:
            groups = weight_bytes.Groups(8, 32, 2)
        for outputs, inputs in shapes:
            total += outputs * inputs * item if groups is None else groups.matrix_bytes(outputs, inputs)
        types.append(name)
    label = dtype if quantization == NONE else f"{', '.join(types)} {AS_STORED}"
    return Held(label, total)


def _folder(config: Path) -> ModelFile:
    found = json.loads(config.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")
    kind = found.get("model_type")
    if kind not in ARCHITECTURES:
        raise ValueError(f"model_type is {kind!r}, expected one of {', '.join(ARCHITECTURES)}")
    counts = _Counts(found)
    heads, hidden = counts.one("num_attention_heads"), counts.one("hidden_size")
    dtype = str(found.get("dtype") or found.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in weight_bytes.UNQUANTIZED_BYTES:
        raise ValueError(f"dtype is {dtype!r}, expected one of {', '.join(weight_bytes.UNQUANTIZED_BYTES)}")
    matrices = weight_bytes.MatrixShape(
        num_layers=counts.one("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=counts.one("intermediate_size"),
        num_heads=heads,
        num_kv_heads=counts.one("num_key_value_heads", heads),
        head_dim=counts.one("head_dim", _QWEN3_HEAD if kind == "qwen3" else hidden // heads),
        vocab_size=counts.one("vocab_size"),
        tie_embeddings=bool(found.get("tie_word_embeddings", False)),
        qkv_bias=kind == "qwen2",
    )
    return ModelFile(
        where=str(config),
        matrices=matrices,
        max_context_tokens=counts.one("max_position_embeddings"),
        dtype=dtype,
        packing=_packing(found.get("quantization_config")),
    )


def _packing(section: Any) -> Packing | None:
    if not section:
        return None
    method = str(section.get("quant_method", "")).lower() if isinstance(section, dict) else ""
    if method not in weight_bytes.PACKED:
        raise ValueError(f"quantization_config.quant_method is {method!r}, expected {' or '.join(weight_bytes.PACKED)}")
    size = section.get("group_size", section.get("q_group_size", 128))
    bits = section.get("bits", section.get("w_bit", 4))
    if size not in (-1, 16, 32, 64, 128, 256, 512, 1024) or bits not in (4, 8):
        raise ValueError(
            f"quantization_config: {bits!r} bits in groups of {size!r}, expected 4 or 8, in 32, 64, 128, -1"
        )
    return Packing(method=method, bits=bits, group_size=size, act_order=bool(section.get("desc_act", False)))


def _gguf(path: Path) -> ModelFile:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = gguf_header.parse(path, data)
    kind = header.metadata.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise ValueError(f"general.architecture is {kind!r}, expected one of {', '.join(ARCHITECTURES)}")
    if header.metadata.get(f"{kind}.expert_count"):
        raise ValueError(f"{kind}.expert_count: a mixture of experts, expected none")
    counts = _Counts(header.metadata, f"{kind}.")
    heads, hidden = counts.one("attention.head_count"), counts.one("embedding_length")
    vocabulary = header.tensors.get("token_embd.weight")
    matrices = weight_bytes.MatrixShape(
        num_layers=counts.one("block_count"),
        hidden_size=hidden,
        intermediate_size=counts.one("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=counts.one("attention.head_count_kv", heads),
        head_dim=counts.one("attention.key_length", hidden // heads),
        vocab_size=vocabulary.shape[0] if vocabulary else counts.one("vocab_size"),
        tie_embeddings="output.weight" not in header.tensors,
        qkv_bias="blk.0.attn_q.bias" in header.tensors,
    )
    stored: dict[str, list[tuple[int, int]]] = {}
    for tensor in header.tensors.values():
        if len(tensor.shape) == 2:
            stored.setdefault(tensor.type_name, []).append((tensor.shape[0], tensor.shape[1]))
    return ModelFile(
        where=str(path),
        matrices=matrices,
        max_context_tokens=counts.one("context_length"),
        dtype=_main_dtype(stored),
        stored={name: tuple(shapes) for name, shapes in stored.items()},
        summed={
            name: frozenset(
                tensor.type_name for stored_name, tensor in header.tensors.items() if stored_name.endswith(end)
            )
            for name, end in (("o_proj", ".attn_output.weight"), ("down_proj", ".ffn_down.weight"))
        },
    )


def _main_dtype(stored: Mapping[str, list[tuple[int, int]]]) -> str:
    """Of most weights; a quantized file says bfloat16, as `model.spec` has it."""
    largest = max(stored, key=lambda name: sum(outputs * inputs for outputs, inputs in stored[name]), default="F32")
    return {"F32": "float32", "F16": "float16"}.get(largest, "bfloat16")


class _Counts:
    """Whole numbers of a header; a list with one value a layer counts as that value where all layers agree."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix

    def one(self, key: str, default: int | None = None) -> int:
        """Raises `ValueError` naming the key."""
        seen = self._values.get(self._prefix + key)
        if seen is None:
            seen = default
        if isinstance(seen, list) and len(set(map(str, seen))) == 1:
            seen = seen[0]
        if isinstance(seen, bool) or not isinstance(seen, int) or not 1 <= seen <= _MOST:
            raise ValueError(f"{self._prefix}{key} is {seen!r}, expected a whole number of at least 1")
        return seen


def _problem(path: Path, seen: str, remedy: str) -> errors.ConfigError:
    return errors.ConfigError([errors.Problem("model", str(path), EXPECTED, f"It says: {seen}. {remedy}")])
