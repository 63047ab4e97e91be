"""Talks to engines: asks for their `/status`, gives them a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from tidemark_operator import settings as settings_
from tidemark_operator.cluster import interface
from tidemark_runtime.contract import http
from tidemark_runtime.contract import status as contract

_MAX_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens."""

    host: str
    port: int
    scheme: str = "http"

    def url(self, path: str) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{path}"


def scheme_of(container: Mapping[str, Any]) -> str:
    """`https` where the container is probed with it; the probes are made from the same setting as the server."""
    probe = (container.get("readinessProbe") or {}).get("httpGet") or {}
    return str(probe.get("scheme", "HTTP")).lower()


class Engines:
    """A bounded number of questions at a time over one connection pool. The client must not verify certificates: a
    pod is addressed by its IP, which no certificate names."""

    def __init__(self, client: httpx.AsyncClient, settings: settings_.EngineSettings) -> None:
        self._client = client
        self._timeout = settings.timeout_seconds
        self._turns = asyncio.Semaphore(settings.max_concurrency)

    async def ask(self, where: Address) -> contract.EngineStatus | None:
        """The status document; None when there is no sensible answer in time, whatever the reason: an engine that is
        starting or stuck has none, and the pod's own state says more than the error would."""
        response = await self._request("GET", where.url(http.STATUS_PATH))
        if response is None or response.status_code != 200:
            return None
        try:
            return msgspec.json.decode(response.content, type=contract.EngineStatus)
        except msgspec.DecodeError:
            return None

    async def configure(self, where: Address, document: Mapping[str, Any], token: str) -> interface.ConfigAnswer | None:
        """`PUT /admin/config`; None when there is no sensible answer in time, or the engine says to come again."""
        headers = {"authorization": f"Bearer {token}"}
        response = await self._request("PUT", where.url(http.ADMIN_CONFIG_PATH), headers=headers, json=dict(document))
        if response is None or response.status_code == 503:
            return None
        answer = _json(response)
        if response.status_code == 200:
            return interface.ConfigAnswer(True, str(answer.get("hash", "")))
        problem = answer.get("error")
        words = str(problem.get("message", "")) if isinstance(problem, dict) else ""
        return interface.ConfigAnswer(False, "", f"{response.status_code}: {words or response.text[:300]}")

    async def _request(self, method: str, url: str, **arguments: Any) -> httpx.Response | None:
        async with self._turns:
            try:
                async with asyncio.timeout(self._timeout):
                    response = await self._client.request(method, url, **arguments)
            except (httpx.HTTPError, TimeoutError):
                return None
        return response if len(response.content) <= _MAX_BODY_BYTES else None


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
