"""Loads the text side of a model, wherever it lies. Needs no torch."""

from __future__ import annotations

from tidemark_runtime.model import sources
from tidemark_runtime.text import gguf_text, huggingface_text, text_model


def load(source: sources.ModelSource) -> text_model.TextModel:
    """Raises ModelNotFound, UnsupportedModel or CorruptModel; the message names the file."""
    if source.kind == "gguf":
        return gguf_text.load(source.path)
    return huggingface_text.load(source.path)
