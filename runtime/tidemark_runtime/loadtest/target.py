"""The server under test: where it is, who we are to it, how its certificate is verified, and what it can."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from tidemark_runtime import errors
from tidemark_runtime.contract import http as paths
from tidemark_runtime.loadtest import exchange

KEY_VARIABLE = "TIDEMARK_API_KEY"

_CONNECT_SECONDS = 10.0
_ASK_SECONDS = 120.0
"""For one question before the load: a first answer of a slow machine included."""
_UNREADABLE = "a file that this user can read"


class NoAnswer(errors.TidemarkError):
    """The server does not do what a load test needs; the message says what it answered and what to do."""


class Endpoint(StrEnum):
    """Which of OpenAI's."""

    CHAT = "chat"
    COMPLETIONS = "completions"

    @property
    def path(self) -> str:
        return paths.CHAT_PATH if self is Endpoint.CHAT else paths.COMPLETIONS_PATH


@dataclass(frozen=True, slots=True)
class Facts:
    """What the server has shown that it can."""

    model: str
    ignores_eos: bool
    """Takes `ignore_eos`: answers are as long as they are asked to be."""
    says_usage: bool
    version: str = ""
    """Of ours, by `/status`; empty: another server."""


def address(url: str) -> str:
    """The part of `url` before `/v1`. Raises `ConfigError`."""
    expected = "http://HOST:PORT or https://HOST:PORT, with or without /v1"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  an impossible port is found only when it is asked for
    except ValueError as error:
        raise errors.ConfigError([errors.Problem("URL", url, expected, f"It says: {error}")]) from error
    if parts.username is not None or parts.password is not None:
        seen = errors.Seen("one with a name or password in it")
        raise errors.ConfigError([errors.Problem("URL", seen, expected, "Keys come from --api-key-file.")])
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise errors.ConfigError([errors.Problem("URL", url, expected)])
    return url.rstrip("/").removesuffix("/v1")


def is_local(url: str) -> bool:
    """Client and server share this machine, and so its cores."""
    return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")


