"""A made model with a tokenizer of single bytes, as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import made_models
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tidemark_runtime.evaluation import subject
from tidemark_runtime.model import sources

CONFIG = {
    **made_models.LLAMA_CONFIG,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 257,
    "max_position_embeddings": 2048,
    "eos_token_id": 256,
}


def byte_tokenizer() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)} | {"<end>": 256}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    made.add_special_tokens(["<end>"])
    return made


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made-model")
    weights = {name: tensor * 4 for name, tensor in made_models.llama_weights(CONFIG).items()}
    made_models.write_folder(folder, CONFIG, weights)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    return folder


@pytest.fixture(scope="session")
def made(model_folder: Path) -> subject.Subject:
    return subject.load(sources.resolve(str(model_folder), model_folder), 1, lambda _what, _share: None)
