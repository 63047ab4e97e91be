"""Request bodies: read up to the limit, parsed as strict JSON, large ones off the event loop."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeVar

import msgspec
from starlette import requests

from tidemark_runtime import errors

LARGE_BODY_BYTES = 64 * 1024
"""A body over this is parsed, rendered and tokenized in a thread: under it that takes about a millisecond."""

_NOT_A_NUMBER = "must be a finite number, got {}"
_LONGEST_INTEGER = 40

T = TypeVar("T")


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


async def read(request: requests.Request, limit_bytes: int, limit_seconds: float) -> bytes:
    """The whole body.

    Raises `BodyTooLarge` as soon as the header or the bytes so far say so, `BodyTooSlow` where it is not here in
    `limit_seconds`, `ClientGone`.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes, f"{declared} bytes")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limit_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limit_bytes:
                    raise _too_large(limit_bytes, "more")
                chunks.append(chunk)
    except TimeoutError as error:
        raise errors.BodyTooSlow(
            f"The request body must be here in {limit_seconds:g} seconds (server.bodySeconds), {size} bytes of it came."
        ) from error
    except requests.ClientDisconnect as error:
        raise ClientGone from error
    return b"".join(chunks)


async def offload(pool: futures.ThreadPoolExecutor, size_bytes: int, work: Callable[[], T]) -> T:
    """Run `work` here when the body is small, in `pool` when it is large (so that other streams go on)."""
    if size_bytes <= LARGE_BODY_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def parse(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises `InvalidRequest`; a number that is not finite is named by its field."""
    try:
        value = msgspec.json.decode(body)
    except RecursionError as error:
        raise errors.InvalidRequest("The body is nested too deeply.") from error
    except msgspec.DecodeError as error:
        raise _explain(body, error) from error
    if not isinstance(value, dict):
        raise errors.InvalidRequest("The body must be a JSON object.")
    return value


def _too_large(limit_bytes: int, seen: str) -> errors.BodyTooLarge:
    return errors.BodyTooLarge(f"The request body may have at most {limit_bytes} bytes, this one has {seen}.")


def _explain(body: bytes, error: msgspec.DecodeError) -> errors.InvalidRequest:
    """Strict JSON has no NaN and no surrogate halves; a lenient parser finds which field held one."""
    try:
        lenient = json.loads(body.decode("utf-8"), parse_int=_lenient_integer)
    except UnicodeDecodeError:
        return errors.InvalidRequest("The body is not valid UTF-8. Send JSON in UTF-8.")
    except (ValueError, RecursionError):
        return errors.InvalidRequest(f"The body is not valid JSON: {error}.")
    try:
        culprit = _culprit(lenient)
    except RecursionError:
        culprit = None
    return culprit or errors.InvalidRequest(f"The body is not valid JSON: {error}.")


def _culprit(lenient: Any) -> errors.InvalidRequest | None:
    for path, value in _leaves("", lenient):
        if isinstance(value, float) and not math.isfinite(value):
            return errors.InvalidRequest(f"{path} {_NOT_A_NUMBER.format(value)}.", param=path)
        if isinstance(value, str) and not _encodable(value):
            message = f"{path} holds half of a surrogate pair (\\ud800 to \\udfff), which is not text."
            return errors.InvalidRequest(message, param=path)
    return None


def _lenient_integer(digits: str) -> int | float:
    """An integer of thousands of digits counts as infinite: no field takes one, and int() would refuse it."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else math.inf


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            name = key if _encodable(key) else "(a key)"
            yield (f"{path}.{name}" if path else name), ("" if name == key else key)
            yield from _leaves(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _leaves(f"{path}[{position}]", item)
    else:
        yield path, value


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
