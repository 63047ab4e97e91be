"""What `tidemark profile` concludes from figures; asking a real server is tested in `tests/integration/server`."""

from __future__ import annotations

import io
from typing import Any

import pytest
import rich.console

from tidemark_operator.commands import profile_advice, profile_document, profile_reader, profile_text
from tidemark_runtime.contract import status

SHAPE = status.ModelShape(30, 3, 64, 98_000_000, 46_080.0, 9, 576, 1536, 49_152, 8192)
LAYOUT_BYTES = 2 * 30 * 3 * 64 * 16 * 4
PRICES = {"base": 0.02, "decode": 0.001, "tokenRead": 1e-7, "promptToken": 0.001, "pair": 1e-8}


def engine(*, used: int = 100, running: int = 4, waiting: int = 0, places: int = 16, **changes: Any) -> Any:
    memory = status.MemoryStatus(
        parts_bytes={"weights": 100, "kv": 1000 * LAYOUT_BYTES, "overhead": 300},
        planned_bytes={"weights": 100, "kv": 900 * LAYOUT_BYTES, "activations": 20, "graphs": 0, "overhead": 310},
        limit_bytes=1000 * LAYOUT_BYTES + 1000,
        kv_bytes={"float32": 1000 * LAYOUT_BYTES},
        page_bytes=LAYOUT_BYTES,
        block_size=16,
        pages_total=1000,
        pages_used=used,
        usage_ratio=used / 1000,
    )
    values: dict[str, Any] = {
        "version": "1",
        "state": status.EngineState.READY,
        "message": "Serving.",
        "model": status.ModelStatus("m", "m", 8192, 8192, SHAPE),
        "config": status.ConfigStatus("x"),
        "worker": {"kind": "torch", "device": "cpu", "threads": "2", "pagesDecidedBy": "memoryUtilization"},
        "memory": memory,
        "lines": {"queue": status.LineStatus(0.7)},
        "queue": status.QueueStatus(running=running, waiting=waiting, places=places),
        "step_prices": PRICES,
    }
    return status.EngineStatus(**{**values, **changes})


def seen(**changes: Any) -> profile_advice.Seen:
    values: dict[str, Any] = {
        "seconds": 100.0,
        "line_seconds": 0.0,
        "preemptions": 0.0,
        "rejected": 0.0,
        "mean_wait_seconds": 0.0,
        "mean_step_seconds": 0.05,
        "mean_batch": 4.0,
    }
    return profile_advice.Seen(**{**values, **changes})


@pytest.mark.parametrize(
    ("of", "figures", "name", "words"),
    [
        ({"used": 720}, {"line_seconds": 40.0}, "pages", "was crossed for 40% of the time"),
        ({}, {"preemptions": 3.0}, "pages", "3 sequences were preempted"),
        ({"lines": {"queue": status.LineStatus(0.7, True)}}, {}, "pages", "the queue line (70%)"),
        ({"running": 16, "waiting": 5}, {"mean_batch": 16.0}, "places", "all 16 were taken while 5 wait"),
        ({"running": 2}, {"mean_wait_seconds": 1.5}, "time", "requests waited 1.50 s on average though pages"),
        ({}, {}, "none", "nobody waits"),
        ({}, {"mean_step_seconds": None}, "none", "no step has run"),
    ],
)
def test_the_bottleneck_is_what_was_seen(of: Any, figures: Any, name: str, words: str) -> None:
    which, because = profile_advice.bottleneck(engine(**of), seen(**figures))
    assert which == name
    assert words in because


def test_of_pages_eight_bits_buy_most() -> None:
    found = profile_advice.changes(engine(used=720), seen(), profile_advice.Bottleneck.PAGES)
    assert found[0].setting == "kvCache.dtype"
    assert found[0].gain == pytest.approx(256 / 68, rel=0.01)
    assert "60,224 tokens, 3.76 times as many" in found[0].what
    assert any(change.setting == "hardware.memory" for change in found)


def test_of_places_more_places_come_first_with_what_a_step_then_takes() -> None:
    first = profile_advice.changes(
        engine(running=16, used=160), seen(mean_batch=16.0), profile_advice.Bottleneck.PLACES
    )[0]
    assert first.setting == "scheduler.maxNumSeqs"
    tokens = 10 * 16
    before, after = (0.02 + count * (0.001 + tokens * 1e-7) for count in (16, 32))
    assert first.gain == pytest.approx((32 / after) / (16 / before))
    assert "32 instead of 16: 2.00 times the requests at once" in first.what


