"""Our own watches: lines of any length, bookmarks, and ends that say why."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from tidemark_operator import errors, settings
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

Made = Callable[..., dict[str, Any]]
RULE = kinds.TABLE["PrometheusRule"]


class _Response:
    def __init__(self, status: int, body: bytes, chunk_bytes: int) -> None:
        self.status = status
        self.content = self
        self._body = body
        self._chunk_bytes = chunk_bytes

    async def read(self) -> bytes:
        return self._body

    async def iter_any(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._chunk_bytes):
            yield self._body[start : start + self._chunk_bytes]


class Streaming:
    """A connection with one answer that goes on."""

    def __init__(self, body: bytes, status: int = 200, chunk_bytes: int = 10_000) -> None:
        self._response = _Response(status, body, chunk_bytes)
        self.asked: list[tuple[str, dict[str, str]]] = []

    @contextlib.asynccontextmanager
    async def streaming(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[_Response]:
        self.asked.append((path, dict(query)))
        yield self._response

    async def request(self, method: str, path: str) -> tuple[int, bytes]:
        return self._response.status, await self._response.read()


def api(connection: Streaming) -> api_.Api:
    return api_.Api(connection, settings.KubernetesSettings())  # type: ignore[arg-type]


async def told(connection: Streaming) -> list[tuple[str, Any]]:
    changes = api(connection).watch(RULE, "team", "7")
    return [(change.type, json.loads(bytes(change.object))) async for change in changes]


def line(type_: str, document: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": document}).encode() + b"\n"


@pytest.mark.parametrize("chunk_bytes", [5_000, 100_000, 10_000_000])
async def test_lines_of_any_length_however_they_arrive(made: Made, chunk_bytes: int) -> None:
    large = made("PrometheusRule", "large", 9, spec={"text": "x" * 300_000})
    small = made("PrometheusRule", "small", 8)
    body = line("ADDED", small) + line("MODIFIED", large) + line("BOOKMARK", {"metadata": {"resourceVersion": "10"}})
    found = await told(Streaming(body, chunk_bytes=chunk_bytes))
    assert [type_ for type_, _ in found] == ["ADDED", "MODIFIED", "BOOKMARK"]
    assert [document for _, document in found][:2] == [small, large]


async def test_only_ours_are_asked_for_from_where_the_list_ended() -> None:
    connection = Streaming(b"")
    assert await told(connection) == []
    ((path, query),) = connection.asked
    assert path == "/apis/monitoring.coreos.com/v1/namespaces/team/prometheusrules"
    assert query["resourceVersion"] == "7"
    assert query["labelSelector"] == RULE.selector
    assert query["allowWatchBookmarks"] == "true"


async def test_a_line_that_tells_of_an_error_ends_it() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    with pytest.raises(errors.Conflict, match="too old"):
        await told(Streaming(line("ERROR", gone)))


@pytest.mark.parametrize(
    ("status", "kind"), [(404, errors.NotFound), (410, errors.Conflict), (503, errors.Unavailable)]
)
async def test_a_watch_that_is_refused_says_why(status: int, kind: type[errors.ClusterError]) -> None:
    with pytest.raises(kind):
        await told(Streaming(json.dumps({"message": "no"}).encode(), status))


async def test_which_kinds_a_group_has() -> None:
    listed = {"resources": [{"name": "podmonitors"}, {"name": "podmonitors/status"}]}
    path = "/apis/monitoring.coreos.com/v1"
    found = await api(Streaming(json.dumps(listed).encode())).resources(path)
    assert found == {"podmonitors", "podmonitors/status"}
    assert await api(Streaming(b"404 page not found", 404)).resources(path) == frozenset()
    with pytest.raises(errors.Unavailable):
        await api(Streaming(b"", 503)).resources(path)
