"""The sockets between the first rank and the others: ZeroMQ over files in a private folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from tidemark_runtime import errors
from tidemark_runtime.worker import rank_messages

_LOOK_MILLISECONDS = 100
"""While the first rank waits for an answer, it looks so often whether those it waits for still live."""
_LAST_WORDS_SECONDS = 1.0
"""What a process that has ended said before may still lie in the socket."""


_AS_HERE: tuple[type[errors.TidemarkError], ...] = (
    errors.ModelNotFound,
    errors.UnsupportedModel,
    errors.CorruptModel,
    errors.CapacityError,
    errors.SelfTestFailed,
)
"""What another rank says of the model or the machine while it loads, raised as if it were said here."""


class FirstLink:
    """The first rank's end. For one thread at a time."""

    def __init__(self, folder: Path, size: int, check: Callable[[], None]) -> None:
        """`check`: raises RankLost where another rank's process has ended."""
        self._check = check
        self._context = zmq.Context()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(rank_messages.FromRank)
        self._from = self._context.socket(zmq.PULL)
        self._to = [self._context.socket(zmq.PUSH) for _ in range(1, size)]
        for socket, endpoint in (
            (self._from, _from_ranks(folder)),
            *zip(self._to, _to_ranks(folder, size), strict=True),
        ):
            socket.set_hwm(0)
            socket.bind(endpoint)

    @property
    def num_others(self) -> int:
        return len(self._to)

    def send(self, message: rank_messages.ToRank) -> None:
        """To all others; written once. Never waits."""
        frame = self._encoder.encode(message)
        for socket in self._to:
            socket.send(frame, zmq.NOBLOCK)

    def receive(self, seconds: float = float("inf")) -> rank_messages.FromRank | None:
        """The next answer of any rank, or None after so long.

        Raises last words, and what `check` raises where a process has ended without any.
        """
        until = time.monotonic() + seconds
        while True:
            if self._from.poll(_LOOK_MILLISECONDS if seconds else 0):
                return self._take()
            if time.monotonic() >= until:
                return None
            try:
                self._check()
            except errors.RankLost:
                if self._from.poll(int(_LAST_WORDS_SECONDS * 1000)):
                    return self._take()
                raise

    def close(self) -> None:
        for socket in (self._from, *self._to):
            socket.close(linger=1000)
        self._context.term()

    def _take(self) -> rank_messages.FromRank:
        message = self._decoder.decode(self._from.recv())
        if isinstance(message, rank_messages.Failed):
            kind = next((each for each in _AS_HERE if each.__name__ == message.kind), errors.RankLost)
            raise kind(f"rank {message.rank}: {message.message}")
        return message


class OtherLink:
    """The end of `rank`, which is not the first."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._context = zmq.Context()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(rank_messages.ToRank)
        self._from, self._to = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        for socket, endpoint in ((self._from, _to_rank(folder, rank)), (self._to, _from_ranks(folder))):
            socket.set_hwm(0)
            socket.connect(endpoint)

    def receive(self) -> rank_messages.ToRank:
        """The next message; waits for it, for ever: a first rank that has ended ends this process."""
        return self._decoder.decode(self._from.recv())

    def send(self, message: rank_messages.FromRank) -> None:
        self._to.send(self._encoder.encode(message))

    def close(self) -> None:
        """What was sent is delivered first."""
        self._from.close(linger=0)
        self._to.close(linger=2000)
        self._context.term()


def _to_ranks(folder: Path, size: int) -> list[str]:
    return [_to_rank(folder, rank) for rank in range(1, size)]


def _to_rank(folder: Path, rank: int) -> str:
    return f"ipc://{folder}/to-{rank}"


def _from_ranks(folder: Path) -> str:
    return f"ipc://{folder}/from"
