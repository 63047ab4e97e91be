"""The control socket: who may use it, and what goes wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tidemark_operator import errors
from tidemark_operator.cluster.local import control, control_client, files


@pytest.fixture
async def root(workplace: Any) -> AsyncIterator[Path]:
    """A control socket that answers for the service `base`."""

    async def overview() -> dict[str, Any]:
        return {"name": "base", "text": "Gezeiten, 潮汐"}

    async def submit(document: dict[str, Any]) -> dict[str, Any]:
        if "spec" not in document:
            raise errors.Refused("spec: got nothing, expected a mapping")
        return {"result": "created"}

    folder = files.ServiceFolder(workplace.state, "base")
    folder.acquire()
    task = asyncio.ensure_future(control.serve(folder.socket, control.application(overview, submit)))
    while not folder.socket.exists():
        await asyncio.sleep(0.01)
    yield workplace.state
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    folder.release()


async def test_only_this_user_may_connect(root: Path) -> None:
    assert (root / "base" / "control.sock").stat().st_mode & 0o777 == 0o600


async def test_both_ways(root: Path) -> None:
    found = await asyncio.to_thread(control_client.overview, "base", root)
    assert found == {"name": "base", "text": "Gezeiten, 潮汐"}
    answer = await asyncio.to_thread(control_client.submit, "base", root, {"spec": {"x": "y" * 200_000}}, 30.0)
    assert answer == {"result": "created"}


async def test_a_refusal_arrives_in_its_own_words(root: Path) -> None:
    with pytest.raises(errors.Refused, match=r"^spec: got nothing, expected a mapping$"):
        await asyncio.to_thread(control_client.submit, "base", root, {}, 30.0)


async def test_another_name_is_told_what_runs(root: Path) -> None:
    with pytest.raises(control_client.NotRunning, match=r"no `tidemark up` runs 'other'.*Running now: base"):
        await asyncio.to_thread(control_client.overview, "other", root)


def test_one_that_hangs_is_told(workplace: Any) -> None:
    folder = files.ServiceFolder(workplace.state, "base")
    folder.acquire()
    with (
        control.bind(folder.socket),
        pytest.raises(errors.Unavailable, match=r"'base' \(process \d+\) does not answer"),
    ):
        control_client.submit("base", workplace.state, {}, 0.1)
    folder.release()


def test_one_that_is_starting_is_told(workplace: Any) -> None:
    folder = files.ServiceFolder(workplace.state, "base")
    folder.acquire()
    with pytest.raises(control_client.NotRunning, match=r"just starting or stopping"):
        control_client.overview("base", workplace.state)
    folder.release()


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (b"", control_client.NotRunning, "just starting or stopping"),
        (b"HTTP/1.1 200 OK\r\nContent-", errors.Unavailable, "the answer is cut off"),
        (b"HTTP/1.1 200 OK\r\n\r\n{", errors.Unavailable, "does not answer"),
    ],
)
def test_one_that_ends_in_the_middle_is_told(
    workplace: Any, reply: bytes, error: type[Exception], message: str
) -> None:
    folder = files.ServiceFolder(workplace.state, "base")
    folder.acquire()
    listener = control.bind(folder.socket)

    def answer() -> None:
        connection, _ = listener.accept()
        connection.recv(1000)
        connection.sendall(reply)
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(error, match=message):
        control_client.overview("base", workplace.state)
    thread.join()
    listener.close()
    folder.release()
