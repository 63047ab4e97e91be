"""Everything the server knows of a model's text side: ids and bytes, begin and end tokens, the chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tokenizers

from tidemark_runtime import errors
from tidemark_runtime.text import chat_messages, chat_template, encoding, token_table

DEFAULT_TEMPLATE = "default"
TOOLS_TEMPLATE = "tool_use"


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Tokens with a role, and where they are put."""

    bos_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    """Put before a text that is encoded with `add_special`: the tokenizer's own rule."""
    suffix_ids: tuple[int, ...] = ()
    """Put after it."""
    end_ids: tuple[int, ...] = ()
    """A generated token of these ends the answer."""
    named: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token` and the like, as chat templates write them."""


class TextModel:
    """A tokenizer with its rules. Safe to use from several threads at once.

    Special tokens written out in a text (`<|im_end|>`) become those tokens, in completions and in the messages of a
    chat alike. That is what Hugging Face's tokenizers do by default, and ids must agree with them; it means that the
    author of a message can end it and begin another. A server for untrusted authors must filter messages itself.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        special: SpecialTokens,
        templates: Mapping[str, chat_template.ChatTemplate],
        origin: str,
    ) -> None:
        """`origin` names the model in messages."""
        self._table = token_table.build(tokenizer, origin)
        self._encoder = encoding.Encoder(tokenizer)
        self._special = special
        self._templates = dict(templates)

    @property
    def vocab_size(self) -> int:
        """Number of ids the tokenizer knows; a model's own vocabulary may be padded beyond it."""
        return len(self._table.pieces)

    @property
    def bos_id(self) -> int | None:
        """The begin token, whether or not it is added to texts."""
        return self._special.bos_id

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return self._special.end_ids

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens, which are not part of the text shown."""
        return self._table.special_ids

    @property
    def drops_leading_space(self) -> bool:
        """True for sentencepiece-style vocabularies that put a space before every text."""
        return self._table.drops_leading_space

    @property
    def has_chat_template(self) -> bool:
        """False when only completions can be served."""
        return bool(self._templates)

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """Ids of `text`; with `add_special` the begin and end tokens the tokenizer's own rule asks for.

        Long texts do not stall other threads: run it in one. Raises InvalidRequest for half a surrogate pair.
        """
        ids = self._encoder.encode(text)
        return [*self._special.prefix_ids, *ids, *self._special.suffix_ids] if add_special else ids

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of `ids` as a text of its own; bytes that are no characters become U+FFFD."""
        skipped = self._table.special_ids if skip_special else frozenset()
        data = b"".join(self.token_bytes(token_id) for token_id in ids if token_id not in skipped)
        if self._table.drops_leading_space:
            data = data.removeprefix(b" ")
        return data.decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token; special tokens have those of their text, ids without a token none."""
        return self._table.pieces[token_id] if 0 <= token_id < len(self._table.pieces) else b""

    def token_text(self, token_id: int) -> str:
        """One token as text, for display: half a character shows as U+FFFD."""
        return self.token_bytes(token_id).decode(errors="replace")

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt the model's template makes of the messages.

        Raises InvalidRequest when the model has no template or the template refuses the messages.
        """
        template = self._template(has_tools=bool(tools))
        return template.render(
            chat_messages.normalize(messages),
            add_generation_prompt=add_generation_prompt,
            tools=list(tools) if tools else None,
            template_kwargs=template_kwargs,
        )

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Ids of the prompt the template makes. Raises as `render_chat` does.

        Where the tokenizer's rule asks for a begin token, there is exactly one: the template's own, or, if it wrote
        none, the tokenizer's. No end token is added.
        """
        prompt = self.render_chat(
            messages, add_generation_prompt=add_generation_prompt, tools=tools, template_kwargs=template_kwargs
        )
        ids = self.encode(prompt, add_special=False)
        prefix = list(self._special.prefix_ids)
        return ids if ids[: len(prefix)] == prefix else prefix + ids

    def _template(self, has_tools: bool) -> chat_template.ChatTemplate:
        if not self._templates:
            raise errors.InvalidRequest(
                "this model has no chat template, so it cannot take messages. Use /v1/completions with a prompt"
            )
        if has_tools and TOOLS_TEMPLATE in self._templates:
            return self._templates[TOOLS_TEMPLATE]
        if DEFAULT_TEMPLATE in self._templates:
            return self._templates[DEFAULT_TEMPLATE]
        names = ", ".join(sorted(self._templates))
        raise errors.InvalidRequest(f"this model has chat templates ({names}), but none for messages without tools")
