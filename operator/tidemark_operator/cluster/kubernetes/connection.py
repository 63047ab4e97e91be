"""The way to one API server: address, credentials that are read anew, timeouts, and a count of every request.

Our own requests and kopf's watches go through the same middleware, so a token that was rotated (in a pod: about once an
hour) is used by both from the next request on, and no watch is cut for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib import parse
from urllib import request as urllib_request

import aiohttp
import yaml
from kubernetes.aio import client, config

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.cluster.kubernetes import kinds
from tidemark_runtime.contract import yaml_words

APPLY = "application/apply-patch+yaml"
"""Content type of a server-side apply."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Observer = Callable[[str, kinds.Target, int], None]
"""Told of every request: verb, what it was about, HTTP status (0: no answer)."""

_log = logging.getLogger(__name__)

_NOT_PLAIN = re.compile("[\x7f-\uffff]")

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def yaml_and_json(document: Mapping[str, Any]) -> str:
    """A text that readers of YAML and of JSON take for the same document.

    An API server reads an apply as YAML, which knows JSON's escapes but not its pairs of them for what is beyond
    U+FFFF (an emoji), and takes control characters and line separators for something else when they stand there as
    they are. So the former are written as they are, and everything else beyond ASCII is escaped.
    """
    text = json.dumps(document, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Connection:
    """Use as an async context manager; `load` first."""

    def __init__(
        self, source: Source, settings: settings_.KubernetesSettings, observers: tuple[Observer, ...] = ()
    ) -> None:
        self._source = source
        self._settings = settings
        self._observers = observers
        self._configuration = client.Configuration()
        self._client: client.ApiClient | None = None

    async def __aenter__(self) -> Connection:
        """Raises `errors.Unavailable` when the kubeconfig or the service account cannot be used."""
        await self._source.load(self._configuration)
        # Left to itself, every request would look for a proxy in a thread, and take other credentials from ~/.netrc.
        self._configuration.proxy = self._configuration.proxy or _proxy(self.server)
        self._configuration.client_session_kwargs = {
            "middlewares": (self._middleware(*self._observers),),
            "trust_env": False,
        }
        self._client = client.ApiClient(self._configuration)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            client_: Any = self._client
            await client_.close()

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self._configuration.host)

    @property
    def namespace(self) -> str | None:
        """The namespace that the pod or the context is in; None: none is named."""
        return self._source.namespace

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> tuple[int, bytes]:
        """HTTP status and body, whatever the status. Raises `errors.Unavailable` when there is no answer in time."""
        rest: Any = self._opened().rest_client
        url = self.server + path + _query(query)
        headers = {"Accept": "application/json", "Content-Type": content_type}
        data: Mapping[str, Any] | str | None = body
        if content_type == APPLY and body is not None:
            # The client leaves a body alone only under a type it does not know; the API server strips what it does not.
            headers["Content-Type"], data = f"{APPLY}; charset=utf-8", yaml_and_json(body)
        timeout = aiohttp.ClientTimeout(
            total=seconds or self._settings.request_seconds, sock_connect=self._settings.connect_seconds
        )
        try:
            response = await rest.request(method, url, headers=headers, body=data, _request_timeout=timeout)
            return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or "no answer in time"
            raise errors.Unavailable(f"{self.server} does not answer: {reason}") from error

    @contextlib.asynccontextmanager
    async def streaming(
        self, path: str, query: Mapping[str, str], silence_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that goes on, whatever its status; one that says nothing for so long is given up. Raises
        `errors.Unavailable`, also for what goes wrong while it is read."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_seconds, sock_read=silence_seconds
        )
        try:
            async with (
                self.watching_session(lambda *_: None) as session,
                session.get(f"{self.server}{path}{_query(query)}", timeout=timeout) as response,
            ):
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unavailable(f"{self.server} stopped answering: {str(error) or 'no answer in time'}") from error

    def watching_session(self, observer: Observer) -> aiohttp.ClientSession:
        """A session of its own for watches, which are long; whoever asks for it closes it."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self._ssl())
        return aiohttp.ClientSession(
            connector=connector,
            middlewares=(self._middleware(*self._observers, observer),),
            proxy=self._configuration.proxy,
        )

    def _ssl(self) -> ssl.SSLContext:
        context = self._opened().rest_client.ssl_context
        if not isinstance(context, ssl.SSLContext):
            raise TypeError(f"the client has {context!r} where its TLS settings should be")
        return context

    def _opened(self) -> client.ApiClient:
        if self._client is None:
            raise RuntimeError("the connection is used before it was entered")
        return self._client

    def _middleware(self, *observers: Observer) -> aiohttp.ClientMiddlewareType:
        async def middleware(
            request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
        ) -> aiohttp.ClientResponse:
            """Adds the credentials, and asks for new ones once when the API server does not take them."""
            before = await self._authorize(request)
            response = await _observed(request, handler, observers)
            if response.status != 401:
                return response
            if not await self._renewed(request, before):
                return response
            response.release()
            return await _observed(request, handler, observers)

        return middleware

    async def _renewed(self, request: aiohttp.ClientRequest, before: str) -> bool:
        """Whether there are other credentials now; without any the answer stays the one that was given."""
        try:
            await self._source.load(self._configuration)
        except errors.Unavailable as error:
            _log.warning("the credentials were refused, and reading them again failed: %s", error)
            return False
        return await self._authorize(request) != before

    async def _authorize(self, request: aiohttp.ClientRequest) -> str:
        found = (await self._configuration.auth_settings()).get("BearerToken")
        value = str(found["value"]) if found and found["value"] else ""
        if value:
            request.headers["Authorization"] = value
        return value


async def _observed(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, observers: tuple[Observer, ...]
) -> aiohttp.ClientResponse:
    target = kinds.of_path(request.url.path)
    verb = _verb(request.method, target.named, "watch" in request.url.query)
    status = 0
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        for observer in observers:
            observer(verb, target, status)


class Source:
    """Where address and credentials come from: a context of a kubeconfig, or the service account of the pod.

    `environment` is a process environment; `KUBECONFIG` or a context on the command line comes first, then the pod's
    own service account, then `~/.kube/config`.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        context: str | None = None,
        service_account: Path = SERVICE_ACCOUNT,
        home: Path | None = None,
    ) -> None:
        self._context = context
        self._service_account = service_account
        default = (home or Path.home()) / ".kube" / "config"
        named = environment.get("KUBECONFIG", "")
        in_pod = "KUBERNETES_SERVICE_HOST" in environment and (service_account / "token").is_file()
        self._paths = named or str(default)
        self.in_pod = in_pod and not named and not context
        self.namespace: str | None = None

    async def load(self, configuration: client.Configuration) -> None:
        """Fill in address and credentials as they are now. Raises `errors.Unavailable`."""
        loaders: Any = config  # without types
        try:
            if self.in_pod:
                loaders.load_incluster_config(client_configuration=configuration)
                self.namespace = await asyncio.to_thread(_first_line, self._service_account / "namespace")
            else:
                await self._load_kubeconfig(configuration)
        except (config.ConfigException, yaml.YAMLError, OSError, LookupError, TypeError, ValueError) as error:
            raise errors.Unavailable(self._problem(error)) from error

    async def _load_kubeconfig(self, configuration: client.Configuration) -> None:
        loaders: Any = config  # without types
        loader = await loaders.load_kube_config(
            config_file=self._paths,
            context=self._context,
            client_configuration=configuration,
            persist_config=False,
        )
        self.namespace = loader.current_context["context"].get("namespace")
        if getattr(configuration, "tls_server_name", None):
            raise ValueError(
                "tls-server-name is not supported; give the cluster's server by the name in its certificate"
            )

    def _problem(self, error: Exception) -> str:
        if self.in_pod:
            return f"the pod's service account in {self._service_account} cannot be used: {error}"
        if not any(Path(path).expanduser().is_file() for path in self._paths.split(":") if path):
            return (
                f"there is no kubeconfig at {self._paths}. Set KUBECONFIG to one, or run `tidemark up` if there is no "
                "cluster to talk to"
            )
        context = f", context {self._context!r}" if self._context else ""
        why = yaml_words.sentence(error).rstrip(".") if isinstance(error, yaml.YAMLError) else error
        return f"the kubeconfig {self._paths}{context} cannot be used: {why}"


def _verb(method: str, named: bool, watch: bool) -> str:
    if method == "GET":
        return "watch" if watch else "get" if named else "list"
    return _VERBS.get(method, method.lower())


def _proxy(server: str) -> str | None:
    """Of the process environment (`HTTPS_PROXY`, `NO_PROXY`), for this address."""
    parts = parse.urlsplit(server)
    if not parts.hostname or urllib_request.proxy_bypass(parts.hostname):
        return None
    return urllib_request.getproxies().get(parts.scheme)


def _query(query: Mapping[str, str] | None) -> str:
    return f"?{parse.urlencode(query)}" if query else ""


def _first_line(path: Path) -> str | None:
    return path.read_text(encoding="utf-8").strip() or None
