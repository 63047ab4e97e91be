"""Reads what the screen shows of one service from an API server: only objects that a user may read, never a Secret.

Only the service itself is needed. Whatever else cannot be read is left out, with the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib import parse

import aiohttp
import msgspec

from tidemark_operator import errors, names
from tidemark_operator.cluster import engines as engines_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.cluster.kubernetes import kinds
from tidemark_runtime.contract import http
from tidemark_runtime.contract import status as contract

Value = TypeVar("Value")

_MAX_ENGINES = 20
"""Engines that are asked; a look must not take a minute."""
_AT_ONCE = 8
_ENGINE_SECONDS = 3.0
_MAX_ANSWER_BYTES = 1 << 20
_MAX_EVENT_SUBJECTS = 16
"""Objects whose events are asked for: the service, its Deployment, and pods."""
_EVENT_LIMIT = 50
"""Events of one object."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What belongs to a service, in Kubernetes' own shapes."""

    deployment: interface.Object | None = None
    config_map: interface.Object | None = None
    """The one that new pods read."""
    pods: Sequence[interface.Object] = ()
    revisions: Sequence[interface.Object] = ()
    events: Sequence[interface.Object] = ()
    """Of the core group, in no order."""
    engines: Mapping[str, contract.EngineStatus] = field(default_factory=dict)
    """By pod."""
    not_asked: Mapping[str, str] = field(default_factory=dict)
    """Pod -> why its engine was not asked, or gave no answer."""
    not_read: Sequence[str] = ()
    """What could not be read, with the reason."""


