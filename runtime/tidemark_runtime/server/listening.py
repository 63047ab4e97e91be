"""The listening socket, taken before the model is loaded: a port in use is said at once, probes are answered early."""

from __future__ import annotations

import errno
import socket

from tidemark_runtime import errors

BACKLOG = 2048
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})


class ListenError(errors.TidemarkError):
    """The address cannot be listened on; the message names host, port and a remedy."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises `ListenError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ListenError(f"server.host: {host!r} is no address of this machine ({error.strerror}). Set --host.") from (
            error
        )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(_explain(host, port, error)) from error
    listener.setblocking(False)
    return listener


def url(listener: socket.socket, scheme: str = "http") -> str:
    """Where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    if host in _WILDCARDS:
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"server.port: port {port} on {host} is in use by another process. "
            f"Stop that one, take another with --port, or --port 0 for any free one."
        )
    if error.errno == errno.EACCES:
        return f"server.port: this user may not listen on port {port}. Take one above 1023 with --port."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"server.host: {host!r} is no address of this machine. Set --host, for example to 127.0.0.1."
    return f"server.port: cannot listen on {host} port {port}: {error.strerror}."
