"""Whose a request is, and where it stands among the others: its API key, its priority, whether it was tried before.

Priority comes from, in this order: the header `x-tidemark-priority`, OpenAI's field `service_tier`, the line of the key
file. Who asks for more than the key may have is refused (403, not 400: the request is right, it only lacks the
permission), rather than served with less: a client that believes to be first would never find out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers

from tidemark_runtime import config, errors
from tidemark_runtime.contract import http
from tidemark_runtime.server import key_lines, validation

_TIER_PRIORITIES: Mapping[str, int | None] = {"auto": None, "default": None, "flex": -1, "priority": 1, "fast": 1}
"""`validation.SERVICE_TIERS` -> priority; None: what the key has."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,3}")
_COUNT = re.compile(r"[0-9]{1,9}")
_MOST_RETRIES = 999_999_999


@dataclass(frozen=True, slots=True)
class Standing:
    """One request's."""

    key_name: str = ""
    """Empty for a key without a name, and where no key file is set."""
    tenant: str = ""
    """Who shares the prefix cache, and takes turns with other tenants."""
    priority: int = 0
    is_retry: bool = False

    @property
    def tier(self) -> str:
        """The `service_tier` that the answer says: the nearest of OpenAI's words for the priority it had."""
        return "priority" if self.priority > 0 else "flex" if self.priority < 0 else "default"


def read(headers: Headers, service_tier: str | None, key: key_lines.Key) -> Standing:
    """Raises `InvalidRequest` for a header of ours that is no number, `NotAllowed`."""
    return Standing(key.name, key.tenant, _priority(headers, service_tier, key), _is_retry(headers))


def _priority(headers: Headers, service_tier: str | None, key: key_lines.Key) -> int:
    given = _header(headers, http.PRIORITY_HEADER)
    if given is not None:
        if not _WHOLE.fullmatch(given) or not config.PRIORITY_MIN <= int(given) <= config.PRIORITY_MAX:
            expected = f"a whole number from {config.PRIORITY_MIN} to {config.PRIORITY_MAX}"
            raise validation.wrong(http.PRIORITY_HEADER, given, expected)
        return _allowed(int(given), key, http.PRIORITY_HEADER, given)
    asked = _TIER_PRIORITIES[service_tier or "auto"]
    if asked is None:
        return key.priority
    return _allowed(asked, key, "service_tier", f"{service_tier}, which is priority {asked}")


def _allowed(asked: int, key: key_lines.Key, name: str, shown: str) -> int:
    if asked <= key.max_priority:
        return asked
    raise errors.NotAllowed(
        f"{name}: got {shown}, expected at most priority {key.max_priority}, which is what this API key may have. Ask "
        "for less, or ask who runs this server for a larger max-priority in the key file.",
        param=name,
    )


def _is_retry(headers: Headers) -> bool:
    """OpenAI's header is not ours to complain about; ours is."""
    theirs, ours = _header(headers, http.OPENAI_RETRY_COUNT_HEADER), _header(headers, http.RETRY_COUNT_HEADER)
    if ours is not None and not _COUNT.fullmatch(ours):
        raise validation.wrong(http.RETRY_COUNT_HEADER, ours, f"a whole number from 0 to {_MOST_RETRIES}")
    counts = [int(count) for count in (theirs, ours) if count is not None and _COUNT.fullmatch(count)]
    return max(counts, default=0) > 0


def _header(headers: Headers, name: str) -> str | None:
    """None where it is not there. Sent twice it is one value with a comma, as HTTP says, and so no number."""
    values = headers.getlist(name)
    return ", ".join(values).strip() if values else None
