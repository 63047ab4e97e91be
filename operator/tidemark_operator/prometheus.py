"""Asks a Prometheus, or what speaks its HTTP API (Thanos, VictoriaMetrics, Mimir), and says clearly when it cannot.

    with prometheus.Prometheus("http://127.0.0.1:9090") as source:
        for sample in source.instant("sum by (service) (tidemark_requests_running)", at=time.time()):
            print(sample.labels["service"], sample.value)

Times are seconds since 1970. Values may be not-a-number or infinite, as Prometheus has them.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib import parse

import httpx
import msgspec

from tidemark_operator import errors, http_reading

TIMEOUT_SECONDS = 130.0
"""A little longer than Prometheus itself lets a query take by default (`--query.timeout`): then it says so."""
MAX_POINTS = 10_000
"""Of one range query: Prometheus refuses more than 11,000."""
_MOST_BYTES = 256 << 20
"""Of one answer: several times the most that `--query.max-samples` lets Prometheus put into one by default."""
_SHOWN = 300
"""Characters of an answer or a query that an error repeats."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series."""

    labels: Mapping[str, str]
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one series, in the order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """`(time, value)`."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert that is pending or firing."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    state: str
    """`pending` or `firing`."""
    active_since: str
    """RFC 3339."""
    value: float


@dataclass(frozen=True, slots=True)
class Target:
    """One target that is scraped now."""

    labels: Mapping[str, str]
    url: str
    health: str
    """`up`, `down` or `unknown`."""
    last_error: str


class _Instant(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, Any]


class _Matrix(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, Any]]


class _Alert(msgspec.Struct):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    state: str = ""
    activeAt: str = ""
    value: Any = "nan"


class _Target(msgspec.Struct):
    labels: dict[str, str] = {}
    scrapeUrl: str = ""
    health: str = "unknown"
    lastError: str = ""


_Shape = TypeVar("_Shape")


class Prometheus:
    """One address. Every question raises `errors.PrometheusUnreachable` or `errors.PrometheusRefused`."""

    def __init__(
        self,
        url: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` may end in a path (`https://thanos.example/prometheus`). Raises `errors.PrometheusMistaken` for a
        text that is no address, and for files that cannot be read. `transport`: tests answer in Prometheus' place."""
        self._base, self._auth = _address(url)
        self._timeout = timeout
        headers = {"Accept": "application/json"}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {_token(token_file)}"
        verify = _trusted(ca_file) if self._base.startswith("https:") else False
        self._client = httpx.Client(
            verify=verify,
            timeout=timeout,
            headers=headers,
            auth=self._auth,
            follow_redirects=False,
            transport=transport,
        )

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """As it may be shown: without a password."""
        return self._base

    def close(self) -> None:
        self._client.close()

    def instant(self, query: str, at: float) -> list[Sample]:
        """The value of each series of an instant vector; a scalar is one sample without labels."""
        data = self._post("query", {"query": query, "time": _number(at)})
        if data.get("resultType") in ("scalar", "string"):
            at_value = self._shaped(data.get("result"), tuple[float, Any])
            return [Sample({}, at_value[0], _value(at_value[1]))]
        found = self._shaped(data.get("result"), list[_Instant])
        return [Sample(item.metric, item.value[0], _value(item.value[1])) for item in found]

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Values at `start`, `start + step`, ... up to `end`, both included; in as many questions as it takes, since
        Prometheus answers no more than 11,000 points at once, and fewer of many series."""
        found: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        waiting = [*_chunks(start, end, step, MAX_POINTS)][::-1]
        while waiting:
            first, last = waiting.pop()
            form = {"query": query, "start": _number(first), "end": _number(last), "step": _number(step)}
            try:
                answer = self._post("query_range", form)
            except errors.PrometheusRefused as error:
                half = (math.floor((last - first) / step + 1e-9) + 2) // 2
                if error.kind != error.TOO_MUCH or last - first < step:
                    raise
                waiting += _chunks(first, last, step, half)[::-1]
                continue
            for item in self._shaped(answer.get("result"), list[_Matrix]):
                key = tuple(sorted(item.metric.items()))
                found.setdefault(key, []).extend((at, _value(value)) for at, value in item.values)
        return [Series(dict(labels), tuple(points)) for labels, points in found.items()]

    def alerts(self) -> list[Alert]:
        """Those that are pending or firing."""
        found = self._shaped(self._get("alerts", {}).get("alerts", []), list[_Alert])
        return [Alert(item.labels, item.annotations, item.state, item.activeAt, _value(item.value)) for item in found]

    def targets(self) -> list[Target]:
        """Those that are scraped now, up or down."""
        found = self._shaped(self._get("targets", {"state": "active"}).get("activeTargets", []), list[_Target])
        return [Target(item.labels, item.scrapeUrl, item.health, item.lastError) for item in found]

    def retention(self) -> str | None:
        """What it keeps, as it says it: `15d`, `90d or 50GiB`. None where it does not say (not every one of them)."""
        try:
            data = self._get("status/runtimeinfo", {})
        except errors.PrometheusRefused:
            return None
        return str(data["storageRetention"]) if data.get("storageRetention") else None

    def _shaped(self, data: object, shape: type[_Shape]) -> _Shape:
        """Raises `errors.PrometheusRefused` for what says `success` and is no answer to what was asked."""
        try:
            return msgspec.convert(data, shape)
        except msgspec.ValidationError as error:
            raise errors.PrometheusRefused(
                f"{self._base}: it answers success, and not as a Prometheus does: {error}. Give the address under "
                "which its page opens, with its path"
            ) from error

    def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        return self._ask("GET", path, query, "")

    def _post(self, path: str, form: Mapping[str, str]) -> dict[str, Any]:
        """Queries are long: in the body, not in the address."""
        return self._ask("POST", path, form, form["query"])

    def _ask(self, method: str, path: str, values: Mapping[str, str], query: str) -> dict[str, Any]:
        url = f"{self._base}/api/v1/{path}"
        params, form = (None, values) if method == "POST" else (values, None)
        try:
            answer = http_reading.read(
                self._client, method, url, seconds=self._timeout, most_bytes=_MOST_BYTES, params=params, form=form
            )
        except http_reading.Broken as error:
            raise errors.PrometheusUnreachable(f"{self._base}: {error}{_about(query)}") from error
        except (httpx.InvalidURL, UnicodeError) as error:  # a name that no host can have is found only here
            raise _no_address(self._base) from error
        except httpx.ConnectError as error:
            raise errors.PrometheusUnreachable(f"{self._base}: {_why_not(error)}") from error
        except httpx.TimeoutException as error:
            raise errors.PrometheusUnreachable(
                f"{self._base}: no answer within {self._timeout:g} s{_about(query)}. Ask for a shorter period, or give "
                "Prometheus more processor and memory"
            ) from error
        except httpx.HTTPError as error:
            remedy = "Does it speak HTTPS? Then write https://" if url.startswith("http:") else "Try http://"
            raise errors.PrometheusUnreachable(f"{self._base}: no HTTP answer: {error}. {remedy}") from error
        return _data(answer, self._base, query)


def _chunks(start: float, end: float, step: float, most: int) -> Sequence[tuple[float, float]]:
    """First and last of each `most` points. Points are counted, not added up, so that none is lost to rounding."""
    if not step > 0:
        raise ValueError(f"step: got {step}, expected seconds above 0")
    count = math.floor((end - start) / step + 1e-9) + 1
    firsts = range(0, max(0, count), most)
    return [(start + first * step, start + (min(first + most, count) - 1) * step) for first in firsts]


def _data(answer: http_reading.Answer, base: str, query: str) -> dict[str, Any]:
    """`data` of an answer; what is none is said."""
    body: Any = None
    try:
        body = msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = None
    if isinstance(body, dict) and body.get("status") == "success" and isinstance(body.get("data"), dict):
        return dict(body["data"])
    if answer.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise errors.PrometheusRefused(
            f"{base}: HTTP {answer.status}, it wants to know who asks. Give a file with a bearer token "
            "(--token-file), or user and password in the address"
        )
    if isinstance(body, dict) and body.get("status") == "error":
        said = str(body.get("error", ""))[:_SHOWN]
        raise errors.PrometheusRefused(
            f"{base}: it answers {body.get('errorType', 'error')}: {said}{_about(query)}", kind=_kind(body, said)
        )
    if answer.location:
        raise errors.PrometheusRefused(
            f"{base}: it sends on to {answer.location!r}, and credentials are not sent after it. Give the last address"
        )
    raise errors.PrometheusRefused(
        f"{base}: HTTP {answer.status}, and the answer is not that of a Prometheus: "
        f"{answer.start!r}. Give the address under which its page opens, with its path"
    )


def _kind(body: Mapping[str, Any], said: str) -> str:
    """`too_much` where a shorter period would have been answered, else `other`."""
    too_much = body.get("errorType") in ("timeout", "canceled") or "too many samples" in said or "timed out" in said
    return errors.PrometheusRefused.TOO_MUCH if too_much else errors.PrometheusRefused.OTHER


def _about(query: str) -> str:
    if not query:
        return ""
    shown = query if len(query) <= _SHOWN else f"{query[:_SHOWN]}..."
    return f" (asked: {shown})"


def _value(text: object) -> float:
    """`NaN`, `+Inf` and numbers as text; what is no number at all is not-a-number (a query for a string)."""
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def _number(seconds: float) -> str:
    """To the millisecond, as Prometheus keeps it."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def _address(url: str) -> tuple[str, tuple[str, str] | None]:
    """The address without a slash at its end, and what stands before an `@` in it."""
    try:
        parts = parse.urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _no_address(url) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise _no_address(url)
    auth = None
    if parts.username is not None:
        auth = (parse.unquote(parts.username), parse.unquote(parts.password or ""))
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}", auth


def _no_address(url: str) -> errors.PrometheusMistaken:
    shown = url.rpartition("@")[2]
    return errors.PrometheusMistaken(
        f"--prometheus: got {shown!r}, expected http://HOST:PORT or https://HOST:PORT, with its path where it has one"
    )


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise errors.PrometheusMistaken(
            f"--token-file: got {path}, expected a file with a bearer token. It says: {error}"
        ) from error
    if not token or any(sign.isspace() for sign in token):
        raise errors.PrometheusMistaken(f"--token-file: got {path}, expected one token and nothing else in it")
    return token


def _trusted(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise errors.PrometheusMistaken(
            f"--ca-file: got {ca_file}, expected certificates in PEM. It says: {error}"
        ) from error


def _why_not(error: httpx.ConnectError) -> str:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not trusted here: {text}. Give the site's CA with --ca-file FILE"
    if "SSL" in text:
        return f"it does not speak HTTPS: {text}. Write http://"
    return f"cannot connect: {text}. Does Prometheus run, and is this its address?"
