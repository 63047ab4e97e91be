"""Facts of a cluster: its services, their pods and engines, and the operator. Only reads; never a Secret.

Inside the cluster engines are asked directly, as the operator does: a network policy of a service lets the operator's
namespace in, and no right to pass requests through the API server is needed. From outside they are asked through it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx
import msgspec

from tidemark_operator import errors, names
from tidemark_operator.cluster import engines as engines_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.cluster.kubernetes import kinds
from tidemark_operator.commands import inspect_engines, inspect_tls, profile_reader, status_overview, status_reader
from tidemark_operator.inspection import facts
from tidemark_operator.inspection.text import NOTHING, Text, same
from tidemark_runtime.contract import http
from tidemark_runtime.contract import status as contract

_AT_ONCE = 8
_SECONDS = 5.0
_MOST_BYTES = 8 << 20
_OPERATOR = "app.kubernetes.io/part-of=tidemark,app.kubernetes.io/component=operator"


@dataclass(frozen=True, slots=True)
class Found:
    """One look at a cluster."""

    services: Sequence[facts.Service]
    operators: Sequence[facts.Operator]
    why_no_operators: Text


class NoAnswer(errors.ClusterError):
    """An engine or an operator said nothing that is of use."""


class Reader:
    """Every method raises `errors.ClusterError`."""

    def __init__(
        self, connection: connection_.Connection, api: api_.Api, kubectl: str, client: httpx.AsyncClient | None
    ) -> None:
        """`client`: asks pods directly, without verifying certificates (a pod is addressed by its IP, which none
        names); None: through the API server. `kubectl`: how it is called for this cluster."""
        self._reader = status_reader.Reader(connection, api)
        self._connection = connection
        self._api = api
        self._kubectl = kubectl
        self._client = client
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    async def read(self, namespaces: Sequence[str], name: str, operator_namespace: str) -> Found:
        """`namespaces`: an empty one means all; `name`: one service of the first of them."""
        if name:
            documents = [await self._reader.service(interface.Key(names.KIND, namespaces[0], name))]
        else:
            lists = [await self._reader.services(namespace) for namespace in namespaces]
            documents = [item for found in lists for item in found]
        # A session of its own, because it follows no redirect: what a pod answers must not send our credentials away.
        async with self._connection.watching_session(_ignore) as self._session:
            services = await asyncio.gather(*(self._service(document) for document in documents))
            operators, why = await self._operators(operator_namespace)
        await asyncio.sleep(0)  # closed connections end in the next turn of the loop
        return Found(services, operators, why)

    async def _service(self, document: interface.Object) -> facts.Service:
        around = await self._reader.objects(document)
        engines = await asyncio.gather(*(self._engine(pod) for pod in around.pods))
        by_pod = {engine.name: engine.status for engine in engines if engine.status is not None}
        known = status_reader.Around(
            deployment=around.deployment,
            config_map=around.config_map,
            pods=around.pods,
            engines=by_pod,
            not_asked={engine.name: engine.why_not for engine in engines if engine.status is None},
            not_read=around.not_read,
        )
        overview = status_overview.of(document, known, self._kubectl)
        pods = {pod["name"]: pod for pod in overview["pods"]}
        namespace, name = overview["namespace"], overview["name"]
        return facts.Service(
            origin=facts.Origin.CLUSTER,
            namespace=namespace,
            name=name,
            url=overview["url"] or "",
            spec=overview["spec"],
            status=overview["status"],
            generation=overview["generation"],
            created=overview["createdAt"] or "",
            paused=overview["paused"],
            wanted_hash=overview["configuration"]["hash"] or "",
            engines=[
                facts.Engine(
                    name=engine.name,
                    status=engine.status,
                    scrape=engine.scrape,
                    why_not=engine.why_not,
                    pod=pods[engine.name],
                )
                for engine in engines
            ],
            certificate=await self._certificate(around.pods),
            not_read=around.not_read,
            labels=(namespace, name),
        )

    async def _engine(self, pod: Mapping[str, Any]) -> facts.Engine:
        name = pod["metadata"]["name"]
        if "running" not in (status_reader.container_of(pod).get("state") or {}):
            return facts.Engine(name=name, why_not="its container does not run")
        try:
            body = await self._get(pod, http.STATUS_PATH)
            status = msgspec.json.decode(body, type=contract.EngineStatus)
        except errors.ClusterError as error:
            return facts.Engine(name=name, why_not=str(error))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return facts.Engine(name=name, why_not=f"its answer is no status of an engine: {error}")
        try:
            samples = profile_reader.parsed((await self._get(pod, http.METRICS_PATH)).decode(errors="replace"))
        except (errors.ClusterError, profile_reader.NotAnEngine) as error:
            return facts.Engine(name=name, status=status, why_not=str(error))
        return facts.Engine(name=name, status=status, scrape=inspect_engines.scrape(samples))

    async def _get(self, pod: Mapping[str, Any], path: str) -> bytes:
        """The body of a 200. Raises `NoAnswer`."""
        async with self._turns:
            try:
                ask = self._through_server if self._client is None else self._direct
                status, body = await ask(pod, path)
            except TimeoutError as error:
                raise NoAnswer(f"no answer to {path} within {_SECONDS:.0f} s") from error
            except (aiohttp.ClientError, httpx.HTTPError, OSError, errors.Unavailable) as error:
                raise NoAnswer(f"no answer to {path}: {error}") from error
        if status == 403 and self._client is None:
            raise NoAnswer(f"not permitted: get pods/proxy in namespace {pod['metadata']['namespace']}")
        if status != 200 or len(body) > _MOST_BYTES:
            raise NoAnswer(f"HTTP {status} for {path}: {body[:200].decode(errors='replace').strip()}")
        return body

    async def _through_server(self, pod: Mapping[str, Any], path: str) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("it is asked before the session is open")
        url = self._connection.server + status_reader.proxy_path(pod, path)
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
            return response.status, await response.read()

    async def _direct(self, pod: Mapping[str, Any], path: str) -> tuple[int, bytes]:
        if self._client is None:
            raise RuntimeError("there is no client to ask with")
        async with asyncio.timeout(_SECONDS):
            answer = await self._client.get(_address(pod).url(path))
        return answer.status_code, answer.content

    async def _certificate(self, pods: Sequence[Mapping[str, Any]]) -> facts.Certificate | None:
        """Of the first pod that speaks HTTPS, where pods can be reached; all of them mount the same Secret."""
        if self._client is None:
            return None
        for pod in pods:
            address = _address(pod)
            if (
                address.scheme == "https"
                and address.host
                and "running" in (status_reader.container_of(pod).get("state") or {})
            ):
                return await asyncio.to_thread(inspect_tls.shown_by, address.host, address.port)
        return None

    async def _operators(self, namespace: str) -> tuple[list[facts.Operator], Text]:
        try:
            page = await self._api.page(kinds.TABLE["Pod"], namespace, selector=_OPERATOR, cached=False)
        except errors.ClusterError as error:
            return [], same(f"its pods could not be listed: {error}")
        pods = [msgspec.json.decode(item, type=dict[str, Any]) for item in page.items]
        if not pods:
            where = f"in namespace {namespace}" if namespace else "in any namespace"
            return [], Text(
                f"no pod of an operator {where}", f"没有找到 operator 的 Pod（{namespace or '所有命名空间'}）"
            )
        return list(await asyncio.gather(*map(self._operator, pods))), NOTHING

    async def _operator(self, pod: Mapping[str, Any]) -> facts.Operator:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        try:
            samples = profile_reader.parsed((await self._get(pod, http.METRICS_PATH)).decode(errors="replace"))
        except (errors.ClusterError, profile_reader.NotAnEngine) as error:
            return facts.Operator(name=name, why_not=str(error))
        ready = ""
        try:
            await self._get(pod, http.READY_PATH)
        except NoAnswer as error:
            ready = str(error)
        return facts.Operator(name=name, scrape=inspect_engines.scrape(samples), ready=ready)


def _ignore(_verb: str, _target: kinds.Target, _status: int) -> None:
    """An observer of requests that looks at none."""


def _address(pod: Mapping[str, Any]) -> engines_.Address:
    scheme, port = status_reader.listens(pod)
    return engines_.Address(str((pod.get("status") or {}).get("podIP") or ""), port, scheme)
