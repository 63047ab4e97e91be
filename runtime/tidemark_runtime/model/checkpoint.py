"""One face for both kinds of checkpoint: a spec, and tensors under their Hugging Face names, one at a time.

The forward pass rotates halves (element i with i + rope_dim / 2), as Hugging Face does. A `llama` GGUF has the rows of
Q and K in the order of interleaved rotation (2 i with 2 i + 1); they are put back here, once, while loading.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch

from tidemark_runtime import errors
from tidemark_runtime.model import gguf_decode, gguf_file, packed_groups, packing, safetensors_file, sources, tensors
from tidemark_runtime.model import spec as model_spec
from tidemark_runtime.planning import safetensors_header


class Checkpoint(Protocol):
    """What `loading` needs of a checkpoint."""

    @property
    def spec(self) -> model_spec.ModelSpec: ...

    @property
    def packed(self) -> packing.Packing | None:
        """How AWQ or GPTQ packed the matrices; None in any other checkpoint."""
        ...

    @property
    def num_bytes(self) -> int:
        """Of all tensors as the file holds them."""
        ...

    def tensor_bytes(self, name: str) -> int:
        """Of one tensor as the file holds it."""
        ...

    def names(self) -> frozenset[str]:
        """Tensors, by their Hugging Face names."""
        ...

    def tensor(self, name: str) -> tensors.HostTensor:
        """Decoded now; dense ones are views of the mapped file. Raises CorruptModel naming a missing tensor."""
        ...

    def part(self, name: str, dim: int, own: range, total: int) -> tensors.HostTensor | None:
        """`own` of the `total` outputs (`dim` 0) or inputs (1) of a quantized matrix, of which nothing else is
        unpacked. None for a dense tensor, and where the format does not allow it: the part is then to be cut from
        `tensor`, which says what is wrong with the whole."""
        ...

    def release(self, name: str) -> None:
        """The tensor was used: drop its mapped pages from memory. Views of it stay valid."""
        ...


def open_checkpoint(source: sources.ModelSource) -> Checkpoint:
    """Read headers and map files; no weights are read yet.

    Raises CorruptModel, UnsupportedModel or ModelNotFound, naming the file.
    """
    if source.kind == "gguf":
        return GGUFCheckpoint(gguf_file.read(source.path))
    return SafetensorsCheckpoint(source.path)


class GGUFCheckpoint:
    """A `.gguf` file."""

    packed = None

    def __init__(self, file: gguf_file.GGUFFile) -> None:
        self._file = file
        self.spec = model_spec.from_gguf(file.metadata, file.tensors)
        self._stored_names = {_canonical(file, name): name for name in file.tensors if name != "rope_freqs.weight"}
        self._interleaved = self.spec.architecture == "llama"

    @property
    def num_bytes(self) -> int:
        return sum(info.num_bytes for info in self._file.tensors.values())

    def tensor_bytes(self, name: str) -> int:
        return self._file.tensors[self._stored_names[name]].num_bytes

    def names(self) -> frozenset[str]:
        return frozenset(self._stored_names)

    def tensor(self, name: str) -> tensors.HostTensor:
        stored = self._stored_names.get(name)
        if stored is None:
            raise errors.CorruptModel(f"{self._file.path}: the tensor for {name} is missing")
        found = gguf_decode.decode(self._file.tensors[stored])
        num_heads = _rotated_heads(name, self.spec) if self._interleaved else 0
        return _half_split_rows(found, num_heads) if num_heads else found

    def part(self, name: str, dim: int, own: range, total: int) -> tensors.HostTensor | None:
        stored = self._stored_names.get(name)
        info = None if stored is None else self._file.tensors[stored]
        if info is None or len(info.shape) != 2 or info.shape[dim] != total:
            return None
        num_heads = _rotated_heads(name, self.spec) if self._interleaved else 0
        if num_heads and (dim != 0 or total % num_heads or len(own) % (total // num_heads)):
            return None
        found = gguf_decode.decode_part(info, dim, own)
        if found is None or not num_heads:
            return found
        return _half_split_rows(found, len(own) * num_heads // total)

    def release(self, name: str) -> None:
        self._file.release(self._stored_names[name])


class SafetensorsCheckpoint:
    """A Hugging Face folder: `config.json` and one `model.safetensors`, or shards and their index.

    A matrix that AWQ or GPTQ packed has its parts in several tensors; it is one here, under the name it would have
    unpacked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        config = _json(folder / "config.json")
        self.spec = model_spec.from_hf(config)
        self.packed = _packing(folder, config)
        self._files = _open_files(folder)
        self._file_of = {name: file for file in self._files for name in file.entries}
        _check_index(folder, self._file_of)
        self._parts = _packed_parts(folder, frozenset(self._file_of), self.packed)
        inner = {part for parts in self._parts.values() for part in parts.values()}
        self._names = frozenset(self._file_of) - inner | frozenset(self._parts)

    @property
    def num_bytes(self) -> int:
        return sum(entry.end - entry.start for file in self._files for entry in file.entries.values())

    def tensor_bytes(self, name: str) -> int:
        entries = [self._file_of[stored].entries[stored] for stored in self._stored(name)]
        return sum(entry.end - entry.start for entry in entries)

    def names(self) -> frozenset[str]:
        return self._names

    def tensor(self, name: str) -> tensors.HostTensor:
        parts = self._parts.get(name)
        if parts is not None and self.packed is not None:
            return packed_groups.decode(self._shown(name), self._read(parts), self.packed)
        if name not in self._names:
            raise errors.CorruptModel(f"{self._folder}: the tensor {name} is missing")
        found = self._file_of[name].tensor(name)
        if not found.is_floating_point():
            raise errors.UnsupportedModel(
                f"{self._folder}: the tensor {name} has the type {str(found.dtype).removeprefix('torch.')}, expected "
                "float32, float16 or bfloat16"
            )
        return found

    def part(self, name: str, dim: int, own: range, total: int) -> tensors.HostTensor | None:
        parts = self._parts.get(name)
        if parts is None or self.packed is None:
            return None
        cut = packed_groups.cut(self._read(parts), self.packed, dim, own, total)
        return None if cut is None else packed_groups.decode(self._shown(name), cut, self.packed)

    def release(self, name: str) -> None:
        for stored in self._stored(name):
            self._file_of[stored].release(stored)

    def _read(self, parts: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """As views of the file."""
        return {part: self._file_of[stored].tensor(stored) for part, stored in parts.items()}

    def _shown(self, name: str) -> str:
        return f"{self._folder}: {name.removesuffix('.weight')}"

    def _stored(self, name: str) -> tuple[str, ...]:
        """The file's tensors that make this one."""
        return tuple(self._parts[name].values()) if name in self._parts else (name,)


_OUTER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
)
_LAYER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
)
_LAYER = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def _canonical(file: gguf_file.GGUFFile, stored: str) -> str:
    """The Hugging Face name of a GGUF tensor."""
    if stored in _OUTER_NAMES:
        return _OUTER_NAMES[stored]
    match = _LAYER.fullmatch(stored)
    part = _LAYER_NAMES.get(match[2]) if match else None
    if match is None or part is None:
        raise errors.UnsupportedModel(f"{file.path}: the tensor {stored} belongs to no architecture we run")
    return f"model.layers.{match[1]}.{part}.{match[3]}"