class Reader:
    """Every method raises `errors.ClusterError`."""

    def __init__(self, connection: connection_.Connection, api: api_.Api) -> None:
        self._connection = connection
        self._api = api

    async def services(self, namespace: str) -> list[interface.Object]:
        """By namespace and name; `namespace` empty: of the whole cluster."""
        found = await self._list(names.KIND, namespace, None)
        return sorted(found, key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))

    async def service(self, key: interface.Key) -> interface.Object:
        """Raises `errors.NotFound` with the names that there are."""
        body = await self._api.get(key)
        if body is not None:
            return _decode(body)
        known = [item["metadata"]["name"] for item in await self.services(key.namespace)]
        there = f"There are: {', '.join(known)}" if known else "There is none in this namespace; -A lists all"
        raise errors.NotFound(f"no InferenceService {key.name!r} in namespace {key.namespace!r}. {there}")

    async def objects(self, service: interface.Object) -> Around:
        """The objects that say how it should be and how its pods are; no history, no events, no engine is asked."""
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        not_read: list[str] = []
        deployment, pods = await asyncio.gather(
            _or(not_read, "Deployment", self._get("Deployment", namespace, names.deployment(name)), None),
            _or(not_read, "pods", self._list("Pod", namespace, f"{names.SERVICE_LABEL}={name}"), []),
        )
        config_map = await _or(not_read, "ConfigMap", self._config_map(name, namespace, deployment), None)
        return Around(deployment=deployment, config_map=config_map, pods=pods, not_read=sorted(not_read))

    async def around(self, service: interface.Object) -> Around:
        """Everything else that the screen shows."""
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        selector = f"{names.SERVICE_LABEL}={name}"
        not_read: list[str] = []
        deployment, pods, revisions = await asyncio.gather(
            _or(not_read, "Deployment", self._get("Deployment", namespace, names.deployment(name)), None),
            _or(not_read, "pods", self._list("Pod", namespace, selector), []),
            _or(not_read, "revisions", self._list("ControllerRevision", namespace, selector), []),
        )
        config_map, events, (engines, not_asked) = await asyncio.gather(
            _or(not_read, "ConfigMap", self._config_map(name, namespace, deployment), None),
            _or(not_read, "events", self._events(namespace, name, pods), []),
            self._engines(pods),
        )
        return Around(
            deployment=deployment,
            config_map=config_map,
            pods=pods,
            revisions=revisions,
            events=events,
            engines=engines,
            not_asked=not_asked,
            not_read=sorted(not_read, key=lambda text: _ORDER.index(text.partition(" ")[0])),
        )

    async def _get(self, kind: str, namespace: str, name: str) -> interface.Object | None:
        body = await self._api.get(interface.Key(kind, namespace, name))
        return None if body is None else _decode(body)

    async def _list(self, kind: str, namespace: str, selector: str | None) -> list[interface.Object]:
        """As it is now, not as it was a moment ago. Raises `errors.NotFound` where the kind is not known."""
        found: list[interface.Object] = []
        after = ""
        while True:
            try:
                page = await self._api.page(kinds.TABLE[kind], namespace, after=after, selector=selector, cached=False)
            except errors.NotFound as error:
                raise errors.NotFound(_unknown_kind(kind)) from error
            found += map(_decode, page.items)
            if not page.next:
                return found
            after = page.next

    async def _config_map(
        self, name: str, namespace: str, deployment: interface.Object | None
    ) -> interface.Object | None:
        restart_hash = annotation(_template(deployment), names.RESTART_HASH_ANNOTATION)
        if not restart_hash:
            return None
        return await self._get("ConfigMap", namespace, names.config_map(name, restart_hash))

    async def _events(self, namespace: str, name: str, pods: Sequence[interface.Object]) -> list[interface.Object]:
        """Of the service, its Deployment and Service (all have its name), its pods and what makes them."""
        makers = {owner["name"] for pod in pods for owner in pod["metadata"].get("ownerReferences") or ()}
        subjects = [name, *sorted(makers), *(pod["metadata"]["name"] for pod in _worst_first(pods))]
        subjects = list(dict.fromkeys(subjects))[:_MAX_EVENT_SUBJECTS]
        lists = await asyncio.gather(*(self._events_of(namespace, subject) for subject in subjects))
        return [event for events in lists for event in events]

    async def _events_of(self, namespace: str, subject: str) -> list[interface.Object]:
        query = {"fieldSelector": f"involvedObject.name={subject}", "limit": str(_EVENT_LIMIT)}
        path = f"/api/v1/namespaces/{parse.quote(namespace)}/events"  # the older group: every role `view` may read it
        status, body = await self._connection.request("GET", path, query=query)
        if status != 200:
            raise _error(status, body, f"list events in namespace {namespace}")
        return list(_decode(body).get("items") or ())

    async def _engines(
        self, pods: Sequence[interface.Object]
    ) -> tuple[dict[str, contract.EngineStatus], dict[str, str]]:
        """Answers by pod, and reasons by pod. Pods whose engine does not run have neither: their state says it."""
        running = [pod for pod in _worst_first(pods) if _runs(pod)]
        turns = asyncio.Semaphore(_AT_ONCE)
        # A session of its own, because it follows no redirect: what a pod answers must not send our credentials away.
        async with self._connection.watching_session(_ignore) as session:

            async def ask(pod: interface.Object) -> contract.EngineStatus | str:
                async with turns:
                    return await self._engine(session, pod)

            answers = await asyncio.gather(*(ask(pod) for pod in running[:_MAX_ENGINES]))
        await asyncio.sleep(0)  # closed connections end in the next turn of the loop
        answered, not_asked = {}, {}
        for pod, answer in zip(running, answers, strict=False):
            if isinstance(answer, str):
                not_asked[pod["metadata"]["name"]] = answer
            else:
                answered[pod["metadata"]["name"]] = answer
        for pod in running[_MAX_ENGINES:]:
            not_asked[pod["metadata"]["name"]] = f"not more than {_MAX_ENGINES} engines are asked"
        return answered, not_asked

    async def _engine(self, session: aiohttp.ClientSession, pod: interface.Object) -> contract.EngineStatus | str:
        """Its `/status` through the API server, or why there is none."""
        namespace = pod["metadata"]["namespace"]
        url = self._connection.server + proxy_path(pod)
        timeout = aiohttp.ClientTimeout(total=_ENGINE_SECONDS)
        try:
            async with session.get(url, timeout=timeout, allow_redirects=False) as response:
                body = await _read(response)
        except TimeoutError:
            return f"no answer through the API server within {_ENGINE_SECONDS:.0f} s"
        except (aiohttp.ClientError, OSError) as error:
            return f"no answer through the API server: {error}"
        if response.status == 403:
            return f"not permitted: get pods/proxy in namespace {namespace}"
        if response.status != 200:
            return f"the API server could not ask it: {_message(body) or f'HTTP {response.status}'}"
        try:
            return msgspec.json.decode(body, type=contract.EngineStatus)
        except msgspec.DecodeError as error:
            return f"its answer is no status of an engine: {error}"


