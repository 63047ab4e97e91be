"""Whole runs: the real engine, on time that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime.core import step_plan
from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import models, plot, profiles, recorder, report, running, workload

ROOT = Path(__file__).resolve().parents[3]
WORKLOADS = sorted((ROOT / "examples/workloads").glob("*.yaml"))
PROFILES = {"saturation": "rtx4090/7b", "users": "ascend910b/7b"}


def measured(num_pages: int, *, num_swap: int = 0, base: float = 1.0, host_seconds: float = 0.0) -> profiles.Profile:
    """Every step takes `base` seconds, a copy a thousandth."""
    return profiles.Profile(
        name="made",
        model=models.MODELS["smollm2-135m"],
        measured=profiles.Measured(
            prices=profiles.Prices(base=base, decode=0.0, prompt_token=0.0, token_read=0.0, pair=0.0),
            num_pages=num_pages,
            num_swap_pages=num_swap,
            page_copy_seconds=0.001 if num_swap else 0.0,
            host_seconds=host_seconds,
        ),
    )


def load(classes: dict[str, Any], **scheduler: Any) -> workload.Workload:
    settings = {"scheduler": {"maxNumSeqs": 8, "maxNumBatchedTokens": 64, "maxQueueSeconds": 1e6} | scheduler}
    return workload.parse({"seed": 1, "classes": classes, "settings": settings}, "made")


def one(**changes: Any) -> dict[str, Any]:
    return {"chat": {"arrivals": {"at": {"seconds": [100]}}, "promptTokens": 20, "outputTokens": 5} | changes}


def test_one_request_step_by_step() -> None:
    """It comes at 100 s; its prompt fits one step, and each of its five tokens takes one."""
    found = running.run(measured(100), load(one())).report
    chat = found.classes["chat"]
    assert (chat.requests, chat.served, chat.output_tokens, chat.prompt_tokens) == (1, 1, 5, 20)
    assert chat.time_to_first_token.max == pytest.approx(1.0)
    assert chat.queue_wait.max == 0.0
    assert (chat.between_tokens.num, chat.between_tokens.max) == (4, pytest.approx(1.0))
    assert chat.end_to_end.max == pytest.approx(5.0)
    assert (found.steps, found.seconds) == (5, pytest.approx(105.0))
    assert found.batch.busy_share == pytest.approx(5 / 105)
    assert found.batch.mean_concurrency == pytest.approx(5 / 105)


def test_who_comes_during_a_step_is_planned_one_step_ahead() -> None:
    """At 0.5 s step 1 runs and step 2 is planned already, so the first turn is in step 3, from 2 s on."""
    classes = {
        "first": {"arrivals": {"at": {"seconds": [0]}}, "promptTokens": 20, "outputTokens": 20},
        "second": {"arrivals": {"at": {"seconds": [0.5]}}, "promptTokens": 20, "outputTokens": 5},
    }
    second = running.run(measured(100), load(classes)).report.classes["second"]
    assert second.queue_wait.max == pytest.approx(1.5)
    assert second.time_to_first_token.max == pytest.approx(2.5)


def test_a_deadline_that_passes_while_a_step_runs_is_told_without_waiting_for_it() -> None:
    """No prices are known yet, so nothing is refused early: its deadline passes beside another's steps of a second."""
    classes = {
        "first": {"arrivals": {"at": {"seconds": [0]}}, "promptTokens": 20, "outputTokens": 9},
        "late": {"arrivals": {"at": {"seconds": [0.1]}}, "promptTokens": 20, "outputTokens": 9, "deadlineSeconds": 2.2},
    }
    found = running.run(measured(100), load(classes, maxNumSeqs=1)).report.classes
    assert (found["first"].served, found["late"].served) == (1, 0)
    assert found["late"].requests == 1


def test_a_true_length_under_max_tokens_ends_with_a_stop_token() -> None:
    found = running.run(measured(100), load(one(maxTokens=50)))
    assert found.report.classes["chat"].output_tokens == 5
    longer = running.run(measured(100), load(one(maxTokens=3)))
    assert longer.report.classes["chat"].output_tokens == 3


def test_users_wait_for_their_answers() -> None:
    classes = one(arrivals={"users": {"num": 3, "thinkSeconds": 10}}, requests=12)
    found = running.run(measured(100), load(classes)).report
    assert (found.classes["chat"].served, found.batch.peak_concurrency) == (12, 3)
    assert found.seconds == pytest.approx(4 * 5 + 3 * 10, abs=2), "four rounds of five steps, three of thinking"


