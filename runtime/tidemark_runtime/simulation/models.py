"""Models by their public configuration: what their memory and their arithmetic depend on, nothing else.

`7b` is Qwen2.5-7B: of the usual 7B models the one whose contexts reach 32k on a 24 GB card. It keeps 57 kB of KV a
token (4 KV heads); Llama-2-7B, with 32, keeps 524 kB and stops at 4k.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidemark_runtime.planning import capacity, known_models
from tidemark_runtime.simulation import fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    num_params: int
    """All of them: each computes once a token (embeddings do not, heads only where a token is sampled; both are taken
    along, 3 to 14 % too many)."""
    shape: capacity.ModelShape
    """With the bytes of the weights as they are held."""
    kv_dtype: str = "bfloat16"

    @property
    def attention_flops_a_pair(self) -> int:
        """For a token that attends to one other, in all layers: QK^T and PV, multiply and add."""
        return 4 * self.shape.num_layers * self.shape.num_heads * self.shape.head_dim


def _of(name: str, known: known_models.KnownModel) -> Model:
    """At 16 bits, under the simulation's own name."""
    return Model(name=name, num_params=known.num_params, shape=known.shape(2 * known.num_params))


def quantized_bytes(num_params: int, shape: capacity.ModelShape, bits: float) -> int:
    """Weights with embeddings and head left at 16 bits, as AWQ and FP8 checkpoints leave them."""
    kept = 2 * shape.vocab_size * shape.hidden_size
    return int(2 * kept + (num_params - kept) * bits / 8)


BITS_OF_4 = 4.25
"""AWQ, groups of 128: a float16 scale and a 4-bit zero a group come to 0.16 bits more; padded to 4.25."""


def _known() -> dict[str, Model]:
    names = {"7b": "qwen2.5-7b", "8b": "llama-3.1-8b", "70b": "llama-3.1-70b"}
    at_16_bits = [_of(name, known_models.MODELS[known]) for name, known in names.items()]
    found = {model.name: model for model in at_16_bits}
    for model in at_16_bits:
        for suffix, bits in (("-8bit", 8.0), ("-4bit", BITS_OF_4)):
            weights = quantized_bytes(model.num_params, model.shape, bits)
            shape = dataclasses.replace(model.shape, weights_bytes=weights)
            found[model.name + suffix] = dataclasses.replace(model, name=model.name + suffix, shape=shape)
    small = capacity.KNOWN_SHAPES["smollm2-135m"]
    found["smollm2-135m"] = Model(name="smollm2-135m", num_params=134_515_008, shape=small)
    return found


MODELS: Mapping[str, Model] = MappingProxyType(_known())


def parse(found: fields.Fields, base: Model | None) -> Model:
    """The keys of a profile's `model`; `base`: whose figures stand where the file says nothing."""

    def count(name: str, attribute: str) -> int:
        return found.whole(name, getattr(base.shape, attribute) if base else None, least=1)

    shape = capacity.ModelShape(
        num_layers=count("numLayers", "num_layers"),
        num_heads=count("numHeads", "num_heads"),
        num_kv_heads=count("numKvHeads", "num_kv_heads"),
        head_dim=count("headDim", "head_dim"),
        hidden_size=count("hiddenSize", "hidden_size"),
        intermediate_size=count("intermediateSize", "intermediate_size"),
        vocab_size=count("vocabSize", "vocab_size"),
        max_context_tokens=count("maxContextTokens", "max_context_tokens"),
        weights_bytes=count("weightsBytes", "weights_bytes"),
    )
    model = Model(
        name=found.text("name", base.name if base else None),
        num_params=found.whole("numParams", base.num_params if base else None, least=1),
        shape=shape,
        kv_dtype=found.text("kvDtype", base.kv_dtype if base else "bfloat16"),
    )
    found.close()
    return model
