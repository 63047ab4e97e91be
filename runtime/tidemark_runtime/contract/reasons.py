"""Why an engine is not there, as one word that programs read: in `/status`, and in the last words of `tidemark serve`.

Sentences are for people and may change; the operator's conditions, alerts and runbooks hang on these words.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """CamelCase, as conditions of Kubernetes write it."""

    MODEL_NOT_FOUND = "ModelNotFound"
    UNSUPPORTED_MODEL = "UnsupportedModel"
    CORRUPT_MODEL = "CorruptModel"
    DOES_NOT_FIT = "DoesNotFit"
    """The memory arithmetic does not work out."""
    KERNEL_PATH = "KernelPath"
    """An op runs on another path than planned: slowly, but right. `hardware.strictKernels` forbids it."""
    KERNEL_SELF_TEST_FAILED = "KernelSelfTestFailed"
    """An op gives wrong numbers on this machine."""
    CONFIG_INVALID = "ConfigInvalid"
    ADDRESS_UNAVAILABLE = "AddressUnavailable"
    """Host or port cannot be listened on."""
    OUT_OF_MEMORY = "OutOfMemory"
    ENGINE_DIED = "EngineDied"
    """The engine process ended without a word: killed, or a crash below Python."""
    ENGINE_FAILED = "EngineFailed"
    """An error that nobody foresaw; the message and the log have it."""
    STALLED = "Stalled"
    KEYS_UNREADABLE = "KeysUnreadable"
    """Serving, with the API keys, or the admin token, that were read before."""
    TLS_UNREADABLE = "TlsUnreadable"
    """Serving, with the certificate that was read before."""


_BY_ERROR = {
    "ModelNotFound": Reason.MODEL_NOT_FOUND,
    "UnsupportedModel": Reason.UNSUPPORTED_MODEL,
    "CorruptModel": Reason.CORRUPT_MODEL,
    "CapacityError": Reason.DOES_NOT_FIT,
    "KernelPathError": Reason.KERNEL_PATH,
    "SelfTestFailed": Reason.KERNEL_SELF_TEST_FAILED,
    "ConfigError": Reason.CONFIG_INVALID,
    "ListenError": Reason.ADDRESS_UNAVAILABLE,
    "MemoryError": Reason.OUT_OF_MEMORY,
    "OutOfMemory": Reason.OUT_OF_MEMORY,
    "EngineDead": Reason.ENGINE_DIED,
    "RankLost": Reason.ENGINE_DIED,
}


def of_error(kind: str) -> Reason:
    """The reason that an exception class stands for, by its name (it may have come from another process)."""
    return _BY_ERROR.get(kind, Reason.ENGINE_FAILED)


@dataclass(frozen=True, slots=True)
class LastWords:
    """What a process said before it ended."""

    reason: str
    message: str
    """One line."""


_PREFIX = "tidemark serve: "
_FIRST_LINE = re.compile(rf"{_PREFIX}([A-Z][A-Za-z]*): (.*)")


def write(reason: Reason, message: str) -> str:
    """`tidemark serve: REASON: MESSAGE`; further lines of the message are indented by two."""
    first, *more = message.splitlines() or [""]
    return "\n".join([f"{_PREFIX}{reason}: {first}", *(f"  {line.strip()}" for line in more)])


def read(log: str) -> LastWords | None:
    """The last of what `write` wrote into a log, whatever came after it; None where nobody did."""
    lines = log.splitlines()
    for position in reversed(range(len(lines))):
        found = _FIRST_LINE.fullmatch(lines[position].rstrip())
        if found is not None:
            more = itertools.takewhile(lambda line: line.startswith("  "), lines[position + 1 :])
            return LastWords(found[1], "; ".join([found[2], *(line.strip() for line in more)]))
    return None
