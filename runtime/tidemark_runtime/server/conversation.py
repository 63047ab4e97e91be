"""Chat messages: checked, and brought to plain role and text for the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_runtime import errors
from tidemark_runtime.server import validation

ROLES: Mapping[str, str] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
"""OpenAI's role -> the template's."""

_EMPTY_FIELDS = frozenset(
    {"refusal", "audio", "annotations", "tool_calls", "function_call", "reasoning_content", "reasoning"}
)
"""Fields of an answer that clients send back; accepted when they hold nothing."""


def messages(value: Any) -> list[dict[str, str]]:
    """`[{"role": ..., "content": text}]`. Raises `InvalidRequest` that names the message."""
    if not isinstance(value, list) or not value:
        raise validation.wrong("messages", value, "a list with at least one message")
    return [_message(item, f"messages[{position}]") for position, item in enumerate(value)]


def _message(item: Any, label: str) -> dict[str, str]:
    if not isinstance(item, dict):
        raise validation.wrong(label, item, 'an object such as {"role": "user", "content": "Hello"}')
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise validation.wrong(f"{label}.role", role, f"one of {', '.join(ROLES)}")
    for key, extra in item.items():
        if key in ("role", "content", "name") or extra is None or (key in _EMPTY_FIELDS and not extra):
            continue
        raise errors.InvalidRequest(f"{label}.{key[:80]} is not supported. Leave it out.", param="messages")
    message = {"role": ROLES[role], "content": _content(item.get("content"), f"{label}.content")}
    name = item.get("name")
    if name is not None:
        if not isinstance(name, str):
            raise validation.wrong(f"{label}.name", name, "a text")
        message["name"] = name
    return message


def _content(value: Any, label: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise validation.wrong(label, value, "a text or a list of text parts")
    return "\n".join(_part(part, f"{label}[{position}]") for position, part in enumerate(value))


def _part(part: Any, label: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text" or not isinstance(part.get("text"), str):
        raise validation.wrong(label, kind if kind is not None else part, 'a part {"type": "text", "text": "..."}')
    text: str = part["text"]
    return text
