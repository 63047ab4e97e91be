"""Settings that change between two steps: all or nothing, in force with the next plan, nobody in flight notices."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from engine_bench import Bench, Finish, per_token, prompt

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.engine import hot_settings

HOT = [
    field.name
    for field in dataclasses.fields(config.SchedulerConfig)
    if field.metadata["setting"].effect is config.Effect.HOT
]

VALUES: dict[str, list[Any]] = {
    "max_num_batched_tokens": [8, 64, 256, 1024],
    "target_step_seconds": [None, 0.005, 0.05],
    "max_concurrency_soft": [None, 8, 16],
    "queue_watermark": [0.0, 0.3, 0.7, 0.9],
    "preempt_watermark": [0.9, 0.95, 1.0],
    "watermark_hysteresis": [0.0, 0.05, 0.3],
    "long_request_tokens": [1, 50, 200, 4096],
    "long_request_share": [0.0, 0.3, 0.5, 1.0],
    "aging_seconds": [0.0, 0.2, 10.0],
    "fairness": ["none", "apiKey"],
    "preemption_mode": ["auto", "swap", "recompute"],
    "max_preemptions_per_request": [0, 1, 3],
    "max_queued_requests": [0, 3, 512],
    "max_queued_tokens": [None, 100, 100_000],
    "max_queue_seconds": [0.5, 600.0],
    "retry_share": [0.0, 0.1, 1.0],
}
"""Of each hot setting: the least, the most, and something between."""


def test_every_hot_setting_is_tried() -> None:
    assert sorted(VALUES) == sorted(HOT)


def busy(overlap: bool = True) -> Bench:
    """Twelve on a slab that is too small for them, with swap space and shared beginnings."""
    bench = Bench(
        num_pages=48,
        num_host_pages=24,
        page_copy_seconds=0.001,
        overlap=overlap,
        step_seconds=per_token(0.002, decode=0.0002, prompt_token=0.0002),
    )
    for index in range(12):
        text = [*prompt(40, index % 3), *prompt(20 + 11 * index, 50 + index)]
        bench.submit(f"r{index}", text, 60, tenant=str(index % 3), priority=index % 2)
    return bench


@pytest.mark.parametrize("name", sorted(VALUES))
def test_one_setting_after_the_other_changes_and_nobody_in_flight_notices(name: str) -> None:
    """Whoever was accepted ends as alone, but for waits that are longer than allowed from now on."""
    bench = busy()
    bench.step(5)
    values = VALUES[name]
    for step in range(400):
        if not bench.engine.has_work:
            break
        if step % 5 == 0:
            bench.configure(**{name: values[step // 5 % len(values)]})
        bench.step()
    bench.configure(**{name: getattr(config.SchedulerConfig(), name)})
    bench.run()
    bench.check_all_as_alone()
    bench.check_baseline()
    ends = {record.finish for record in bench.records.values()}
    assert ends == {Finish.LENGTH} or (name == "max_queue_seconds" and ends == {Finish.LENGTH, Finish.TIMEOUT})


@pytest.mark.parametrize("overlap", [True, False])
def test_all_settings_change_in_every_step(overlap: bool) -> None:
    numbers = random.Random(7)
    for _ in range(6):
        bench = busy(overlap)
        for _ in range(60):
            chosen = {name: numbers.choice(values) for name, values in VALUES.items() if name != "max_queue_seconds"}
            if (chosen["max_concurrency_soft"] or 99) < bench.stats.requests_running:
                chosen["max_concurrency_soft"] = None
            bench.configure(**chosen)
            bench.step()
        bench.configure(**{name: getattr(config.SchedulerConfig(), name) for name in HOT})
        bench.run()
        bench.check_all_as_alone()
        bench.check_baseline()
        assert {record.finish for record in bench.records.values()} == {Finish.LENGTH}


def test_nothing_starves_for_ever_under_the_most_restrictive_settings() -> None:
    """Both lines at nothing, one at a time, the smallest budget: slow, but everybody ends."""
    bench = Bench(
        num_pages=48,
        queue_watermark=0.0,
        preempt_watermark=0.0,
        max_concurrency_soft=1,
        max_num_batched_tokens=1,
        long_request_share=0.0,
        aging_seconds=1000.0,
        long_request_tokens=30,
        max_preemptions_per_request=0,
    )
    for index in range(4):
        bench.submit(str(index), prompt(10 + 12 * index, index), 10)
    bench.run()
    bench.check_all_as_alone()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_lane_that_is_guaranteed_nothing_still_gets_what_the_other_leaves(share: float) -> None:
    bench = Bench(num_pages=256, long_request_tokens=100, long_request_share=share, aging_seconds=1000.0)
    for index in range(6):
        bench.submit(f"long{index}", prompt(200, index), 10)
        bench.submit(f"short{index}", prompt(20, 100 + index), 10)
    bench.run()
    bench.check_all_as_alone()


# ---- all or nothing --------------------------------------------------------------------------------------------------


def test_a_limit_below_what_runs_is_refused_and_everything_else_of_it_too() -> None:
    bench = Bench(overlap=False)
    for index in range(6):
        bench.submit(str(index), prompt(20, index), 40)
    bench.step(2)
    with pytest.raises(errors.ConfigError) as refused:
        bench.configure(max_concurrency_soft=5, max_num_batched_tokens=1, max_queued_requests=0)
    (problem,) = refused.value.problems
    assert (problem.key, problem.seen) == ("scheduler.maxConcurrencySoft", 5)
    assert "6" in problem.expected
    bench.submit("more", prompt(100, 9), 3)
    bench.submit("and more", prompt(100, 10), 3)
    bench.step()
    assert [bench.records[name].first_token_step for name in ("more", "and more")] == [3, 3], (
        "the old budget and limits"
    )
    bench.configure(max_concurrency_soft=8)
    bench.run()
    bench.check_all_as_alone()


GOOD = {"scheduler": {"maxNumSeqs": 8, "maxNumBatchedTokens": 256}}


@pytest.mark.parametrize(
    ("bad", "key"),
    [
        ({"queueWatermark": 0.95, "preemptWatermark": 0.9}, "scheduler.queueWatermark"),
        ({"queueWatermark": -0.1}, "scheduler.queueWatermark"),
        ({"preemptWatermark": 1.1}, "scheduler.preemptWatermark"),
        ({"watermarkHysteresis": -0.01}, "scheduler.watermarkHysteresis"),
        ({"maxQueuedRequests": -1}, "scheduler.maxQueuedRequests"),
        ({"maxQueueSeconds": -1}, "scheduler.maxQueueSeconds"),
        ({"maxQueueSeconds": float("nan")}, "scheduler.maxQueueSeconds"),
        ({"retryShare": 1.5}, "scheduler.retryShare"),
        ({"longRequestShare": "half"}, "scheduler.longRequestShare"),
        ({"agingSeconds": True}, "scheduler.agingSeconds"),
        ({"maxNumBatchedTokens": 0}, "scheduler.maxNumBatchedTokens"),
        ({"maxPreemptionsPerRequest": -1}, "scheduler.maxPreemptionsPerRequest"),
        ({"preemptionMode": "kill"}, "scheduler.preemptionMode"),
        ({"fairness": "everybody"}, "scheduler.fairness"),
        ({"queueWatermrk": 0.5}, "scheduler.queueWatermrk"),
        ({"maxNumSeqs": 9}, "scheduler.maxNumSeqs"),
    ],
)
def test_bad_values_are_refused_by_name_and_the_old_ones_stay_in_force(bad: dict[str, Any], key: str) -> None:
    """A good value that comes together with a bad one is not taken over either."""
    bench = Bench(overlap=False)
    hot = hot_settings.HotSettings(config_parsing.parse(GOOD), bench.worker.facts, bench.engine)
    bench.submit("a", prompt(150, 1), 5)
    problems = hot.take_over({"scheduler": {**GOOD["scheduler"], "maxNumBatchedTokens": 10, **bad}})
    assert [problem.key for problem in problems] == [key]
    assert problems[0].expected
    bench.step()
    assert bench.stats.step_tokens == 150, "the budget is not 10"
    assert hot.take_over({"scheduler": {**GOOD["scheduler"], "maxNumBatchedTokens": 70}}) == []
    bench.submit("b", prompt(150, 2), 5)
    bench.step()
    assert bench.stats.step_tokens == 70
    bench.run()
    bench.check_all_as_alone()


# ---- the batch follows the time of a step ------------------------------------------------------------------------


TARGET = per_token(0.004, decode=0.0005, prompt_token=0.0002)
"""A device on which 256 prompt tokens take 55 ms."""


def prompts_for_ever(bench: Bench, steps: int) -> list[float]:
    """Seconds that each step took."""
    durations = []
    for _ in range(steps):
        while bench.stats.requests_waiting < 4:
            bench.submit(f"p{len(bench.records)}", prompt(150, len(bench.records)), 10)
        before = bench.now
        bench.step()
        durations.append(bench.now - before)
    return durations


def test_no_step_is_planned_over_the_target_once_steps_have_been_measured() -> None:
    bench = Bench(num_pages=128, overlap=False, step_seconds=TARGET, target_step_seconds=0.02)
    durations = prompts_for_ever(bench, 200)
    assert max(durations[20:]) <= 0.02 * 1.25, "while it learns"
    assert max(durations[100:]) <= 0.02 * 1.02
    assert sum(durations[100:]) / 100 >= 0.02 * 0.9, "and what may be used is used"


def test_a_step_that_takes_in_a_whole_prompt_stays_under_the_target_too() -> None:
    """7 decodes and the 150 tokens of a prompt would take 0.0375 s, which is what the prices say as well."""
    bench = Bench(num_pages=128, overlap=False, step_seconds=TARGET, target_step_seconds=0.03)
    durations = prompts_for_ever(bench, 300)
    assert max(durations[200:]) <= 0.03 * 1.02


def slow_time(steps_slow: int, steps_after: int) -> tuple[list[float], list[float]]:
    """The device becomes half as fast, and recovers."""
    bench = Bench(num_pages=128, overlap=False, step_seconds=TARGET, target_step_seconds=0.02)
    prompts_for_ever(bench, 200)
    bench.step_seconds = lambda plan: 2 * TARGET(plan)
    slow = prompts_for_ever(bench, steps_slow)
    bench.step_seconds = TARGET
    return slow, prompts_for_ever(bench, steps_after)


def test_the_batch_shrinks_by_itself_when_the_device_becomes_slow() -> None:
    slow, _ = slow_time(400, 0)
    assert sum(slow[-50:]) / 50 <= 0.02 * 1.05


def test_the_batch_grows_again_by_itself_when_the_device_has_recovered() -> None:
    _, after = slow_time(200, 400)
    assert max(after[-50:]) <= 0.02 * 1.05
    assert sum(after[-50:]) / 50 >= 0.02 * 0.8


def test_the_target_is_hot_and_those_who_run_get_their_token_whatever_it_says() -> None:
    bench = Bench(num_pages=256, overlap=False, step_seconds=TARGET)
    assert max(prompts_for_ever(bench, 60)) > 0.05
    bench.configure(target_step_seconds=0.01)
    assert max(prompts_for_ever(bench, 60)[2:]) <= 0.0102
    bench.configure(target_step_seconds=0.001)
    stream = [name for name in bench.running if bench.records[name].tokens]
    before = {name: len(bench.records[name].tokens) for name in stream}
    bench.step()
    assert all(len(bench.records[name].tokens) == before[name] + 1 for name in stream)
    bench.run()
    bench.check_all_as_alone()