def container_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The status of the engine's container; empty before there is one."""
    statuses: Sequence[dict[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return next((item for item in statuses if item.get("name") == names.CONTAINER), statuses[0])


def annotation(owner: Mapping[str, Any] | None, key: str) -> str:
    """Of an object or a pod template; empty where it has none."""
    metadata = (owner or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(key, ""))


def proxy_path(pod: Mapping[str, Any], path: str = http.STATUS_PATH) -> str:
    """Where the API server passes `GET` of a path on to the engine of a pod."""
    scheme, port = listens(pod)
    target = f"{scheme}:{pod['metadata']['name']}:{port}"
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{target}/proxy{path}"


def listens(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Scheme and port of the engine of a pod."""
    containers = pod["spec"].get("containers") or [{}]
    container = next((item for item in containers if item.get("name") == names.CONTAINER), containers[0])
    ports = container.get("ports") or ()
    port = next((item["containerPort"] for item in ports if item.get("name") == names.PORT_NAME), http.CONTAINER_PORT)
    return engines_.scheme_of(container), int(port)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, or its beginning."""
    body = b""
    while len(body) < _MAX_ANSWER_BYTES and (chunk := await response.content.readany()):
        body += chunk
    return body


_ORDER = ("Deployment", "pods", "revisions", "ConfigMap", "events")
"""In which what could not be read is told: questions are asked together and answered in any order."""


async def _or(not_read: list[str], what: str, asked: Awaitable[Value], otherwise: Value) -> Value:
    try:
        return await asked
    except errors.ClusterError as error:
        not_read.append(f"{what} (not asked: {error})")
        return otherwise


def _template(deployment: interface.Object | None) -> interface.Object | None:
    return deployment["spec"]["template"] if deployment is not None else None


def _runs(pod: Mapping[str, Any]) -> bool:
    return "running" in (container_of(pod).get("state") or {})


def _worst_first(pods: Sequence[interface.Object]) -> list[interface.Object]:
    return sorted(pods, key=lambda pod: (bool(container_of(pod).get("ready")), str(pod["metadata"]["name"])))


def _unknown_kind(kind: str) -> str:
    if kind != names.KIND:
        return f"the API server does not know {kinds.TABLE[kind].plural}"
    return (
        f"the cluster does not know {names.PLURAL}.{names.GROUP}: Tidemark is not installed there. Install its chart, "
        f"or `kubectl apply -f crds/{names.GROUP}_{names.PLURAL}.yaml`; or ask another cluster with --context"
    )


def _error(status: int, body: bytes, what: str) -> errors.ClusterError:
    words = _message(body) or f"HTTP {status}"
    if status == 403:
        return errors.Refused(f"not permitted: {what}. {words}")
    return errors.Unavailable(f"{what}: {words}")


def _message(body: bytes) -> str:
    try:
        return str(_decode(body).get("message", ""))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body[:200].decode(errors="replace").strip()


def _ignore(_verb: str, _target: kinds.Target, _status: int) -> None:
    """An observer of requests that looks at none."""
