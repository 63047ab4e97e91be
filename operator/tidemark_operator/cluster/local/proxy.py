"""Services become ports of 127.0.0.1 that stay the same while pods come and go."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools

from tidemark_operator import errors
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.local import pod_status, store, translate

_CHUNK = 65_536
_NO_POD = (
    b'{"error": {"message": "no engine is ready; `tidemark status` says why", "type": "server_error", '
    b'"code": "no_ready_engine", "param": null}}'
)
UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\n"
    b"Connection: close\r\nContent-Length: " + str(len(_NO_POD)).encode() + b"\r\n\r\n" + _NO_POD
)


class PortTaken(errors.ClusterError):
    """Somebody else listens on the Service's port."""

    def __init__(self, port: int) -> None:
        self.port = port
        super().__init__(
            f"port {port} of {translate.HOST} is in use by another process. "
            f"Stop that process, or choose another port with `tidemark up FILE --port N` (0 takes a free one)"
        )


class ServiceProxy:
    """One port: every connection goes to the next ready pod of `service`. Bytes pass through untouched, streams too."""

    def __init__(self, objects: store.Store, connect_seconds: float) -> None:
        self.service: interface.Key | None = None
        """Whose pods answer; None: nobody yet."""
        self._objects = objects
        self._connect_seconds = connect_seconds
        self._turn = itertools.count()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self, port: int) -> None:
        """Listen; port 0 takes a free one. Raises `PortTaken`, or `Refused` for a port we may not take."""
        try:
            self._server = await asyncio.start_server(self._accept, translate.HOST, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(port) from error
            raise errors.Refused(f"cannot listen on {translate.HOST}:{port}: {error.strerror}") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and drop what is still connected."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def backends(self) -> list[tuple[str, int]]:
        """Addresses of the ready pods that the Service selects."""
        service = self._objects.get(self.service) if self.service is not None else None
        if service is None:
            return []
        port = service["spec"]["ports"][0]
        pods = self._objects.list("Pod", service["metadata"]["namespace"], service["spec"]["selector"])
        found = []
        for pod in filter(pod_status.is_ready, pods):
            inside = translate.container_port(pod["spec"]["containers"][0], port.get("targetPort", port["port"]))
            where = pod_status.address(pod, inside) if inside is not None else None
            if where is not None:
                found.append(where)
        return found

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = await self._connect()
        if backend is None:
            await reader.read(_CHUNK)  # the client's request, so that closing does not reset its connection
            writer.write(UNAVAILABLE)
            await writer.drain()
            return
        there_reader, there_writer = backend
        try:
            await _both_ways(reader, writer, there_reader, there_writer)
        finally:
            there_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        addresses = self.backends()
        first = next(self._turn)
        for position in range(len(addresses)):
            host, port = addresses[(first + position) % len(addresses)]
            with contextlib.suppress(OSError, TimeoutError):
                return await asyncio.wait_for(asyncio.open_connection(host, port), self._connect_seconds)
        return None


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    there_reader: asyncio.StreamReader,
    there_writer: asyncio.StreamWriter,
) -> None:
    """Copy until the pod has ended its side. A client that leaves ends both at once: its pages must become free."""
    forth = asyncio.ensure_future(_copy(reader, there_writer))
    back = asyncio.ensure_future(_copy(there_reader, writer))
    try:
        await asyncio.wait({forth, back}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (forth, back):
            task.cancel()
        await asyncio.gather(forth, back, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()
