"""The sockets between the first rank and the others: ZeroMQ over files in a private folder.

Every message has a number, and the rank that said it. A plan that is lost, comes twice or is cut would leave ranks
waiting for each other in a step that not all of them compute; so whoever reads such a message says so and ends.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


_HEADER = struct.Struct("<IQ")
"""Before each message: the rank that says it, and how many it has said before."""


class _Numbered:
    """Writes and reads frames: the header, then the message as msgpack."""

    def __init__(self, kind: Any, rank: int) -> None:
        """`kind`: of messages that are read; `rank`: who writes."""
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._rank = rank
        self._num_written = 0
        self._num_read: dict[int, int] = {}

    def write(self, message: object) -> bytes:
        frame = _HEADER.pack(self._rank, self._num_written) + self._encoder.encode(message)
        self._num_written += 1
        return frame

    def read(self, frame: bytes) -> Any:
        """Raises RankLost for a frame that is cut, was read before, or has others missing before it."""
        if len(frame) < _HEADER.size:
            raise errors.RankLost(f"a message between ranks has {len(frame)} bytes: it was cut off")
        rank, number = _HEADER.unpack_from(frame)
        expected = self._num_read.get(rank, 0)
        if number != expected:
            what = "came twice" if number < expected else f"is here, but {number - expected} before it are missing"
            raise errors.RankLost(
                f"message {number} of rank {rank} {what}: ranks no longer know the same, and must end"
            )
        self._num_read[rank] = expected + 1
        try:
            return self._decoder.decode(memoryview(frame)[_HEADER.size :])
        except msgspec.DecodeError as error:
            raise errors.RankLost(
                f"message {number} of rank {rank} cannot be read, it was cut or is not ours: {error}"
            ) from error


class FirstLink:
    """The first rank's end. Any thread may send; one thread at a time receives."""

    def __init__(self, folder: Path, size: int, check: Callable[[], None]) -> None:
        """`check`: raises RankLost where another rank's process has ended."""
        self._check = check
        self._context = zmq.Context()
        self._frames = _Numbered(rank_messages.FromRank, 0)
        self._sending = threading.Lock()
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
        """To all others; written once. Does not wait for them to read it. Raises RankLost, which `check` says or this,
        where a rank has closed its end."""
        with self._sending:
            frame = self._frames.write(message)
            for socket in self._to:
                self._put(socket, frame)

    def receive(self, seconds: float = float("inf")) -> rank_messages.FromRank | None:
        """The next answer of any rank, or None after so long.

        Raises last words, RankLost for a message that is cut, lost or repeated, and what `check` raises where a process
        has ended without any.
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

    def _put(self, socket: zmq.Socket[bytes], frame: bytes) -> None:
        try:
            socket.send(frame, zmq.NOBLOCK)
        except zmq.Again as error:  # nobody is at the other end
            self._check()
            rank = self._to.index(socket) + 1
            raise errors.RankLost(f"rank {rank} takes no more messages: it ends") from error

    def _take(self) -> rank_messages.FromRank:
        message: rank_messages.FromRank = self._frames.read(self._from.recv())
        if isinstance(message, rank_messages.Failed):
            kind = next((each for each in _AS_HERE if each.__name__ == message.kind), errors.RankLost)
            raise kind(f"rank {message.rank}: {message.message}")
        return message


class OtherLink:
    """The end of `rank`, which is not the first. One thread at a time sends, one at a time receives."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._context = zmq.Context()
        self._frames = _Numbered(rank_messages.ToRank, rank)
        self._from, self._to = self._context.socket(zmq.PULL), self._context.socket(zmq.PUSH)
        for socket, endpoint in ((self._from, _to_rank(folder, rank)), (self._to, _from_ranks(folder))):
            socket.set_hwm(0)
            socket.connect(endpoint)

    def receive(self) -> rank_messages.ToRank:
        """The next message; waits for it, for ever: a first rank that has ended ends this process. Raises RankLost for
        one that is cut, lost or repeated."""
        message = self.listen(None)
        assert message is not None  # noqa: S101  without a limit it waits
        return message

    def listen(self, seconds: float | None) -> rank_messages.ToRank | None:
        """As `receive`, but no longer than so long; None: nothing came."""
        if not self._from.poll(None if seconds is None else int(seconds * 1000)):
            return None
        message: rank_messages.ToRank = self._frames.read(self._from.recv())
        return message

    def send(self, message: rank_messages.FromRank) -> None:
        self._to.send(self._frames.write(message))

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
