"""What a model is, in numbers: read from a Hugging Face `config.json` or from a GGUF's metadata. Needs no torch.

Both readers refuse by name what the forward pass would get wrong: a silently ignored field is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemark_runtime import errors
from tidemark_runtime.model import gguf_file
from tidemark_runtime.planning import page_layout

MAX_HEAD_DIM = 256
"""The attention kernel's limit."""
MAX_COUNT = 1 << 27
"""No model has more of anything; what does, comes from a damaged file."""

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every rotary frequency is divided by `factor`: positions are squeezed (Chen et al., arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies are divided by `factor`, high ones kept, those between blended (Llama 3.1 release)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_context_tokens: int


@dataclass(frozen=True, slots=True)
class FactorScaling:
    """Each frequency is divided by its own factor; a GGUF holds Llama 3 scaling so, in `rope_freqs.weight`."""

    factors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | FactorScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The shape of a decoder. All sizes are numbers of elements."""

    architecture: str
    """One of ARCHITECTURES."""
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_context_tokens: int
    rms_eps: float
    rope_theta: float
    rope_dim: int
    """Leading elements of a head that are rotated; the rest pass unchanged."""
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    """A token sees itself and the `sliding_window - 1` before it, in the layers of `window_layers`."""
    window_layers: tuple[int, ...] = ()
    tie_embeddings: bool = False
    """The output head is the embedding matrix."""
    qkv_bias: bool = False
    qk_norm: bool = False
    """Q and K heads are RMS-normalised before they are rotated."""
    dtype: str = "float32"
    """Of the checkpoint: `float32`, `float16` or `bfloat16`. A quantized GGUF says bfloat16: it holds no activations'
    dtype, and bfloat16 cannot overflow."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    @property
    def kv_shape(self) -> page_layout.KVShape:
        return page_layout.KVShape(self.num_layers, self.num_kv_heads, self.head_dim)

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer; None means all tokens are seen."""
        return self.sliding_window if layer in self.window_layers else None


def from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, gguf_file.TensorInfo]) -> ModelSpec:
    """The spec of a GGUF. Mistral files call themselves `llama` there, and are computed alike.

    Raises UnsupportedModel for an architecture or variant we do not run, CorruptModel for a missing or absurd field.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise _unsupported("general.architecture", architecture, f"one of {', '.join(ARCHITECTURES)}")
    fields = _Fields(
        {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}, f"{architecture}."
    )
    fields.refuse("expert_count", lambda seen: bool(seen), "no mixture of experts")
    num_heads, hidden_size = fields.count("attention.head_count"), fields.count("embedding_length")
    head_dim = fields.count("attention.key_length", default=hidden_size // num_heads)
    fields.refuse("attention.value_length", lambda seen: seen != head_dim, f"the key length {head_dim}")
    num_layers = fields.count("block_count")
    window = fields.optional_count("attention.sliding_window")
    fields.refuse("attention.sliding_window_pattern", lambda seen: bool(seen), "the same window in all layers")
    vocab = tensors.get("token_embd.weight")
    return _checked(
        ModelSpec(
            architecture=architecture,
            num_layers=num_layers,
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=fields.count("attention.head_count_kv", default=num_heads),
            head_dim=head_dim,
            intermediate_size=fields.count("feed_forward_length"),
            vocab_size=vocab.shape[0] if vocab is not None else fields.count("vocab_size"),
            max_context_tokens=fields.count("context_length"),
            rms_eps=fields.number("attention.layer_norm_rms_epsilon"),
            rope_theta=fields.number("rope.freq_base", default=10_000.0),
            rope_dim=fields.count("rope.dimension_count", default=head_dim),
            rope_scaling=_gguf_rope_scaling(fields, tensors),
            sliding_window=window,
            window_layers=tuple(range(num_layers)) if window else (),
            tie_embeddings="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            qk_norm=architecture == "qwen3",
            dtype=_gguf_dtype(tensors),
            bos_id=_id(metadata, "tokenizer.ggml.bos_token_id", ""),
            eos_ids=_ids(metadata, "tokenizer.ggml.eos_token_id", ""),
        )
    )


def _gguf_rope_scaling(fields: _Fields, tensors: Mapping[str, gguf_file.TensorInfo]) -> RopeScaling | None:
    kind = fields.value("rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise _unsupported(f"{fields.prefix}rope.scaling.type", kind, "none or linear")
    for refused in ("rope_factors_long.weight", "rope_factors_short.weight"):
        if refused in tensors:
            raise _unsupported(refused, "present", "no longrope factors")
    factors = tensors.get("rope_freqs.weight")
    if factors is not None:
        if factors.type_name != "F32":
            raise _unsupported("rope_freqs.weight", factors.type_name, "F32")
        return FactorScaling(tuple(factors.data.view(np.float32).tolist()))
    factor = fields.number("rope.scaling.factor", default=fields.number("rope.scale_linear", default=1.0))
    return LinearScaling(factor) if factor != 1.0 and kind != "none" else None


def _gguf_dtype(tensors: Mapping[str, gguf_file.TensorInfo]) -> str:
    """The dtype of most of the bytes of the matrices."""
    sizes: dict[str, int] = {}
    for info in tensors.values():
        if len(info.shape) > 1:
            sizes[info.type_name] = sizes.get(info.type_name, 0) + info.num_bytes
    largest = max(sizes, key=lambda name: sizes[name], default="F32")
    return {"F32": "float32", "F16": "float16"}.get(largest, "bfloat16")


def from_hf(config: Mapping[str, Any]) -> ModelSpec:
    """The spec of a Hugging Face folder from its `config.json`, in the keys of transformers 4 or 5.

    How its matrices are packed, `quantization_config`, is for `packing` to read.

    Raises UnsupportedModel for an architecture or variant we do not run, CorruptModel for a missing or absurd field.
    """
    architecture = config.get("model_type")
    if architecture not in ARCHITECTURES:
        seen = architecture if architecture is not None else config.get("architectures")
        raise _unsupported("config.json model_type", seen, f"one of {', '.join(ARCHITECTURES)}")
    fields = _Fields(config, "config.json ")
    fields.refuse("hidden_act", lambda seen: seen not in ("silu", "swish"), "silu")
    fields.refuse("attention_bias", lambda seen: bool(seen), "false")
    fields.refuse("mlp_bias", lambda seen: bool(seen), "false")
    fields.refuse("partial_rotary_factor", lambda seen: seen not in (None, 1, 1.0), "1.0")
    num_heads, hidden_size = fields.count("num_attention_heads"), fields.count("hidden_size")
    head_dim = fields.count("head_dim", default=128 if architecture == "qwen3" else hidden_size // num_heads)
    rope = _hf_rope(fields)
    window, window_layers = _hf_window(architecture, fields)
    return _checked(
        ModelSpec(
            architecture=architecture,
            num_layers=fields.count("num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=fields.count("num_key_value_heads", default=num_heads),
            head_dim=head_dim,
            intermediate_size=fields.count("intermediate_size"),
            vocab_size=fields.count("vocab_size"),
            max_context_tokens=fields.count("max_position_embeddings"),
            rms_eps=fields.number("rms_norm_eps", default=1e-6),
            rope_theta=rope.number("rope_theta", default=fields.number("rope_theta", default=10_000.0)),
            rope_dim=head_dim,
            rope_scaling=_hf_rope_scaling(rope, fields),
            sliding_window=window,
            window_layers=window_layers,
            tie_embeddings=fields.flag("tie_word_embeddings"),
            qkv_bias=architecture == "qwen2",
            qk_norm=architecture == "qwen3",
            dtype=_hf_dtype(config),
            bos_id=_id(config, "bos_token_id", "config.json "),
            eos_ids=_ids(config, "eos_token_id", "config.json "),
        )
    )


def _hf_rope(fields: _Fields) -> _Fields:
    """The section about rotary positions: `rope_parameters` (transformers 5) or `rope_scaling` (before)."""
    for key in ("rope_parameters", "rope_scaling"):
        section = fields.value(key)
        if isinstance(section, Mapping):
            return _Fields(section, f"config.json {key}.")
        if section is not None:
            raise errors.CorruptModel(f"config.json {key}: got {section!r}, expected an object")
    return _Fields({}, "config.json rope_parameters.")


def _hf_rope_scaling(rope: _Fields, fields: _Fields) -> RopeScaling | None:
    kind = rope.value("rope_type", rope.value("type", "default"))
    rope.refuse("partial_rotary_factor", lambda seen: seen not in (None, 1, 1.0), "1.0")
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(rope.number("factor"))
    if kind == "llama3":
        return Llama3Scaling(
            factor=rope.number("factor"),
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_max_context_tokens=rope.count(
                "original_max_position_embeddings", default=fields.count("max_position_embeddings")
            ),
        )
    raise _unsupported(f"{rope.prefix}rope_type", kind, "default, linear or llama3")


def _hf_window(architecture: str, fields: _Fields) -> tuple[int | None, tuple[int, ...]]:
    """Returns (window, layers that have it). Llama has none; Qwen has one only where `use_sliding_window` says so."""
    if architecture == "llama":
        fields.refuse("sliding_window", lambda seen: bool(seen), "no sliding window in a llama model")
        return None, ()
    window = fields.optional_count("sliding_window")
    if window is None or (architecture != "mistral" and not fields.value("use_sliding_window", False)):
        return None, ()
    num_layers = fields.count("num_hidden_layers")
    kinds = fields.value("layer_types")
    if kinds is not None:
        known = ("full_attention", "sliding_attention")
        if not isinstance(kinds, list) or len(kinds) != num_layers or not all(kind in known for kind in kinds):
            raise _unsupported("config.json layer_types", kinds, "full_attention or sliding_attention for every layer")
        return window, tuple(layer for layer, kind in enumerate(kinds) if kind == "sliding_attention")
    first = 0 if architecture == "mistral" else fields.value("max_window_layers", 28)
    if isinstance(first, bool) or not isinstance(first, int) or first < 0:
        raise errors.CorruptModel(
            str(errors.Problem("config.json max_window_layers", first, "a whole number of at least 0"))
        )
    return window, tuple(range(first, num_layers))


def _hf_dtype(config: Mapping[str, Any]) -> str:
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in ("float32", "float16", "bfloat16"):
        raise _unsupported("config.json dtype", dtype, "float32, float16 or bfloat16")
    return dtype


def _checked(spec: ModelSpec) -> ModelSpec:
    """Refuse numbers that do not go together."""
    if spec.num_heads % spec.num_kv_heads:
        raise errors.CorruptModel(f"{spec.num_heads} query heads are not a multiple of {spec.num_kv_heads} KV heads")
    if spec.head_dim % 8 or spec.head_dim > MAX_HEAD_DIM:
        raise _unsupported("head dimension", spec.head_dim, f"a multiple of 8, up to {MAX_HEAD_DIM}")
    if spec.rope_dim % 2 or spec.rope_dim > spec.head_dim:
        raise errors.CorruptModel(
            f"rotary dimension: got {spec.rope_dim}, expected an even number up to {spec.head_dim}"
        )
    if spec.architecture == "llama" and spec.rope_dim != spec.head_dim:
        raise _unsupported("llama.rope.dimension_count", spec.rope_dim, f"the whole head, {spec.head_dim}")
    if isinstance(spec.rope_scaling, FactorScaling) and len(spec.rope_scaling.factors) != spec.rope_dim // 2:
        raise errors.CorruptModel(
            f"rope_freqs.weight: got {len(spec.rope_scaling.factors)} factors, expected {spec.rope_dim // 2}"
        )
    return spec


def _ids(values: Mapping[str, Any], key: str, prefix: str) -> tuple[int, ...]:
    """One token id, a list of ids, or none."""
    seen = values.get(key)
    found = [] if seen is None else seen if isinstance(seen, list) else [seen]
    if not all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in found):
        expected = "a token id (a whole number of at least 0), or a list of them"
        raise errors.CorruptModel(str(errors.Problem(f"{prefix}{key}", seen, expected)))
    return tuple(found)


def _id(values: Mapping[str, Any], key: str, prefix: str) -> int | None:
    """One token id, or none."""
    found = _ids(values, key, prefix)
    return found[0] if found else None


def _unsupported(key: str, seen: object, expected: str) -> errors.UnsupportedModel:
    return errors.UnsupportedModel(str(errors.Problem(key, seen, expected)))


class _Fields:
    """Typed access to a file's fields; every refusal names the key, the value and what was expected."""

    def __init__(self, values: Mapping[str, Any], prefix: str) -> None:
        self.values = values
        self.prefix = prefix

    def value(self, key: str, default: Any = None) -> Any:
        seen = self.values.get(key)
        return default if seen is None else seen

    def number(self, key: str, default: float | None = None) -> float:
        seen = self._single(key, default)
        if isinstance(seen, bool) or not isinstance(seen, int | float) or not 0 < seen < float("inf"):
            raise self._corrupt(key, seen, "a number above 0")
        return float(seen)

    def count(self, key: str, default: int | None = None) -> int:
        seen = self._single(key, default)
        if isinstance(seen, bool) or not isinstance(seen, int) or seen < 1:
            raise self._corrupt(key, seen, "a whole number of at least 1")
        if seen > MAX_COUNT:
            raise self._corrupt(key, seen, f"at most {MAX_COUNT}")
        return seen

    def flag(self, key: str) -> bool:
        """False where the field is absent or null."""
        seen = self.value(key, False)
        if not isinstance(seen, bool):
            raise self._corrupt(key, seen, "true or false")
        return seen

    def optional_count(self, key: str) -> int | None:
        """None where the field is absent, null or 0."""
        return self.count(key) if self.value(key) else None

    def refuse(self, key: str, wrong: Any, expected: str) -> None:
        """Raise UnsupportedModel if the field is there and `wrong(value)`."""
        seen = self.value(key)
        if seen is not None and wrong(seen):
            raise _unsupported(f"{self.prefix}{key}", seen, expected)

    def _single(self, key: str, default: Any) -> Any:
        """The field's value; a list with one value per layer counts as that value where all layers agree."""
        seen = self.value(key, default)
        if not isinstance(seen, list):
            return seen
        if len(set(map(str, seen))) != 1:
            raise _unsupported(f"{self.prefix}{key}", seen, "the same value in every layer")
        return seen[0]

    def _corrupt(self, key: str, seen: object, expected: str) -> errors.CorruptModel:
        return errors.CorruptModel(str(errors.Problem(f"{self.prefix}{key}", seen, expected)))
