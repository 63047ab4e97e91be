"""What cards say reaches /metrics and /status; what they do not say is absent, and nothing of it can hang or raise."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client import parser

from tidemark_runtime.contract import metrics as names
from tidemark_runtime.server import nvml, visible_cards

_SPEC = importlib.util.spec_from_file_location("server_tests_fake_nvml", Path(__file__).parent / "fake_nvml.py")
fake_nvml = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = fake_nvml
_SPEC.loader.exec_module(fake_nvml)

FakeCard, FakeLibrary = fake_nvml.FakeCard, fake_nvml.FakeLibrary
CARD_FAMILIES = {each.name.removesuffix("_total") for each in names.COMPUTE_LAYER if each.labels[:1] == ("device",)}


def no_library():
    raise ImportError("No module named 'pynvml'")


def run_once(library, clock, events=(), environment=None) -> nvml.Cards:
    """As the thread does, for one sample and these events, then to the end; keeps what was known before the end."""
    cards = nvml.Cards(environment or {}, lambda: library, clock)
    left = list(events)

    def wait():
        if left:
            return left.pop(0)
        cards.sample(library)
        kept.append(cards.now)
        cards.stop()
        raise fake_nvml.NVMLError_Timeout

    kept: list = []
    library.wait = wait
    cards.run()
    assert not library.is_open, "what was opened is closed"
    cards._sample = (clock(), kept[-1] if kept else ())
    return cards


@pytest.fixture
def seen(http, shared):
    async def run(cards) -> dict:
        shared.cards = cards
        families = parser.text_string_to_metric_families((await http.get("/metrics")).text)
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in families
            if family.name in CARD_FAMILIES
            for sample in family.samples
        }

    return run


def test_the_families_of_cards_are_all_there():
    assert len(CARD_FAMILIES) == 6


async def test_each_figure_in_our_units(seen, clock):
    found = await seen(run_once(fake_nvml.two(), clock))
    assert found["tidemark_device_utilization_ratio", "0"] == 0.37
    assert found["tidemark_device_utilization_ratio", "1"] == 0.0
    assert found["tidemark_device_memory_used_bytes", "0"] == 100
    assert found["tidemark_device_memory_total_bytes", "0"] == 400
    assert found["tidemark_device_temperature_celsius", "1"] == 55
    assert found["tidemark_device_power_watts", "0"] == 250.5


async def test_b087_xid_errors_are_there_at_0_and_counted_by_card(seen, clock):
    cards = run_once(fake_nvml.two(), clock, events=[(1, 79), (1, 79), (0, 31), (0, 154)])
    found = await seen(cards)
    xids = {key[1:]: value for key, value in found.items() if key[0] == "tidemark_device_xid_errors_total"}
    assert len(xids) == 2 * (len(names.XIDS) + 1)
    assert {key: value for key, value in xids.items() if value} == {("1", "79"): 2, ("0", "31"): 1, ("0", "other"): 1}


async def test_an_xid_error_of_a_lost_card_is_counted_and_what_it_says_no_more_is_absent(seen, clock, http):
    library = fake_nvml.two()
    cards = nvml.Cards({}, lambda: library, clock)
    steps = iter(["lost"])

    def wait():
        if next(steps, None):
            library.cards[1].lost = True
            return 1, 79
        cards.sample(library)
        kept.append(cards.now)
        cards.stop()
        raise fake_nvml.NVMLError_Timeout

    kept: list = []
    library.wait = wait
    cards.run()
    cards._sample = (clock(), kept[-1])
    found = await seen(cards)
    assert found["tidemark_device_xid_errors_total", "1", "79"] == 1
    assert ("tidemark_device_temperature_celsius", "0") in found
    assert [key for key in found if key[1] == "1" and "xid" not in key[0]] == []
    first, second = (await http.get("/status")).json()["devices"]
    assert (first["device"], first["uuid"], first["temperatureCelsius"]) == ("0", "GPU-aaaa-1", 55)
    assert (second["problem"], second["temperatureCelsius"], second["xidErrors"]) == ("GPU is lost", None, {"79": 1})


async def test_a_figure_that_is_not_supported_is_dropped_alone_and_logged_once(seen, clock, caplog):
    refusing = FakeCard("GPU-a", refuses={"power": fake_nvml.NVMLError_NotSupported})
    library = FakeLibrary(refusing)
    with caplog.at_level(logging.WARNING):
        found = await seen(run_once(library, clock))
    assert ("tidemark_device_power_watts", "0") not in found
    assert found["tidemark_device_temperature_celsius", "0"] == 55
    told = [record.getMessage() for record in caplog.records if record.name == nvml.__name__]
    assert told == ["card does not tell its power card=0 reason=Not Supported"]


async def test_where_xid_errors_are_not_told_they_are_absent_and_not_0(seen, clock):
    library = FakeLibrary(FakeCard("GPU-a", refuses={"events": fake_nvml.NVMLError_NotSupported}))
    cards = nvml.Cards({}, lambda: library, clock)
    library.nvmlInit()
    cards._open(library)
    cards.sample(library)
    found = await seen(cards)
    assert not [key for key in found if "xid" in key[0]]
    assert found["tidemark_device_utilization_ratio", "0"] == 0.37


@pytest.mark.parametrize(
    "load",
    [
        no_library,
        lambda: FakeLibrary(init_error=fake_nvml.NVMLError_LibraryNotFound),
        lambda: FakeLibrary(init_error=fake_nvml.NVMLError_DriverNotLoaded),
        lambda: FakeLibrary(),
    ],
)
async def test_without_library_driver_or_card_nothing_is_told_and_the_thread_ends(seen, clock, load, http):
    cards = nvml.Cards({}, load, clock)
    cards.start()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join(10)
            assert not thread.is_alive()
    assert await seen(cards) == {}
    assert (await http.get("/status")).json()["devices"] == []


async def test_a_library_that_hangs_keeps_no_scrape_waiting_and_is_forgotten_when_too_old(seen, clock, caplog):
    library, hangs = fake_nvml.two(), threading.Event()
    sampled = threading.Event()
    cards = nvml.Cards({}, lambda: library, clock)

    def wait():
        sampled.set()
        hangs.wait(60)
        raise fake_nvml.NVMLError_Timeout

    library.wait = wait
    cards.start()
    assert sampled.wait(10)
    try:
        assert ("tidemark_device_temperature_celsius", "0") in await seen(cards)
        clock.now += nvml.STALE_SECONDS + 1
        assert await seen(cards) == await seen(cards) == {}
        assert caplog.text.count("NVML does not answer") == 1
    finally:
        cards.stop()
        hangs.set()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,7,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-bbbb"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, []),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-cccc-3/1/0"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-dddd"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, [0, 1, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "5"}, [0, 1, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-cccc-3,GPU-aaaa-1"}, [0, 2]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-cccc-3", "CUDA_VISIBLE_DEVICES": "0"}, [2]),
    ],
)
def test_only_cards_that_this_process_may_see(environment, expected):
    uuids = {0: "GPU-aaaa-1", 1: "GPU-bbbb-2", 2: "GPU-cccc-3"}
    assert visible_cards.of(uuids, environment) == expected


async def test_a_hidden_card_is_not_asked(seen, clock):
    library = fake_nvml.two()
    found = await seen(run_once(library, clock, environment={"CUDA_VISIBLE_DEVICES": "1"}))
    assert {key[1] for key in found} == {"1"}
    assert library.registered == ["GPU-bbbb-2"]
