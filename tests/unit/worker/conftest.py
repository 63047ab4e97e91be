"""Small models in files, for whatever loads one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_models
import numpy as np
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    return made_models.write_folder(path, made_models.LLAMA_CONFIG, made_models.llama_weights())


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four-bit layers, eight-bit tied embedding: what the demo's model is made of."""
    rng = np.random.default_rng(3)
    tensors: dict[str, Any] = {}
    for name, tensor in made_models.llama_weights().items():
        stored = made_models.gguf_name(name)
        if name == "lm_head.weight":
            continue
        if tensor.dim() == 1:
            tensors[stored] = tensor.numpy()
        else:
            kind = "Q8_0" if "embed" in name else "Q4_1"
            tensors[stored] = (kind, made_models.random_blocks(rng, kind, tensor.shape[0], tensor.shape[1]))
    content = made_models.GGUFContent("llama", made_models.LLAMA_FIELDS, tensors)
    return made_models.write_gguf(tmp_path_factory.mktemp("gguf") / "made.gguf", content)