TIGHT = {
    "early": {"arrivals": {"bursts": {"size": 6, "everySeconds": 30}}, "requests": 24, "promptTokens": 30}
    | {"outputTokens": {"uniform": {"min": 20, "max": 90}}, "maxTokens": 100},
    "late": {"arrivals": {"even": {"perSecond": 0.1}}, "requests": 10, "promptTokens": 40}
    | {"outputTokens": 12, "maxTokens": 100, "priority": 1},
}


@pytest.mark.parametrize(("num_swap", "mode"), [(0, "recompute"), (40, "swap")])
def test_preempted_requests_get_all_their_tokens(num_swap: int, mode: str) -> None:
    """The worker refuses a sequence that comes back with another text; here all come to their full length."""
    tight = load(TIGHT, maxNumSeqs=40, queueWatermark=1.0, preemptWatermark=1.0, preemptionMode=mode)
    found = running.run(measured(20, num_swap=num_swap), tight, check_every_steps=1).report
    roomy = running.run(measured(2000), tight).report
    assert found.preemptions.total > 5
    assert (found.preemptions.swap > 0) == (mode == "swap")
    assert 0 < found.preemptions.most_of_one_request <= 3
    assert found.pages.copied_out == found.pages.copied_in
    assert (found.pages.copied_out > 0) == (mode == "swap")
    for name in TIGHT:
        assert found.classes[name].served == roomy.classes[name].served == TIGHT[name]["requests"]
        assert found.classes[name].output_tokens == roomy.classes[name].output_tokens
    assert roomy.preemptions.total == 0


def test_clients_come_back_and_give_up() -> None:
    classes = one(
        arrivals={"bursts": {"size": 10, "everySeconds": 1e6}},
        requests=10,
        retries={"most": 2, "backoffSeconds": 1, "heedsRetryAfter": False},
    )
    found = running.run(measured(100), load(classes, maxNumSeqs=2, maxQueuedRequests=0)).report.classes["chat"]
    assert (found.requests, found.served_first_try) == (10, 2)
    assert found.served + found.gave_up == 10
    assert found.gave_up > 0
    assert found.tries == 10 + 8 + 8, "nobody is served within a second or three"
    assert sum(found.rejected_tries.values()) == found.tries - found.served


def test_retries_that_heed_retry_after_are_served() -> None:
    classes = one(
        arrivals={"bursts": {"size": 4, "everySeconds": 1e6}}, requests=4, retries={"most": 9, "backoffSeconds": 1}
    )
    found = running.run(measured(100), load(classes, maxNumSeqs=2, maxQueuedRequests=0)).report.classes["chat"]
    assert (found.served, found.served_first_try, found.gave_up) == (4, 2, 0)
    assert found.time_to_first_token.max > 4, "counted from the first try"


def test_what_can_never_fit_is_not_tried_again() -> None:
    classes = one(promptTokens=5000, retries={"most": 5})
    found = running.run(measured(100), load(classes)).report.classes["chat"]
    assert (found.tries, found.gave_up, found.rejected_tries) == (1, 1, {"never_fits": 1})


def test_a_shared_beginning_is_found_again() -> None:
    even = {"even": {"perSecond": 0.01}}
    shared = running.run(measured(100), load(one(arrivals=even, requests=5, promptTokens=40, sharedPromptTokens=32)))
    apart = running.run(measured(100), load(one(arrivals=even, requests=5, promptTokens=40)))
    assert shared.report.pages.prefix_hit_share == pytest.approx(4 * 32 / (5 * 40))
    assert apart.report.pages.prefix_hit_share == 0.0


def test_a_million_idle_seconds_cost_nothing() -> None:
    found = running.run(measured(100), load(one(arrivals={"at": {"seconds": [0, 1e6]}}))).report
    assert (found.steps, found.seconds) == (10, pytest.approx(1e6 + 5))


def test_host_time_is_beside_the_device() -> None:
    def end(host_seconds: float) -> float:
        return running.run(measured(100, host_seconds=host_seconds), load(one())).report.seconds

    assert end(0.5) == pytest.approx(end(0.0) + 0.5), "hidden behind all steps but the first"


