"""A tokenizer of single bytes for made models: 256 bytes and one token that ends a text."""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

END = "<end>"
END_ID = 256
VOCAB_SIZE = 257


def make() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)} | {END: END_ID}
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    made.add_special_tokens([END])
    return made


def save(folder: Path) -> None:
    """The two files that a Hugging Face folder has of it."""
    make().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
