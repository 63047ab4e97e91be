"""Probes as a kubelet makes them. Thresholds are kept as times, so that asking more often does not judge sooner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from tidemark_operator.cluster.local import translate


class Prober(Protocol):
    """Asks one URL."""

    async def __call__(self, url: str, timeout_seconds: float) -> bool:
        """Whether it answered 200 to 399 in time."""
        ...


@dataclass(frozen=True, slots=True)
class Probe:
    """One httpGet probe of a container."""

    path: str
    port: int
    """Container port."""
    period_seconds: float
    timeout_seconds: float
    failure_seconds: float
    """Failing so long without a success in between means failed."""
    initial_delay_seconds: float
    scheme: str = "http"


def parse(container: Mapping[str, Any], field: str) -> Probe | None:
    """`field` is startupProbe, readinessProbe or livenessProbe. Raises `CannotRun` for anything but httpGet."""
    spec = container.get(field)
    if not spec:
        return None
    http = spec.get("httpGet")
    port = translate.container_port(container, http.get("port")) if http else None
    if http is None or port is None:
        raise translate.CannotRun(f"{field} of container {container['name']!r} is not an httpGet on a port it declares")
    period = float(spec.get("periodSeconds", 10))
    return Probe(
        path=http.get("path", "/"),
        port=port,
        period_seconds=period,
        timeout_seconds=float(spec.get("timeoutSeconds", 1)),
        failure_seconds=period * int(spec.get("failureThreshold", 3)),
        initial_delay_seconds=float(spec.get("initialDelaySeconds", 0)),
        scheme=str(http.get("scheme", "HTTP")).lower(),
    )


class Verdict:
    """What the answers to one probe mean so far. Without a probe it passes from the beginning."""

    def __init__(self, probe: Probe | None, started: float) -> None:
        self._probe = probe
        self._failing_since: float | None = started
        self.passing = probe is None

    def observe(self, success: bool, now: float) -> None:
        """One answer. A pass that turns into failures stays a pass until they have lasted `failure_seconds`."""
        if success:
            self.passing, self._failing_since = True, None
        elif self._failing_since is None:
            self._failing_since = now
        if self.failed(now):
            self.passing = False

    def failed(self, now: float) -> bool:
        """Whether it has failed for too long."""
        if self._probe is None or self._failing_since is None:
            return False
        return now - self._failing_since >= self._probe.failure_seconds


class HttpProber:
    """Probes over one connection pool. The client must not verify certificates: as with a kubelet, a probe asks whether
    the pod answers, and no certificate names a pod's address."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def __call__(self, url: str, timeout_seconds: float) -> bool:
        try:
            response = await self._client.get(url, timeout=timeout_seconds)
        except httpx.HTTPError:
            return False
        return 200 <= response.status_code < 400
