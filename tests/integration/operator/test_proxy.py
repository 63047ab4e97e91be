"""A Service's port, over loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import proxy, store

KEY = interface.Key("Service", "default", "s")


class Backend:
    """Answers every connection with its name, then echoes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left = asyncio.Event()
        self.port = 0

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.name.encode())
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        self.left.set()
        writer.close()


def pod(name: str, port: int, ready: bool = True) -> dict[str, Any]:
    container = {"name": "engine", "ports": [{"name": "http", "containerPort": 8000}]}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "s"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def put(objects: store.Store, name: str, port: int, ready: bool = True) -> None:
    objects.apply(pod(name, port), "m")
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"podIP": "127.0.0.1", "localPorts": {"8000": port}, "conditions": conditions}
    objects.patch_status(interface.Key("Pod", "default", name), status)


@pytest.fixture
def objects() -> store.Store:
    made = store.Store()
    spec = {"selector": {"app": "s"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
    metadata = {"name": "s", "namespace": "default"}
    made.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}, "m")
    return made


@pytest.fixture
async def opened(objects: store.Store) -> AsyncIterator[proxy.ServiceProxy]:
    made = proxy.ServiceProxy(objects, connect_seconds=5)
    made.service = KEY
    await made.open(0)
    yield made
    await made.close()


@pytest.fixture
async def backends() -> AsyncIterator[tuple[Backend, Backend]]:
    one, two = Backend("one"), Backend("two")
    servers = [await one.open(), await two.open()]
    yield one, two
    for server in servers:
        server.close()


async def hello(opened: proxy.ServiceProxy) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    name = (await reader.readexactly(3)).decode()
    writer.write(b"x" * 100_000)
    assert await reader.readexactly(100_000) == b"x" * 100_000
    writer.close()
    return name


async def test_connections_go_round(
    objects: store.Store, opened: proxy.ServiceProxy, backends: tuple[Backend, Backend]
) -> None:
    for backend in backends:
        put(objects, backend.name, backend.port)
    assert sorted([await hello(opened) for _ in range(4)]) == ["one", "one", "two", "two"]


async def test_only_ready_pods_get_traffic(
    objects: store.Store, opened: proxy.ServiceProxy, backends: tuple[Backend, Backend]
) -> None:
    one, two = backends
    put(objects, "one", one.port)
    put(objects, "two", two.port, ready=False)
    assert {await hello(opened) for _ in range(3)} == {"one"}
    put(objects, "two", two.port)
    objects.delete(interface.Key("Pod", "default", "one"))
    assert {await hello(opened) for _ in range(3)} == {"two"}


async def test_a_pod_that_does_not_answer_is_passed_over(
    objects: store.Store, opened: proxy.ServiceProxy, backends: tuple[Backend, Backend]
) -> None:
    one, two = backends
    put(objects, "one", one.port)
    refusing = await asyncio.start_server(two.serve, "127.0.0.1", 0)
    port = refusing.sockets[0].getsockname()[1]
    refusing.close()
    put(objects, "two", port)
    assert {await hello(opened) for _ in range(4)} == {"one"}


async def test_a_client_that_leaves_is_gone_for_the_pod_too(
    objects: store.Store, opened: proxy.ServiceProxy, backends: tuple[Backend, Backend]
) -> None:
    put(objects, "one", backends[0].port)
    _, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    writer.close()
    await asyncio.wait_for(backends[0].left.wait(), 30)


async def test_without_a_ready_pod_the_answer_is_503_in_openais_shape(opened: proxy.ServiceProxy) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    head, body = (await reader.read()).split(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 503 ")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["error"]["code"] == "no_ready_engine"


async def test_a_taken_port_is_named(objects: store.Store, opened: proxy.ServiceProxy) -> None:
    second = proxy.ServiceProxy(objects, connect_seconds=5)
    with pytest.raises(proxy.PortTaken, match=rf"port {opened.port} of 127\.0\.0\.1 is in use.*--port N"):
        await second.open(opened.port)
