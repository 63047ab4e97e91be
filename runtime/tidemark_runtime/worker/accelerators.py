"""Everything that differs by the vendor of a device, behind one door: memory, streams, events, recorded steps.

`Torch` says it all through `torch.accelerator`, which is the same for every vendor whose device torch knows; VENDORS of
`planning.vendors` has what that cannot say. `Interpreter` is no device: kernels run in Triton's interpreter on the
processor, step after step, so that tests run the whole worker where no device is. It is no choice for users.

docs/operations/accelerators.md says what a vendor's row must hold, and which of them have been run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import torch

from tidemark_runtime import config, errors
from tidemark_runtime.planning import vendors

INTERPRETER = "interpreter"
"""Name of the device that tests ask for."""


class Event(Protocol):
    """A place in a stream."""

    def record(self, stream: torch.Stream | None = None) -> None:
        """Here, of the current stream where none is given."""
        ...

    def wait(self, stream: torch.Stream | None = None) -> None:
        """What comes next in that stream waits for this event; the host does not."""
        ...

    def synchronize(self) -> None:
        """The host waits; other threads of Python go on."""
        ...

    def query(self) -> bool:
        """Whether it has been reached."""
        ...

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds from here to `other`, of the same kind; both have been reached, and were made `timed`."""
        ...


class Stream(Protocol):
    """A queue of work; inside `with` it is the current one of this thread."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...

    def synchronize(self) -> None: ...


class Graph(Protocol):
    """A recorded step."""

    def replay(self) -> None:
        """Everything again, on the same memory, in the current stream."""
        ...


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a device, in bytes, whoever holds it."""

    free_bytes: int
    total_bytes: int


class Accelerator(Protocol):
    """One device."""

    @property
    def device(self) -> torch.device: ...

    @property
    def name(self) -> str:
        """For people: `NVIDIA H200, capability 9.0`."""
        ...

    @property
    def kernels(self) -> str:
        """Empty where Triton's kernels run here; else why they do not, and plain torch does."""
        ...

    @property
    def no_graphs(self) -> str:
        """Empty where steps can be recorded; else why not."""
        ...

    def memory(self) -> Memory: ...

    def allocated_bytes(self) -> int:
        """Held by tensors of this process, now."""
        ...

    def reserved_bytes(self) -> int:
        """Held by torch for this process: tensors, and what it keeps for further ones and for graphs."""
        ...

    def peak_bytes(self) -> int:
        """The most that tensors have held since `reset_peak`."""
        ...

    def reset_peak(self) -> None: ...

    def give_back(self) -> None:
        """What torch keeps without a tensor in it goes back to the device."""
        ...

    def pinned(self, num_bytes: int) -> torch.Tensor:
        """uint8 [num_bytes] of the host that the device copies from and to by itself."""
        ...

    def stream(self) -> Stream: ...

    def event(self, *, timed: bool = False) -> Event: ...

    def record(self, run: Callable[[], None], beside: Graph | None = None) -> Graph:
        """Record what `run` launches in the current stream, without running it. Its memory is that of `beside`, another
        record, which is never replayed at the same time. Raises where it cannot be recorded."""
        ...


def resolve(wanted: str) -> str:
    """`hardware.device` with `auto` decided: `cpu`, a type of `vendors.VENDORS`, or `interpreter`.

    auto is the accelerator that torch sees, else the processor. Raises ConfigError for one that is not there.
    """
    if wanted in ("cpu", INTERPRETER):
        return wanted
    seen = _seen()
    if wanted == "auto":
        return seen or "cpu"
    if wanted != seen:
        raise errors.ConfigError([_missing(wanted, seen)])
    return wanted


def resolved(settings: config.EngineConfig) -> config.EngineConfig:
    """With `hardware.device` decided. Raises ConfigError."""
    hardware = dataclasses.replace(settings.hardware, device=resolve(settings.hardware.device))
    return dataclasses.replace(settings, hardware=hardware)


def check_count(kind: str, wanted: int, key: str) -> None:
    """Raises ConfigError, naming `key`, where this process sees fewer than `wanted` devices of the type that `resolve`
    said. Of interpreters there are as many as anybody wants."""
    if kind == INTERPRETER:
        return
    seen = torch.accelerator.device_count()
    if seen < wanted:
        remedy = (
            "Give this machine or container as many, or lower it. In a manifest it is hardware.count, and the device "
            "plugin gives the pod that many; what hides devices from a process (CUDA_VISIBLE_DEVICES and its like) "
            "counts, too"
        )
        expected = f"at most {seen}: this process sees {seen} of type {kind}, and each rank needs one of its own"
        raise errors.ConfigError([errors.Problem(key, wanted, expected, remedy)])


def collectives_of(kind: str) -> str:
    """The backend by which several devices of the type that `resolve` said share a model."""
    return vendors.VENDORS[kind].collectives if kind in vendors.VENDORS else "gloo"