def test_an_engine_that_does_not_move_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = running.Simulation(measured(100), load(one()))
    monkeypatch.setattr(simulation.engine, "step", list)
    with pytest.raises(running.SimulationStuck, match=r"no progress after step 0 at 100\.000 virtual seconds"):
        simulation.run()


def test_steps_can_be_limited_and_progress_is_told() -> None:
    told: list[tuple[float, int]] = []
    classes = one(arrivals={"users": {"num": 4}}, requests=2000)
    found = running.run(
        measured(100), load(classes), max_steps=2100, progress=lambda share, steps, _: told.append((share, steps))
    )
    assert found.report.steps == 2100
    assert [steps for _, steps in told] == [1000, 2000]
    assert 0 < told[0][0] < told[1][0] < 1


def test_pages_and_waste_are_as_the_sequences_are() -> None:
    """One sequence of 20 prompt tokens and up to 400 more in pages of 16: on average half a page is empty."""
    found = running.run(measured(100), load(one(outputTokens=400))).report.pages
    assert found.peak_used_share == pytest.approx(27 / 100, abs=0.011)
    assert found.mean_used_share == pytest.approx(14 / 100, abs=0.02)
    assert 0.01 < found.mean_waste < 0.1


@pytest.mark.parametrize("file", WORKLOADS, ids=lambda file: file.stem)
def test_every_example_runs_and_is_drawn(file: Path) -> None:
    profile = profiles.load(PROFILES.get(file.stem, "l40s/8b"))
    result = running.run(profile, workload.load(file), max_steps=400, check_every_steps=100)
    assert result.report.output_tokens_per_second > 0
    drawn = plot.svg(result.report, result.record)
    assert drawn.count("<polyline") >= 5
    assert "nan" not in drawn


def test_two_processes_say_the_same_to_the_byte() -> None:
    program = (
        "import sys, pathlib\n"
        "from tidemark_runtime.simulation import profiles, report, running, workload\n"
        "load = workload.load(pathlib.Path(sys.argv[1]), seed=int(sys.argv[2]))\n"
        "print(report.to_json(running.run(profiles.load('rtx4090/7b'), load, max_steps=600).report))\n"
        "assert 'torch' not in sys.modules\n"
    )

    def said(seed: int, hash_seed: str) -> str:
        command = [sys.executable, "-c", program, str(ROOT / "examples/workloads/saturation.yaml"), str(seed)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    first = said(5, "1")
    assert first == said(5, "2")
    assert first != said(6, "1")
    assert json.loads(first)["classes"]["mixed"]["requests"] > 100


def test_the_report_is_camel_case_down_to_the_leaves() -> None:
    mapping = report.to_mapping(running.run(measured(100), load(TIGHT)).report)
    assert list(mapping["classes"]) == ["all", "early", "late"]
    assert mapping["classes"]["all"]["timeToFirstToken"]["num"] == 34
    assert mapping["memoryBytes"].keys() == {"weights", "kv"}
    assert not [key for key in _keys(mapping) if "_" in key]


def _keys(value: object) -> list[str]:
    if not isinstance(value, dict):
        return []
    return [*value, *(key for item in value.values() for key in _keys(item))]


def test_the_device_sees_joins_once() -> None:
    """What the simulation takes a sequence's turns from."""
    seen: list[step_plan.StepPlan] = []
    simulation = running.Simulation(measured(100), load(one()))
    simulation.device._seen = lambda plan, start, end: seen.append(plan)
    simulation.run()
    assert [len(plan.joins) for plan in seen] == [1, 0, 0, 0, 0]


def test_every_try_that_ends_is_told_with_the_moment_of_its_first_token() -> None:
    """One that is served, and one that can never fit and gets no token."""
    told: list[tuple[str, float, float, float, bool]] = []

    def ended(entry: recorder.Try, output: messages.SequenceOutput) -> None:
        name, served = entry.request.kind.name, recorder.was_served(output)
        told.append((name, entry.sent, entry.first_token, entry.last_token, served))

    huge = {"arrivals": {"at": {"seconds": [200]}}, "promptTokens": 200, "outputTokens": 5}
    running.Simulation(measured(10), load(one() | {"huge": huge}), ended=ended).run()
    assert told == [("chat", 100.0, pytest.approx(101.0), pytest.approx(105.0), True), ("huge", 200.0, 0.0, 0.0, False)]
