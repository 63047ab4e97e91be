"""Asks engines for their own `/status`."""

from __future__ import annotations

import asyncio

import httpx
import msgspec

from tidemark_operator import settings as settings_
from tidemark_runtime.contract import http
from tidemark_runtime.contract import status as contract

_MAX_BODY_BYTES = 1 << 20


class Engines:
    """A bounded number of questions at a time over one connection pool."""

    def __init__(self, client: httpx.AsyncClient, settings: settings_.EngineSettings) -> None:
        self._client = client
        self._timeout = settings.timeout_seconds
        self._turns = asyncio.Semaphore(settings.max_concurrency)

    async def ask(self, host: str, port: int) -> contract.EngineStatus | None:
        """The status document; None when there is no sensible answer in time, whatever the reason: an engine that is
        starting or stuck has none, and the pod's own state says more than the error would."""
        async with self._turns:
            try:
                async with asyncio.timeout(self._timeout):
                    response = await self._client.get(f"http://{host}:{port}{http.STATUS_PATH}")
            except (httpx.HTTPError, TimeoutError):
                return None
        if response.status_code != 200 or len(response.content) > _MAX_BODY_BYTES:
            return None
        try:
            return msgspec.json.decode(response.content, type=contract.EngineStatus)
        except msgspec.DecodeError:
            return None
