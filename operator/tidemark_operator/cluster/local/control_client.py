"""The other end of `control`, for `tidemark apply` and `tidemark status`. Imports little, so they answer at once."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_operator import errors
from tidemark_operator.cluster.local import files

_PATH = "/v1/service"
_TIMEOUT_SECONDS = 10.0


class NotRunning(errors.OperatorError):
    """No `tidemark up` runs the service here."""


def overview(name: str, root: Path) -> dict[str, Any]:
    """Everything about the service. Raises `NotRunning`, or `Unavailable` when `tidemark up` does not answer."""
    return _ask(name, root, "GET", "", _TIMEOUT_SECONDS)


def submit(name: str, root: Path, document: Mapping[str, Any], timeout_seconds: float) -> dict[str, Any]:
    """Hand over a manifest. Raises `NotRunning`, `Unavailable`, or `Refused` with the reason `tidemark up` gave."""
    return _ask(name, root, "PUT", json.dumps(document), timeout_seconds)


def _ask(name: str, root: Path, method: str, body: str, timeout_seconds: float) -> dict[str, Any]:
    folder = files.ServiceFolder(root, name)
    try:
        code, answer = _exchange(folder.socket, method, body.encode(), timeout_seconds)
    except (FileNotFoundError, NotADirectoryError, ConnectionError) as error:
        raise NotRunning(_not_running(name, root, folder)) from error
    except PermissionError as error:
        raise errors.Refused(f"{folder.socket} belongs to another user; run this command as that user") from error
    except (OSError, ValueError) as error:
        raise errors.Unavailable(
            f"`tidemark up` of {name!r} (process {folder.holder()}) does not answer: {error}. Stop and start it again"
        ) from error
    if code != 200:
        raise errors.Refused(str(answer.get("message", answer)))
    return answer


def _exchange(path: Path, method: str, body: bytes, timeout_seconds: float) -> tuple[int, dict[str, Any]]:
    """One request, HTTP/1.0: the answer ends with the connection. `http.client` would double our start."""
    head = f"{method} {_PATH} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(os.fspath(path))
        connection.sendall(head.encode() + body)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    if not received:
        raise ConnectionResetError("closed without an answer")
    answer_head, separator, content = received.partition(b"\r\n\r\n")
    if not separator:
        raise ValueError("the answer is cut off")
    return int(answer_head.split(b" ", 2)[1]), json.loads(content)


def _not_running(name: str, root: Path, folder: files.ServiceFolder) -> str:
    pid = folder.holder()
    if pid is not None:
        return f"`tidemark up` of {name!r} (process {pid}) is just starting or stopping. Try again in a moment"
    others = files.running(root)
    known = f"Running now: {', '.join(others)}" if others else "Nothing runs here now"
    return f"no `tidemark up` runs {name!r} on this machine. {known}; start it with `tidemark up FILE`"
