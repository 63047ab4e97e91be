"""Log-probabilities as clients see them. Each token is decoded on its own; one that is no text shows its bytes.

Values come from the engine, taken before temperature and filters, so they are finite; should one not be, it is
shown as -9999.0 (`FLOOR`), because JSON has no infinities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidemark_runtime.server import choice
from tidemark_runtime.server.wire import chat, completions
from tidemark_runtime.text import text_model

FLOOR = -9999.0


def token_string(text: text_model.TextModel, token_id: int) -> tuple[str, bytes]:
    """The token as text and as bytes. Bytes that are not UTF-8 by themselves read `bytes:\\xe8\\xaa`."""
    raw = text.token_bytes(token_id)
    if not raw:
        return text.token_text(token_id), raw
    try:
        return raw.decode("utf-8"), raw
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw), raw


def for_chat(text: text_model.TextModel, entries: Sequence[choice.TokenEntry]) -> chat.Logprobs:
    """`content` with one entry a token; `top_logprobs` holds exactly as many as were asked for."""
    content = []
    for entry in entries:
        shown, raw = token_string(text, entry.token_id)
        pairs = zip(entry.logprobs.top_ids, entry.logprobs.top, strict=True)
        top = [_alternative(text, token_id, value) for token_id, value in pairs]
        content.append(chat.TokenLogprob(shown, _finite(entry.logprobs.chosen), list(raw), top))
    return chat.Logprobs(content)


def for_completions(text: text_model.TextModel, entries: Sequence[choice.TokenEntry]) -> completions.Logprobs:
    """Four lists; the chosen token is always in its `top_logprobs`, so there may be one more than asked for."""
    tokens, values, tops, offsets = [], [], [], []
    for entry in entries:
        shown = token_string(text, entry.token_id)[0]
        pairs = zip(entry.logprobs.top_ids, entry.logprobs.top, strict=True)
        top = {token_string(text, token_id)[0]: _finite(value) for token_id, value in pairs}
        top[shown] = _finite(entry.logprobs.chosen)
        tokens.append(shown)
        values.append(_finite(entry.logprobs.chosen))
        tops.append(top)
        offsets.append(entry.offset)
    return completions.Logprobs(tokens, values, tops, offsets)


def _alternative(text: text_model.TextModel, token_id: int, value: float) -> chat.AlternativeLogprob:
    shown, raw = token_string(text, token_id)
    return chat.AlternativeLogprob(shown, _finite(value), list(raw))


def _finite(value: float) -> float:
    return max(value, FLOOR) if not math.isnan(value) else FLOOR
