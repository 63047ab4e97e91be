"""Tokens that end a turn of a chat although the model's settings name another end token."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers

TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|eom_id|>")


def of_templates(tokenizer: tokenizers.Tokenizer, sources: Iterable[str]) -> list[int]:
    """Ids of the turn ends that a template writes and that are tokens of their own; without them a model whose
    settings name only `<|endoftext|>` would go on talking to itself."""
    whole = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    written = "\n".join(sources)
    return [whole[text] for text in TURN_ENDS if text in whole and text in written]
