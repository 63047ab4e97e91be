"""What an evaluation concluded, short enough for a pod's termination message (4,096 bytes)."""

from __future__ import annotations

import msgspec

FORMAT = "tidemark.verdict/1"
MAX_BYTES = 4096
"""What Kubernetes keeps of a termination message."""
_MAX_SENTENCE = 400


class Verdict(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Of one configuration, beside the unquantized model."""

    format: str = FORMAT
    configuration: str
    """What was measured: `int8`, `int8 + map`."""
    restart_hash: str
    """Of the engine's configuration that says so (`contract.settings.restart_hash`): hot settings quantize nothing."""
    passed: bool
    mean_kl: float | None
    """Nats; written as None where it is no finite number: then nothing has passed."""
    perplexity_rise: float | None
    """Ratio, or None as well."""
    tokens: int
    """Of text that was compared."""
    over: list[str] = []
    """One sentence for each limit that was broken."""


def write(verdict: Verdict) -> str:
    """JSON of at most `MAX_BYTES`."""
    text = msgspec.json.encode(verdict)
    if len(text) > MAX_BYTES:
        text = msgspec.json.encode(
            msgspec.structs.replace(verdict, over=[one[:_MAX_SENTENCE] for one in verdict.over[:2]])
        )
    return text.decode()


def read(text: str) -> Verdict | None:
    """None: the text is something else, such as the end of a log."""
    try:
        found = msgspec.json.decode(text.encode(), type=Verdict)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return found if found.format == FORMAT else None
