"""A made model with a tokenizer of single bytes, as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import byte_tokenizer
import made_models
import pytest

from tidemark_runtime.evaluation import subject
from tidemark_runtime.model import sources

CONFIG = {
    **made_models.LLAMA_CONFIG,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": byte_tokenizer.VOCAB_SIZE,
    "max_position_embeddings": 2048,
    "eos_token_id": byte_tokenizer.END_ID,
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made-model")
    weights = {name: tensor * 4 for name, tensor in made_models.llama_weights(CONFIG).items()}
    made_models.write_folder(folder, CONFIG, weights)
    byte_tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def made(model_folder: Path) -> subject.Subject:
    return subject.load(sources.resolve(str(model_folder), model_folder), 1, lambda _what, _share: None)