def _rotated_heads(name: str, model: model_spec.ModelSpec) -> int:
    """Heads whose rows are in interleaved order; 0 for a tensor that is not rotated."""
    if ".self_attn.q_proj." in name:
        return model.num_heads
    return model.num_kv_heads if ".self_attn.k_proj." in name else 0


def _half_split_rows(tensor: tensors.HostTensor, num_heads: int) -> tensors.HostTensor:
    """Rows of each head from (0, half, 1, half + 1, ...) to (0, 1, ..., half, half + 1, ...).

    The inverse of `permute` in llama.cpp's `convert_hf_to_gguf.py`. Rows that do not divide are left for the loader,
    which knows the shape it expects and says so.
    """
    num_rows = tensor.shape[0]
    if num_rows % (2 * num_heads):
        return tensor
    order = torch.arange(num_rows).view(num_heads, -1, 2).transpose(1, 2).reshape(-1)
    if isinstance(tensor, torch.Tensor):
        return tensor[order]
    return tensor.rows(order)


_OLD_GPTQ_CONFIG = "quantize_config.json"


def _packing(folder: Path, config: Mapping[str, Any]) -> packing.Packing | None:
    """Raises UnsupportedModel or CorruptModel naming the file and the key."""
    if config.get("quantization_config") or not (folder / _OLD_GPTQ_CONFIG).is_file():
        return packing.parse(config, str(folder / "config.json"))
    old = folder / _OLD_GPTQ_CONFIG
    return packing.parse(packing.of_old_gptq(_json(old)), str(old))


