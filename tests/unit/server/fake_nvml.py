"""NVML as its reference documents it, of as many cards as a test wants: what each says, and what it refuses to say."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int = 999, text: str = "Unknown Error") -> None:
        super().__init__(text)
        self.value = value


class NVMLError_LibraryNotFound(NVMLError):
    def __init__(self) -> None:
        super().__init__(12, "NVML Shared Library Not Found")


class NVMLError_DriverNotLoaded(NVMLError):
    def __init__(self) -> None:
        super().__init__(9, "Driver Not Loaded")


class NVMLError_NotSupported(NVMLError):
    def __init__(self) -> None:
        super().__init__(3, "Not Supported")


class NVMLError_GpuIsLost(NVMLError):
    def __init__(self) -> None:
        super().__init__(15, "GPU is lost")


class NVMLError_Timeout(NVMLError):
    def __init__(self) -> None:
        super().__init__(10, "Timeout")


class Opaque(ctypes.Structure):
    pass


@dataclass
class FakeCard:
    uuid: str
    name: str = "NVIDIA H200"
    utilization: int = 37
    used: int = 100
    total: int = 400
    temperature: int = 55
    milliwatts: int = 250_500
    refuses: dict[str, type[NVMLError]] = field(default_factory=dict)
    """By the last word of the call."""
    lost: bool = False

    def answer(self, call: str, value: Any) -> Any:
        if self.lost:
            raise NVMLError_GpuIsLost
        if call in self.refuses:
            raise self.refuses[call]()
        return value


class FakeLibrary:
    """The module pynvml. `wait` is called for each wait for an event; it returns (card, xid) or raises."""

    NVMLError = NVMLError
    NVMLError_Timeout = NVMLError_Timeout
    NVML_TEMPERATURE_GPU = 0
    nvmlEventTypeXidCriticalError = 8

    def __init__(self, *cards: FakeCard, init_error: type[NVMLError] | None = None) -> None:
        self.cards = list(cards)
        self.init_error = init_error
        self.is_open = False
        self.registered: list[str] = []
        self.wait: Callable[[], tuple[int, int]] = self._nothing
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise self.init_error()
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """A new pointer object each time, to the same place."""
        return ctypes.cast(0x1000 + 16 * index, ctypes.POINTER(Opaque))

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self._card(handle).uuid

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self._card(handle).name

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        card = self._card(handle)
        return SimpleNamespace(gpu=card.answer("utilization", card.utilization), memory=3)

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        card = self._card(handle)
        card.answer("memory", None)
        return SimpleNamespace(used=card.used, total=card.total, free=card.total - card.used)

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        card = self._card(handle)
        return int(card.answer("temperature", card.temperature))

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        card = self._card(handle)
        return int(card.answer("power", card.milliwatts))

    def nvmlEventSetCreate(self) -> object:
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: int, events: object) -> None:
        assert (kinds, events) == (8, "events")
        card = self._card(handle)
        self.registered.append(str(card.answer("events", card.uuid)))

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:
        assert events == "events"
        assert 0 < milliseconds <= 1000
        index, xid = self.wait()
        return SimpleNamespace(device=self.nvmlDeviceGetHandleByIndex(index), eventType=8, eventData=xid)

    def _nothing(self) -> tuple[int, int]:
        raise NVMLError_Timeout

    def _card(self, handle: Any) -> FakeCard:
        assert self.is_open
        return self.cards[((ctypes.cast(handle, ctypes.c_void_p).value or 0) - 0x1000) // 16]


def two() -> FakeLibrary:
    return FakeLibrary(FakeCard("GPU-aaaa-1"), dataclasses.replace(FakeCard("GPU-bbbb-2"), utilization=0))