def test_more_places_are_not_advised_where_the_pages_would_not_hold_them() -> None:
    found = profile_advice.changes(engine(running=16, used=700), seen(), profile_advice.Bottleneck.PLACES)
    assert "scheduler.maxNumSeqs" not in {change.setting for change in found}


def test_a_slab_of_eight_bits_is_not_told_to_take_eight_bits() -> None:
    memory = status.MemoryStatus(page_bytes=2 * 30 * 3 * 16 * 68, block_size=16, pages_total=10)
    found = profile_advice.changes(engine(memory=memory), seen(), profile_advice.Bottleneck.PAGES)
    assert "kvCache.dtype" not in {change.setting for change in found}


def samples(**values: dict[str, float]) -> profile_reader.Samples:
    """`name={"label=value": number}`."""
    return profile_reader.Samples(
        {
            name: {tuple(tuple(part.split("=")) for part in key.split(",") if part): value for key, value in of.items()}  # type: ignore[misc]
            for name, of in values.items()
        }
    )


def test_the_document_sets_measured_beside_planned() -> None:
    scraped = samples(
        tidemark_batch_size_sum={"": 60.0},
        tidemark_batch_size_count={"": 20.0},
        tidemark_step_duration_seconds_sum={"phase=execute": 2.0, "phase=schedule": 9.0},
        tidemark_step_duration_seconds_count={"phase=execute": 20.0, "phase=schedule": 20.0},
        tidemark_generated_tokens_total={"": 55.0},
    )
    found = profile_document.build(profile_reader.Look(engine(), scraped), scraped, 10.0)
    rows = {row["part"]: (row["plannedBytes"], row["measuredBytes"]) for row in found["parts"]}
    assert rows["weights"] == (100, 100)
    assert rows["activations"] == (20, None)
    assert "graphs" not in rows
    assert found["misses"] == {"kv": pytest.approx(1000 / 900)}
    assert found["freeBytes"] == 1000 - 100 - 20 - 300
    assert (found["load"]["meanBatch"], found["load"]["meanStepSeconds"]) == (3.0, 0.1)
    text = "\n".join(str(part) for part in profile_text.screen(found))
    for words in ("kv: 111% of the plan", "steps of 100 ms with 3.0 sequences", "Bottleneck: nothing", "not measured"):
        assert words in text or words == "not measured"


def test_a_window_is_what_came_in_between() -> None:
    before = samples(tidemark_generated_tokens_total={"": 50.0}, tidemark_requests_running={"": 3.0})
    after = samples(tidemark_generated_tokens_total={"": 80.0}, tidemark_requests_running={"": 2.0})
    between = after.since(before)
    assert between.total("tidemark_generated_tokens_total") == 30.0
    assert between.total("tidemark_requests_running") == 2.0  # a gauge is what it is now


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "ftp://x", "http://", "", "http://[::1", "http://h:x", "http://h:0", "http://127.0.0.1:99999"],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(profile_reader.NotAnEngine, match=r"expected http://HOST:PORT or https://HOST:PORT"):
        profile_reader.Engine(url)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "%%ü"])
def test_a_name_that_no_host_can_have(host: str) -> None:
    with pytest.raises(profile_reader.NotAnEngine, match=r"expected http://HOST:PORT or https://HOST:PORT"):
        profile_reader.Engine(f"http://{host}:8000").look()


def test_no_heading_is_cut_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    written, nothing = io.StringIO(), profile_reader.Samples()
    console = rich.console.Console(file=written)
    for part in profile_text.screen(profile_document.build(profile_reader.Look(engine(), nothing), nothing, 1.0)):
        console.print(part)
    assert "share of" in written.getvalue()
    assert "…" not in written.getvalue()


def test_where_a_step_takes_too_long_no_more_places_are_advised() -> None:
    of, figures = engine(running=2), seen(mean_wait_seconds=1.5)
    which, _ = profile_advice.bottleneck(of, figures)
    assert which is profile_advice.Bottleneck.TIME
    assert [change.setting for change in profile_advice.changes(of, figures, which)] == ["replicas"]
