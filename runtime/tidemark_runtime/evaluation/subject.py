"""The model that is evaluated: loaded as an engine would load it, but with hardly a slab."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark_runtime import config, config_parsing
from tidemark_runtime.model import batch as batches
from tidemark_runtime.model import sources
from tidemark_runtime.planning import precision_map
from tidemark_runtime.text import loading as text_loading
from tidemark_runtime.text import text_model
from tidemark_runtime.worker import loading

_HASHED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Subject:
    """Model and tokenizer."""

    name: str
    model: batches.Model
    encoder: text_model.TextModel
    dtype: str
    """Of activations, and of unquantized K and V."""
    identity: str
    """Of the files: enough to notice that the model was changed."""
    quantization: str
    """`model.quantization`, as it was loaded."""
    weights_bytes: int
    """In memory: matrices, embedding and head."""

    def target(self, dtype: str) -> precision_map.Target:
        spec = self.model.spec
        return precision_map.Target(spec.kv_shape, dtype, precision_map.keep_dtype(self.dtype), spec.num_heads)


def load(
    source: sources.ModelSource,
    threads: int | None,
    progress: Callable[[str, float], None],
    quantization: str = config.AUTO,
) -> Subject:
    """`quantization`: of the weights, as `model.quantization`. Raises ModelError, CapacityError or ConfigError."""
    model = {"source": str(source.path), "quantization": quantization}
    settings: dict[str, Any] = {"model": model, "kvCache": {"numPages": 1}}
    if threads is not None:
        settings["hardware"] = {"threads": threads}
    loaded = loading.load(config_parsing.parse(settings), source, progress)
    encoder = text_loading.load(source)
    facts = loaded.facts
    return Subject(
        name=source.name,
        model=loaded.model,
        encoder=encoder,
        dtype=facts.dtype,
        identity=identity(source),
        quantization=quantization,
        weights_bytes=facts.memory_bytes["weights"],
    )


def identity(source: sources.ModelSource) -> str:
    """Names, sizes and first bytes of the files: a checksum of many gigabytes would take minutes."""
    files = [source.path] if source.path.is_file() else sorted(p for p in source.path.iterdir() if p.is_file())
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(f"{file.name} {file.stat().st_size}".encode())
            digest.update(opened.read(_HASHED_BYTES))
    return digest.hexdigest()[:16]
