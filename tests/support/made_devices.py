"""Devices that are not there: the interpreter's, with records that are replayed by running the code again, and with
streams and events that write down what they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tidemark_kernels import device_dispatch, dispatch
from tidemark_runtime.worker import accelerators


@dataclass
class Replayed:
    """A record: the same code again, on the memory it was recorded on."""

    run: Callable[[], None]
    calls: list[str]
    number: int

    def replay(self) -> None:
        self.calls.append(f"replay {self.number}")
        self.run()


class Recording(accelerators.Interpreter):
    """As the interpreter, but steps can be recorded."""

    no_graphs = ""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.num_records = 0
        self.reserved = 0

    def reserved_bytes(self) -> int:
        return self.reserved

    def give_back(self) -> None:
        self.calls.append("give back")

    def record(self, run: Callable[[], None], beside: accelerators.Graph | None = None) -> accelerators.Graph:
        """Does not run it, as a device does not."""
        self.num_records += 1
        self.reserved += 1000
        of = "" if not isinstance(beside, Replayed) else f" in the memory of {beside.number}"
        self.calls.append(f"record {self.num_records}{of}")
        return Replayed(run, self.calls, self.num_records)


@dataclass
class WrittenEvent:
    """Says where it was recorded and who waits for it."""

    number: int
    log: list[str]
    at: int = 0
    """Lines of the log before it was recorded: its time, in milliseconds."""

    def record(self, stream: torch.Stream | None = None) -> None:
        self.at = len(self.log)
        self.log.append(f"record {self.number}")

    def wait(self, stream: torch.Stream | None = None) -> None:
        self.log.append(f"wait {self.number}")

    def synchronize(self) -> None:
        self.log.append(f"host waits {self.number}")

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: WrittenEvent) -> float:
        return float(other.at - self.at)


@dataclass
class WrittenStream:
    log: list[str]

    def __enter__(self) -> None:
        self.log.append("copies:")

    def __exit__(self, *_: object) -> None:
        self.log.append("steps:")

    def synchronize(self) -> None:
        self.log.append("host waits for copies")


@dataclass
class Written(accelerators.Interpreter):
    """What happens to streams and events, in the order in which it was asked for."""

    log: list[str] = field(default_factory=list)
    num_events: int = 0

    def stream(self) -> accelerators.Stream:
        return WrittenStream(self.log)

    def event(self, *, timed: bool = False) -> accelerators.Event:
        self.num_events += 1
        return WrittenEvent(self.num_events, self.log)


def choices(*, kernels: bool) -> device_dispatch.Choices:
    """Everything by our kernels, or everything by torch."""
    path, reason = (device_dispatch.TRITON, "") if kernels else (device_dispatch.TORCH, "a test wants it so")
    return device_dispatch.Choices(
        tuple(dispatch.OpPath(op, device_dispatch.TRITON, path, "float32", reason) for op in device_dispatch.OPS)
    )
