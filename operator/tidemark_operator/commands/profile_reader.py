"""Asks a running engine for `/status` and `/metrics`, over HTTP or HTTPS. It needs no key: both are open."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib import parse

import httpx
import msgspec
from prometheus_client import parser

from tidemark_operator import errors, http_reading
from tidemark_runtime.contract import http, metrics, status

TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 8 << 20

Labels = tuple[tuple[str, str], ...]


class NotAnEngine(errors.OperatorError):
    """Nobody there, or somebody else, or one that is not loaded."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Every sample of a scrape: name -> labels -> value."""

    values: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples of `name` that have these labels; 0 where there is none."""
        wanted = set(labels.items())
        return sum(value for found, value in self.values.get(name, {}).items() if wanted <= set(found))

    def mean(self, name: str, **labels: str) -> float | None:
        """Of a histogram; None where it saw nothing."""
        count = self.total(f"{name}_count", **labels)
        return self.total(f"{name}_sum", **labels) / count if count else None

    def by(self, name: str, label: str) -> dict[str, float]:
        """Value of `label` -> sum, for those above 0."""
        found: dict[str, float] = {}
        for labels, value in self.values.get(name, {}).items():
            key = dict(labels).get(label, "")
            found[key] = found.get(key, 0.0) + value
        return {key: value for key, value in found.items() if value > 0}

    def since(self, before: Samples) -> Samples:
        """Counters and histograms less what they were; gauges as they are now."""
        gauges = {metric.name for metric in metrics.ENGINE_METRICS if metric.kind is metrics.Kind.GAUGE}
        return Samples(
            {
                name: values
                if name in gauges
                else {labels: value - before.values.get(name, {}).get(labels, 0.0) for labels, value in values.items()}
                for name, values in self.values.items()
            }
        )


@dataclass(frozen=True, slots=True)
class Look:
    """One answer of an engine."""

    status: status.EngineStatus
    samples: Samples


class Engine:
    """One engine's address."""

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        """Raises `NotAnEngine` for a text that is no address, and for a CA file that cannot be used."""
        parts = _address(url)
        self._base = shown(url)
        verify = _trusted(ca_file) if parts.scheme == "https" else False  # reading a system's certificates takes 40 ms
        auth = None
        if parts.username is not None:
            auth = (parse.unquote(parts.username), parse.unquote(parts.password or ""))
        self._client = httpx.Client(verify=verify, timeout=TIMEOUT_SECONDS, follow_redirects=False, auth=auth)

    def look(self) -> Look:
        """Raises `NotAnEngine` with what is there instead, and what to do."""
        found = self.ask_status()
        if not found.memory.pages_total:
            raise NotAnEngine(f"{self._base}: the engine is {found.state}: {found.message} Ask again when it is ready")
        return Look(found, self.ask_samples())

    def ask_status(self) -> status.EngineStatus:
        """Of an engine in any state, also one that loads. Raises `NotAnEngine`."""
        try:
            return msgspec.json.decode(self._get(http.STATUS_PATH), type=status.EngineStatus)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAnEngine(
                f"{self._base}{http.STATUS_PATH} is no status of a Tidemark engine: {error}. Name the address of an "
                "engine or of a service's URL, not of the operator or of another server"
            ) from error

    def ask_samples(self) -> Samples:
        """Its metrics. Raises `NotAnEngine`."""
        return parsed(self._get(http.METRICS_PATH).decode("utf-8", errors="replace"))

    def close(self) -> None:
        self._client.close()

    def _get(self, path: str) -> bytes:
        url = self._base + path
        try:
            answer = http_reading.read(self._client, "GET", url, seconds=TIMEOUT_SECONDS, most_bytes=_MOST_BYTES)
        except http_reading.Broken as error:
            raise NotAnEngine(f"{url}: {error}") from error
        except (httpx.InvalidURL, UnicodeError) as error:  # a name that no host can have is found only here
            raise _no_address(self._base) from error
        except httpx.ConnectError as error:
            raise NotAnEngine(f"{self._base}: {_why_not(error)}") from error
        except httpx.TimeoutException as error:
            raise NotAnEngine(f"{url}: no answer within {TIMEOUT_SECONDS:.0f} s. Is it the right port?") from error
        except httpx.HTTPError as error:
            remedy = "Does it speak HTTPS? Then write https://" if self._base.startswith("http:") else "Try http://"
            raise NotAnEngine(f"{url}: no HTTP answer: {error}. {remedy}") from error
        if answer.status != httpx.codes.OK:
            raise NotAnEngine(f"{url}: HTTP {answer.status}, expected 200 of a Tidemark engine. Check the address")
        return answer.content


def shown(url: str) -> str:
    """An engine's address as it may be shown and kept: without a password, and without what follows the port, which
    is not asked. Raises `NotAnEngine` for a text that is no address."""
    parts = _address(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _address(url: str) -> parse.SplitResult:
    """Raises `NotAnEngine` for a text that is no address."""
    try:
        parts = parse.urlsplit(url)
        port = parts.port  # read for its check alone: no port is as good as one
    except ValueError as error:
        raise _no_address(url) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _no_address(url)
    return parts


def _no_address(url: str) -> NotAnEngine:
    return NotAnEngine(
        f"URL: got {url.rpartition('@')[2]!r}, expected http://HOST:PORT or https://HOST:PORT of one engine"
    )


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise NotAnEngine(f"--ca-file: got {ca_file}, expected certificates in PEM. It says: {error}") from error


def _why_not(error: httpx.ConnectError) -> str:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not trusted here: {text}. Give the site's CA with --ca-file FILE"
    if "SSL" in text:
        return f"it does not speak HTTPS: {text}. Write http://"
    return f"cannot connect: {text}. Does the engine run, and is this its port?"


def parsed(text: str) -> Samples:
    """Raises `NotAnEngine` for a text that is not Prometheus'."""
    values: dict[str, dict[Labels, float]] = {}
    try:
        families: Iterable[object] = list(parser.text_string_to_metric_families(text))
    except ValueError as error:
        raise NotAnEngine(f"{http.METRICS_PATH} is not in Prometheus' format: {error}") from error
    for family in families:
        for sample in getattr(family, "samples", ()):
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return Samples(values)
