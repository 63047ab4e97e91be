"""What the server says of itself: the difference of two looks, never a made-up 0."""

from __future__ import annotations

import httpx
import pytest

from tidemark_runtime.loadtest import server_side

BEFORE = """# HELP tidemark_queue_wait_seconds Waits
tidemark_queue_wait_seconds_bucket{lane="express",le="0.1"} 10
tidemark_queue_wait_seconds_bucket{lane="express",le="1.0"} 10
tidemark_queue_wait_seconds_bucket{lane="express",le="+Inf"} 10
tidemark_queue_wait_seconds_count{lane="express"} 10
tidemark_queue_wait_seconds_sum{lane="express"} 0.5
tidemark_preemptions_total{mode="swap"} 1
tidemark_preemptions_total{mode="recompute"} 2
tidemark_prefix_tokens_total{result="hit"} 100
tidemark_prefix_tokens_total{result="miss"} 100
"""
AFTER = """tidemark_queue_wait_seconds_bucket{lane="express",le="0.1"} 20
tidemark_queue_wait_seconds_bucket{lane="express",le="1.0"} 30
tidemark_queue_wait_seconds_bucket{lane="express",le="+Inf"} 30
tidemark_queue_wait_seconds_count{lane="express"} 30
tidemark_queue_wait_seconds_sum{lane="express"} 10.5
tidemark_preemptions_total{mode="swap"} 2
tidemark_preemptions_total{mode="recompute"} 4
tidemark_prefix_tokens_total{result="hit"} 130
tidemark_prefix_tokens_total{result="miss"} 170
nonsense line
broken_value{a="b"} x
"""


def watch() -> server_side.Watch:
    return server_side.Watch(httpx.AsyncClient())


def test_a_level_is_what_grew() -> None:
    seen = watch()
    seen.running, seen.waiting, seen.pages = [2, 4], [0, 9], [0.25, 0.5]
    found = server_side.difference(server_side.samples(BEFORE), server_side.samples(AFTER), seen)
    assert found == server_side.ServerFigures(
        queue_waits=20,
        queue_wait_mean=0.5,
        queue_wait_p95=pytest.approx(0.91),
        preemptions=3,
        prefix_hit_share=pytest.approx(0.3),
        running_mean=3.0,
        running_peak=4,
        waiting_peak=9,
        pages_used_peak=0.5,
    )


def test_what_is_not_told_is_not_0() -> None:
    found = server_side.difference(server_side.samples(BEFORE), server_side.samples(BEFORE), watch())
    assert found is not None
    assert found.prefix_hit_share is None
    assert found.running_peak is None
    assert server_side.difference({}, server_side.samples("vllm:thing 3"), watch()) is None


def test_a_server_that_was_started_anew_tells_nothing() -> None:
    assert server_side.difference(server_side.samples(AFTER), server_side.samples(BEFORE), watch()) is None


@pytest.mark.parametrize(
    ("buckets", "share", "value"),
    [
        ({}, 0.5, 0.0),
        ({1.0: 0.0, float("inf"): 0.0}, 0.5, 0.0),
        ({1.0: 10.0, float("inf"): 10.0}, 0.5, 0.5),
        ({1.0: 0.0, 2.0: 10.0, float("inf"): 10.0}, 0.95, 1.95),
        ({1.0: 5.0, float("inf"): 10.0}, 0.95, 1.0),
    ],
)
def test_quantiles_of_buckets(buckets: dict[float, float], share: float, value: float) -> None:
    assert server_side.quantile(buckets, share) == pytest.approx(value)
