"""What the cards that this process may see say of themselves: NVIDIA's management library, read by a thread of its own.

Nothing here is needed to serve. Without the library, without a driver, without a card there is nothing to tell, and
what a card does not say is left out, never 0. Whoever scrapes gets the last sample: a library that hangs keeps nobody
waiting, and what it said before is forgotten after STALE_SECONDS.

Xid errors come as events (NVIDIA, "NVML API Reference": `nvmlEventSetWait_v2`, the number is `eventData`).
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark_runtime.contract import metrics as names
from tidemark_runtime.server import visible_cards

_log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0
"""A quarter of what Prometheus usually waits between two scrapes."""
STALE_SECONDS = 20.0
"""After so long without a sample there are no figures."""
_LISTEN_SECONDS = 1.0
"""For events, at a time: so long a stop may take."""
OTHER_XID = "other"

Library = Any
"""The module pynvml."""


@dataclass(frozen=True, slots=True)
class Card:
    """One card, as it was last seen."""

    index: int
    """As NVML counts in this container."""
    uuid: str
    name: str
    figures: Mapping[str, float] = field(default_factory=dict)
    """By the words of FIGURES: those that it says."""
    xid_errors: Mapping[str, int] | None = None
    """By number, or `other`, since the start; None where the driver does not report them."""
    problem: str = ""
    """What the library says of a card that has no figures."""


FIGURES: Mapping[str, Callable[[Library, Any], float]] = {
    "utilization": lambda library, card: library.nvmlDeviceGetUtilizationRates(card).gpu / 100,
    "memory_used": lambda library, card: float(library.nvmlDeviceGetMemoryInfo(card).used),
    "memory_total": lambda library, card: float(library.nvmlDeviceGetMemoryInfo(card).total),
    "temperature": lambda library, card: float(library.nvmlDeviceGetTemperature(card, library.NVML_TEMPERATURE_GPU)),
    "power": lambda library, card: library.nvmlDeviceGetPowerUsage(card) / 1000,
}
"""In ratio, bytes, degrees Celsius and watts; the library has percent and milliwatts."""


class Cards:
    """The last sample, and the thread that takes it. Nothing raises; what goes wrong is logged once."""

    def __init__(
        self,
        environment: Mapping[str, str],
        load: Callable[[], Library] = lambda: importlib.import_module("pynvml"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`environment`: says which cards this process may see. `load`: gives the library, or raises ImportError."""
        self._environment = environment
        self._load = load
        self._clock = clock
        self._stop = threading.Event()
        self._sample: tuple[float, tuple[Card, ...]] = (clock(), ())
        self._told: set[tuple[object, ...]] = set()
        self._xids: dict[int, Counter[str]] = {}
        self._handles: dict[int, Any] = {}
        self._facts: dict[int, tuple[str, str]] = {}
        self._events: Any = None

    def start(self) -> None:
        """Begin to sample; ends by itself where there is nothing to sample."""
        threading.Thread(target=self.run, name="nvml", daemon=True).start()

    def stop(self) -> None:
        """Within a second; a library that hangs is left alone, the thread ends with the process."""
        self._stop.set()

    @property
    def now(self) -> tuple[Card, ...]:
        """The last sample; nothing when it is too old. Never waits."""
        at, cards = self._sample
        if self._clock() - at <= STALE_SECONDS:
            return cards
        if cards:
            self._tell(("stale",), "NVML does not answer, no figures of cards seconds=%.0f", self._clock() - at)
        return ()

    @property
    def num_seen(self) -> int:
        """Cards that this process may see; stays, whatever becomes of them."""
        return len(self._handles)

    def run(self) -> None:
        """What the thread does: open the library, sample until `stop`."""
        try:
            library = self._load()
        except ImportError:
            _log.debug("nvidia-ml-py is not installed, no figures of cards")
            return
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            _log.debug("NVML cannot be used, no figures of cards reason=%s", error)
            return
        try:
            self._open(library)
            while self._handles and not self._stop.is_set():
                self.sample(library)
                self._listen(library)
        except library.NVMLError as error:
            self._tell(("run",), "NVML fails, no figures of cards reason=%s", error)
        finally:
            self._sample = (self._clock(), ())
            library.nvmlShutdown()

    def sample(self, library: Library) -> None:
        """Ask every card now."""
        cards = tuple(self._card(library, index) for index in self._handles)
        self._sample = (self._clock(), cards)

    def _open(self, library: Library) -> None:
        handles = {index: library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())}
        uuids = {index: str(library.nvmlDeviceGetUUID(handle)) for index, handle in handles.items()}
        for index in visible_cards.of(uuids, self._environment):
            self._handles[index] = handles[index]
            self._facts[index] = (uuids[index], str(library.nvmlDeviceGetName(handles[index])))
        if not self._handles:
            return
        self._events = library.nvmlEventSetCreate()
        for index, handle in self._handles.items():
            try:
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._events)
            except library.NVMLError as error:
                self._tell(("xid", index), "card tells no Xid errors card=%d reason=%s", index, error)
            else:
                self._xids[index] = Counter(dict.fromkeys((*names.XIDS, OTHER_XID), 0))

    def _card(self, library: Library, index: int) -> Card:
        figures, problem = {}, ""
        for name, read in FIGURES.items():
            try:
                figures[name] = read(library, self._handles[index])
            except library.NVMLError as error:
                problem = str(error)
                self._tell((name, index), "card does not tell its %s card=%d reason=%s", name, index, error)
        xids = dict(self._xids[index]) if index in self._xids else None
        return Card(index, *self._facts[index], figures, xids, "" if figures else problem)

    def _listen(self, library: Library) -> None:
        """For events, until the next sample is due."""
        due = self._clock() + SAMPLE_SECONDS
        while not self._stop.is_set() and (left := due - self._clock()) > 0:
            if not self._xids:
                self._stop.wait(min(left, _LISTEN_SECONDS))
                continue
            try:
                event = library.nvmlEventSetWait_v2(self._events, int(min(left, _LISTEN_SECONDS) * 1000))
            except library.NVMLError_Timeout:
                continue
            except library.NVMLError as error:
                self._tell(("events",), "waiting for Xid errors fails, they are counted no more reason=%s", error)
                self._xids.clear()
                continue
            self._note(event)

    def _note(self, event: Any) -> None:
        """By the handle, which also a card that is lost still has."""
        number = str(event.eventData)
        for index, handle in self._handles.items():
            if _address(handle) == _address(event.device) and index in self._xids:
                self._xids[index][number if number in names.XIDS else OTHER_XID] += 1
                _log.error(
                    "the driver reports an Xid error card=%d uuid=%s xid=%s", index, self._facts[index][0], number
                )

    def _tell(self, key: tuple[object, ...], text: str, *values: object) -> None:
        if key not in self._told:
            self._told.add(key)
            _log.warning(text, *values)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
