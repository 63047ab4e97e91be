"""Brings chat messages as clients send them into the form that chat templates are written for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_runtime import errors

_TEXT_PARTS = frozenset({"text", "input_text"})


def normalize(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copies of the messages in which

    - `content` is a string: text parts are joined with a line break, other parts are refused by name;
    - keys whose value is None are absent, because templates print `None`;
    - the arguments of tool calls are objects, not JSON in a string.

    Raises InvalidRequest; `param` names the place.
    """
    if not messages:
        raise errors.InvalidRequest("messages: got an empty list, expected at least one message", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise errors.InvalidRequest(f"{place}: got {message!r:.80}, expected an object with a role", param=place)
    plain = {key: value for key, value in message.items() if value is not None}
    if "content" in plain:
        plain["content"] = _content(plain["content"], f"{place}.content")
    if "tool_calls" in plain:
        plain["tool_calls"] = _tool_calls(plain["tool_calls"], f"{place}.tool_calls")
    return plain


def _content(content: Any, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise errors.InvalidRequest(f"{place}: got {content!r:.80}, expected a string or a list of parts", param=place)
    return "\n".join(_part(part, f"{place}[{index}]") for index, part in enumerate(content))


def _part(part: Any, place: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in _TEXT_PARTS:
        raise errors.InvalidRequest(
            f"{place}: got a part of type {kind!r}, expected 'text': this model reads text only", param=place
        )
    text = part.get("text")
    if not isinstance(text, str):
        raise errors.InvalidRequest(f"{place}.text: got {text!r:.80}, expected a string", param=f"{place}.text")
    return text


def _tool_calls(calls: Any, place: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise errors.InvalidRequest(f"{place}: got {calls!r:.80}, expected a list", param=place)
    return [_tool_call(call, f"{place}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Any, place: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise errors.InvalidRequest(f"{place}: got {call!r:.80}, expected an object with a function", param=place)
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _parsed(arguments, f"{place}.function.arguments")
    return {**call, "function": {**function, "arguments": arguments}}


def _parsed(arguments: str, place: str) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError as error:
        raise errors.InvalidRequest(f"{place}: got {arguments!r:.80}, expected JSON: {error}", param=place) from error
