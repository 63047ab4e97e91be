"""Whether two models have the same tokens under the same numbers: otherwise one cannot guess for the other."""

from __future__ import annotations

import hashlib

from tidemark_runtime import errors
from tidemark_runtime.model import sources
from tidemark_runtime.text import loading, text_model


def load(source: sources.ModelSource, draft: sources.ModelSource | None) -> text_model.TextModel:
    """The text side of a model; with a `draft` model also compared with that one's.

    Raises as `loading.load` of both, and ConfigError where their tokenizers differ.
    """
    text = loading.load(source)
    if draft is not None:
        refuse_other(text, loading.load(draft), draft.name)
    return text


def refuse_other(text: text_model.TextModel, draft: text_model.TextModel, name: str) -> None:
    """Raises ConfigError where `draft`, of the model called `name`, has other tokens than `text`."""
    wanted, seen = digest(text), digest(draft)
    if wanted == seen:
        return
    problem = errors.Problem(
        "speculative.draftModel",
        f"{name} with {draft.vocab_size} tokens ({seen})",
        f"a model with the tokenizer of the model: {text.vocab_size} tokens ({wanted})",
        "Name a smaller model of the same family",
    )
    raise errors.ConfigError([problem])


def digest(text: text_model.TextModel) -> str:
    """Sixteen hex digits of all tokens' bytes, in the order of their numbers."""
    found = hashlib.sha256()
    for token_id in range(text.vocab_size):
        token = text.token_bytes(token_id)
        found.update(len(token).to_bytes(4, "little"))
        found.update(token)
    return found.hexdigest()[:16]