def keys(file: Path | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The API keys, in turn for the tenants of a workload: the first word of each line of `file`, as the server's key
    file has it; without a file the one in the environment. Raises `ConfigError`, which never repeats a key."""
    if file is None:
        value = environment.get(KEY_VARIABLE, "").strip()
        _check_key(KEY_VARIABLE, value)
        return (value,) if value else ()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"It says: {error.strerror if isinstance(error, OSError) else error.reason}"
        raise errors.ConfigError([errors.Problem("--api-key-file", str(file), _UNREADABLE, remedy)]) from error
    found = tuple(words[0] for words in map(str.split, lines) if words and not words[0].startswith("#"))
    if not found:
        raise errors.ConfigError([errors.Problem("--api-key-file", str(file), "a file with a key in its first line")])
    for key in found:
        _check_key("--api-key-file", key)
    return found


def _check_key(where: str, key: str) -> None:
    if not key.isascii() or not key.isprintable() or " " in key:
        seen = errors.Seen("a key with signs that no header can hold")
        raise errors.ConfigError([errors.Problem(where, seen, "a key of printable ASCII signs without spaces")])


def verification(ca_file: Path | None, insecure: bool) -> ssl.SSLContext:
    """Which certificates are trusted: the system's, or those of `ca_file` alone. Raises `ConfigError`."""
    if ca_file is not None and insecure:
        raise errors.ConfigError([errors.Problem("--insecure", True, "no --ca-file beside it", "Leave one out.")])
    if insecure:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:  # `ssl.SSLError` is one
        remedy = f"It says: {error.strerror or error}"
        raise errors.ConfigError([errors.Problem("--ca-file", str(ca_file), "PEM certificates", remedy)]) from error


def open_http(
    url: str, verify: ssl.SSLContext, timeout_seconds: float, transport: httpx.AsyncBaseTransport | None = None
) -> httpx.AsyncClient:
    """A client without a limit of its own on connections, which would hide a queue in here. It follows no redirect and
    no proxy: what is measured is the server."""
    return httpx.AsyncClient(
        base_url=url,
        verify=verify,
        transport=transport,
        trust_env=False,
        timeout=httpx.Timeout(timeout_seconds, connect=_CONNECT_SECONDS, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
    )


def headers(key: str | None) -> dict[str, str]:
    found = {"content-type": "application/json"}
    return found if key is None else {**found, "authorization": f"Bearer {key}"}


async def question(
    http: httpx.AsyncClient, method: str, path: str, key: str | None, body: Any = None
) -> httpx.Response:
    """One whole answer. Raises `NoAnswer` where there is none."""
    content = None if body is None else msgspec.json.encode(body)
    try:
        return await http.request(method, path, content=content, headers=headers(key), timeout=_ASK_SECONDS)
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        remedy = "Is the server up, and is the address right?"
        if "CERTIFICATE_VERIFY_FAILED" in words:
            remedy = "--ca-file FILE names the authority that signed its certificate."
        raise NoAnswer(f"{http.base_url} does not answer {method} {path}: {words}. {remedy}") from error


async def look(http: httpx.AsyncClient, endpoint: Endpoint, model: str | None, key: str | None) -> Facts:
    """Ask what is served, and send one small request, so that the load does not meet a cold server.

    Raises `NoAnswer`; `ConfigError` where `model` must be chosen.
    """
    chosen = model if model is not None else await _only_model(http, key)
    body = {"model": chosen, "max_tokens": 2, "temperature": 0, **spoken(endpoint, "Hello")}
    answer = await question(http, "POST", endpoint.path, key, {**body, "ignore_eos": True})
    ignores_eos = answer.status_code == 200
    if answer.status_code in (400, 422):  # a server that does not know the field
        answer = await question(http, "POST", endpoint.path, key, body)
    if answer.status_code != 200:
        raise NoAnswer(_refused(answer, endpoint.path))
    return Facts(chosen, ignores_eos, _usage(answer) is not None, await _version(http))


def spoken(endpoint: Endpoint, text: str) -> dict[str, Any]:
    """The field of a request that holds its prompt."""
    return {"messages": [{"role": "user", "content": text}]} if endpoint is Endpoint.CHAT else {"prompt": text}


async def prompt_tokens(
    http: httpx.AsyncClient, endpoint: Endpoint, model: str, key: str | None, text: str
) -> int | None:
    """What a request for one token says that its prompt had; None where it does not say."""
    body = {"model": model, "max_tokens": 1, **spoken(endpoint, text)}
    answer = await question(http, "POST", endpoint.path, key, body)
    if answer.status_code != 200:
        raise NoAnswer(_refused(answer, endpoint.path))
    usage = _usage(answer)
    return usage.prompt_tokens if usage is not None else None


async def _only_model(http: httpx.AsyncClient, key: str | None) -> str:
    answer = await question(http, "GET", paths.MODELS_PATH, key)
    if answer.status_code != 200:
        raise NoAnswer(_refused(answer, paths.MODELS_PATH))
    try:
        names = [model.id for model in msgspec.json.decode(answer.content, type=_Models).data]
    except msgspec.DecodeError as error:
        words = f"{paths.MODELS_PATH} does not list models as OpenAI's API does: {error}. --model names one."
        raise NoAnswer(words) from error
    if len(names) != 1:
        seen = errors.Seen("none") if len(names) > 1 else errors.Seen("none, and the server lists no model")
        raise errors.ConfigError([errors.Problem("--model", seen, f"one of the server's: {', '.join(names)}")])
    return names[0]


async def _version(http: httpx.AsyncClient) -> str:
    """Of a server of ours; another one has no such page, which is no news."""
    try:
        answer = await http.get(paths.STATUS_PATH, timeout=_CONNECT_SECONDS)
        return msgspec.json.decode(answer.content, type=_Version).version if answer.status_code == 200 else ""
    except (httpx.HTTPError, msgspec.DecodeError):
        return ""


def _refused(answer: httpx.Response, path: str) -> str:
    code, message = exchange.read_error(answer.content, answer.status_code)
    remedy = {
        401: f" Give its key: --api-key-file FILE, or the variable {KEY_VARIABLE}.",
        403: f" Give a key that may: --api-key-file FILE, or the variable {KEY_VARIABLE}.",
        404: " --model and --endpoint say which model is asked, and how.",
        503: " Try again when it is ready.",
    }.get(answer.status_code, "")
    return f"{path} answered {answer.status_code} ({code}): {message or 'no message'}{remedy}"


def _usage(answer: httpx.Response) -> exchange.Usage | None:
    try:
        return msgspec.json.decode(answer.content, type=_WithUsage).usage
    except msgspec.DecodeError:
        return None


class _Version(msgspec.Struct):
    version: str


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: Sequence[_Model]


class _WithUsage(msgspec.Struct):
    usage: exchange.Usage | None = None