def find(kind: str, index: int = 0) -> Accelerator:
    """The device that `resolve` said, number `index` of those that this process sees."""
    if kind == INTERPRETER:
        return Interpreter()
    return Torch(torch.device(kind, index), vendors.VENDORS[kind])


def _seen() -> str:
    """The type of the accelerator of this machine; empty where there is none, or of a type that is in no row."""
    if not torch.accelerator.is_available():
        return ""
    found = torch.accelerator.current_accelerator()
    return found.type if found is not None and found.type in vendors.VENDORS else ""


def _missing(wanted: str, seen: str) -> errors.Problem:
    vendor = vendors.VENDORS[wanted]
    torch_for_it = f"torch with {vendor.plugin}" if vendor.plugin else "a torch that is built for it"
    have = f"auto, cpu or {seen}" if seen else "auto or cpu"
    return errors.Problem(
        "hardware.device",
        wanted,
        f"{have}: torch {torch.__version__} sees no {wanted} here",
        f"Give this machine or container a device of {vendor.makers}, its driver and {torch_for_it}. Or compute on the "
        "processor: hardware.device cpu; in a manifest hardware.resourceName: cpu",
    )


class Torch:
    """A device through `torch.accelerator`."""

    def __init__(self, device: torch.device, vendor: vendors.Vendor) -> None:
        self.device = device
        self.kernels = vendor.kernels
        self.no_graphs = vendor.no_graphs
        torch.accelerator.set_device_index(device.index)

    @property
    def name(self) -> str:
        module = torch.get_device_module(self.device)
        name = str(module.get_device_name(self.device)) if hasattr(module, "get_device_name") else self.device.type
        if hasattr(module, "get_device_capability") and self.device.type == "cuda":
            return f"{name}, capability {'.'.join(map(str, module.get_device_capability(self.device)))}"
        return name

    def memory(self) -> Memory:
        free, total = torch.accelerator.get_memory_info(self.device)
        return Memory(free, total)

    def allocated_bytes(self) -> int:
        return int(torch.accelerator.memory_allocated(self.device))

    def reserved_bytes(self) -> int:
        return int(torch.accelerator.memory_reserved(self.device))

    def peak_bytes(self) -> int:
        return int(torch.accelerator.max_memory_allocated(self.device))

    def reset_peak(self) -> None:
        torch.accelerator.reset_peak_memory_stats(self.device)

    def give_back(self) -> None:
        torch.accelerator.synchronize(self.device)
        torch.accelerator.empty_cache()

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)

    def stream(self) -> Stream:
        return torch.Stream(self.device)

    def event(self, *, timed: bool = False) -> Event:
        return torch.Event(self.device, enable_timing=timed)

    def record(self, run: Callable[[], None], beside: Graph | None = None) -> Graph:
        pool = beside.pool() if isinstance(beside, torch.accelerator.Graph) else None
        # thread_local: the thread that waits for results must not end a recording by asking for an event.
        graph = torch.accelerator.Graph(pool=pool, capture_error_mode="thread_local")
        with graph:
            run()
        return graph


class Interpreter:
    """The processor in a device's place: everything has happened when a call returns."""

    device = torch.device("cpu")
    name = "Triton's interpreter on the processor"
    kernels = ""
    no_graphs = "the interpreter records nothing; every step is launched"

    def memory(self) -> Memory:
        """Enough for what tests do; no limit is found out."""
        return Memory(_INTERPRETER_BYTES, _INTERPRETER_BYTES)

    def allocated_bytes(self) -> int:
        return 0

    def reserved_bytes(self) -> int:
        return 0

    def peak_bytes(self) -> int:
        return 0

    def reset_peak(self) -> None:
        """Nothing is counted."""

    def give_back(self) -> None:
        """Nothing is kept."""

    def pinned(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def stream(self) -> Stream:
        return _NoStream()

    def event(self, *, timed: bool = False) -> Event:
        return _HostEvent()

    def record(self, run: Callable[[], None], beside: Graph | None = None) -> Graph:
        raise NotImplementedError(self.no_graphs)


_INTERPRETER_BYTES = 4 << 30


class _NoStream(contextlib.nullcontext[None]):
    """Everything is in order anyway."""

    def synchronize(self) -> None:
        """All has happened."""


class _HostEvent:
    """The time at which it was recorded."""

    def __init__(self) -> None:
        self.at = 0.0

    def record(self, stream: torch.Stream | None = None) -> None:
        self.at = time.perf_counter()

    def wait(self, stream: torch.Stream | None = None) -> None:
        """It has been reached."""

    def synchronize(self) -> None:
        """It has been reached."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _HostEvent) -> float:
        return (other.at - self.at) * 1e3


def capability(accelerator: Accelerator) -> tuple[int, int] | None:
    """The CUDA compute capability; None of any other device."""
    if accelerator.device.type != "cuda" or torch.version.hip is not None:
        return None
    major, minor = torch.cuda.get_device_capability(accelerator.device)
    return major, minor