def _packed_parts(
    folder: Path, stored: frozenset[str], packed: packing.Packing | None
) -> Mapping[str, Mapping[str, str]]:
    """Name of a matrix -> part -> the tensor that holds it. Raises where config and tensors contradict each other."""
    stems = sorted(name.removesuffix(".qweight") for name in stored if name.endswith(".qweight"))
    if bool(stems) != (packed is not None):
        seen = f"{len(stems)} tensors of packed weights" + (f", such as {stems[0]}.qweight" if stems else "")
        said = "no quantization_config" if packed is None else f"quantization_config {packed.method}"
        raise errors.CorruptModel(f"{folder}: {seen}, but config.json has {said}. Fetch the whole checkpoint again")
    both = [stem for stem in stems if f"{stem}.weight" in stored]
    if both:
        raise errors.CorruptModel(f"{folder}: {both[0]} has both .weight and .qweight, expected one of them")
    return {
        f"{stem}.weight": {part: f"{stem}.{part}" for part in packed_groups.PARTS if f"{stem}.{part}" in stored}
        for stem in stems
    }


_INDEX, _SINGLE = safetensors_header.INDEX, safetensors_header.SINGLE


def _open_files(folder: Path) -> tuple[safetensors_file.SafetensorsFile, ...]:
    if (folder / _INDEX).is_file():
        names = sorted(set(_weight_map(folder).values()))
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise errors.CorruptModel(f"{folder}: {_INDEX} names files that are missing: {', '.join(missing)}")
    elif (folder / _SINGLE).is_file():
        names = [_SINGLE]
    else:
        others = sorted(entry.name for pattern in ("*.bin", "*.pth", "*.safetensors") for entry in folder.glob(pattern))
        raise errors.UnsupportedModel(
            f"{folder}: neither {_SINGLE} nor {_INDEX} is there; found {', '.join(others) or 'no weights'}. "
            "Only safetensors weights are read in a Hugging Face folder"
        )
    return tuple(safetensors_file.SafetensorsFile(folder / name) for name in names)


def _check_index(folder: Path, file_of: Mapping[str, safetensors_file.SafetensorsFile]) -> None:
    if not (folder / _INDEX).is_file():
        return
    for name, file_name in _weight_map(folder).items():
        if name not in file_of:
            raise errors.CorruptModel(
                f"{folder}: the tensor {name} is missing in {file_name}, where {_INDEX} says it is"
            )


def _weight_map(folder: Path) -> dict[str, str]:
    found = _json(folder / _INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(value, str) and "/" not in value for value in found.values()):
        raise errors.CorruptModel(f"{folder / _INDEX}: weight_map: expected an object of tensor names to file names")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise errors.ModelNotFound(f"{path}: no such file") from error
    except ValueError as error:
        raise errors.CorruptModel(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise errors.CorruptModel(f"{path}: expected a JSON object")
    return found
