"""A model on several devices that are no devices: the text of one processor, and an end for all where one fails.

The first test is two processes with our kernels. The others are threads with plain torch, which take a tenth of it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import device_team
import pytest
import quick_interpreter
import rank_team
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import guess_value, ngram, sampling, speculation, step_plan
from tidemark_runtime.engine import followers, messages, workers
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources
from tidemark_runtime.planning import vendors
from tidemark_runtime.worker import (
    accelerators,
    device_loading,
    device_ranks,
    device_selftest,
    device_worker,
    process_group,
    rank_messages,
    ranks,
    torch_worker,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PATIENCE_SECONDS = 60.0
"""For what is due at once, on a busy machine."""

QUICK_RANK = Path(__file__).parents[2] / "support" / "quick_rank.py"
SHARED = [3, 14, 15, 9, 26, 5, 35, 8]
"""One page."""
PROMPTS = ([*SHARED, 7, 1], [*SHARED, 2, 2, 8, 4, 4], [5, 9, 1])
PARAMS = (
    sampling.SamplingParams(max_tokens=6, temperature=0.0, ignore_stop_tokens=True),
    sampling.SamplingParams(max_tokens=5, temperature=0.9, seed=11, top_p=0.95, ignore_stop_tokens=True),
    sampling.SamplingParams(max_tokens=5, temperature=0.0, num_logprobs=2, ignore_stop_tokens=True),
)
SMALL: dict[str, dict[str, Any]] = {
    "model": {"dtype": "float32"},
    "kvCache": {"numPages": 5, "swapSpace": "64Ki", "prefixCaching": True},
    "scheduler": {
        "maxNumSeqs": 3,
        "maxNumBatchedTokens": 7,
        "preemptionMode": "swap",
        "queueWatermark": 1.0,
        "preemptWatermark": 1.0,
        "watermarkHysteresis": 0.0,
    },
}
"""A pool in which somebody has to give way, prompts in chunks."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rank_team.write(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head for each of two ranks: the interpreter runs a program for each head."""
    shape = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "head_dim": 16}
    return rank_team.write(tmp_path_factory.mktemp("tiny"), shape)


def on_processor(folder: Path, sections: dict[str, dict[str, Any]]) -> rank_team.Asked:
    settings = rank_team.settings_of(folder, sections)
    return rank_team.Asked(
        torch_worker.create(settings, sources.resolve(str(folder), folder), lambda *_: None), settings
    )


def asked(folder: Path, sections: dict[str, dict[str, Any]], team: device_team.Team) -> rank_team.Asked:
    return rank_team.Asked(None, rank_team.settings_of(folder, sections), team.steps)


def twice(asked: rank_team.Asked) -> list[dict[str, list[int]]]:
    """The three together, then the first again, whose first page is known."""
    found = []
    for count in (3, 1):
        asked.submit(PROMPTS[:count], PARAMS[:count])
        found.append(asked.run())
    return found


# ---------------------------------------------------------------------------------------- two processes


def started(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *how: str
) -> tuple[followers.Followers, Callable[[], Any]]:
    """Another rank's process, and what makes the worker of both."""
    quick_interpreter.install(monkeypatch)
    monkeypatch.setattr(device_selftest, "run", lambda subject: device_selftest.untested(subject.choices))
    monkeypatch.setattr(followers, "COMMAND", (sys.executable, str(QUICK_RANK), *how))
    settings = device_team.on_device(rank_team.settings_of(folder, {**SMALL, "hardware": {"tensorParallel": 2}}))
    made = followers.Followers(settings, sources.resolve(str(folder), folder), tmp_path / "ranks")
    return made, lambda: workers.start(settings, lambda *_: None, made)


def test_two_processes_with_our_kernels_write_what_a_processor_writes(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, start = started(tiny, tmp_path, monkeypatch)
    one = on_processor(tiny, SMALL)
    want = twice(one)
    steps = start()
    two = rank_team.Asked(None, rank_team.settings_of(tiny, SMALL), steps)
    assert twice(two) == want
    stats, facts = two.core.stats(), steps.facts
    assert stats.preemptions_swap_total > 0
    assert stats.resumes_swap_total > 0
    assert stats.prefix_hit_tokens_total >= 8
    assert {path.path for path in facts.kernel_paths} == {"triton"}
    assert facts.notes["graphs"].startswith("none: a recorded sum over ranks")
    assert facts.notes["ranks"].startswith("2 by gloo, bytes measured: rank 0: weights ")
    assert facts.layout.shape.num_kv_heads == 1
    two.core.close()
    others.close()
    others_code = others._processes[0].returncode
    assert others_code == 0
    one.core.close()


def test_a_rank_that_is_killed_while_it_loads_ends_the_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, start = started(folder, tmp_path, monkeypatch, "killed")
    with pytest.raises(errors.RankLost, match=r"rank 1 of 2, which has a part of the model, was killed \(SIGKILL\)"):
        start()
    others.close()


# -------------------------------------------------------------------------------------- ranks as threads


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    device_team.install(monkeypatch)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("size", "kv_cache"),
    [
        (2, {"dtype": "int8"}),
        (3, {"dtype": "int8", "precision": [{"layers": "1", "heads": "0,4", "kind": "k", "dtype": "bfloat16"}]}),
    ],
)
def test_text_is_what_a_processor_writes(folder: Path, tmp_path: Path, size: int, kv_cache: dict[str, Any]) -> None:
    sections = {**SMALL, "kvCache": {**SMALL["kvCache"], **kv_cache}}
    one = on_processor(folder, sections)
    want = twice(one)
    team = device_team.Team(tmp_path / "ranks", device_team.on_device(rank_team.settings_of(folder, sections)), size)
    have = asked(folder, sections, team)
    assert twice(have) == want
    assert have.core.stats().preemptions_total > 0
    have.core.close()
    assert [other.result(PATIENCE_SECONDS) for other in team.others] == [None] * (size - 1)
    team.let_go()
    one.core.close()


@pytest.mark.usefixtures("plain")
def test_guesses_right_and_wrong_are_checked_by_all_ranks(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank finds out by itself how many were right, from the tokens that the first one has drawn."""
    one = on_processor(folder, SMALL)
    want = twice(one)
    texts = [[*prompt, *tokens] for prompt, tokens in zip(PROMPTS, want[0].values(), strict=True)]

    def guess(_index: ngram.Index, known: Sequence[int], count: int) -> ngram.Guess | None:
        follows = [text[len(known) : len(known) + count] for text in texts if text[: len(known)] == list(known)]
        if not follows or not follows[0]:
            return None
        *right, last = follows[0]
        return ngram.Guess((*right, (last + 1) % 101), ngram.MOST_MATCH)

    monkeypatch.setattr(ngram.Index, "guess", guess)
    monkeypatch.setattr(guess_value.Price, "seconds", lambda _price, _token: 0.0)
    monkeypatch.setattr(speculation, "FIRST_PLAIN_STEPS", 1)
    sections = {**SMALL, "speculative": {"method": "ngram", "tokens": 3}}
    team = device_team.Team(tmp_path / "ranks", device_team.on_device(rank_team.settings_of(folder, sections)), 2)
    have = asked(folder, sections, team)
    assert twice(have) == want
    stats = have.core.stats()
    assert 0 < stats.guesses_accepted_total < stats.guesses_proposed_total
    have.core.close()
    assert [other.result(PATIENCE_SECONDS) for other in team.others] == [None]
    team.let_go()
    one.core.close()


class Spoiled:
    """A model that raises in the forward pass that `armed` says, on one rank."""

    def __init__(self, rank: int, error: BaseException) -> None:
        self._rank = rank
        self._error = error
        self.armed = threading.Event()

    def __call__(self, rank: int, worker: device_worker.DeviceWorker) -> None:
        if rank != self._rank:
            return
        assert worker._steps is not None
        inner = worker._steps._model._layers[1]  # in the middle: sums before and behind it
        forward = inner.forward

        def spoiled(*given: Any) -> torch.Tensor:
            if self.armed.is_set():
                self.armed.clear()
                raise self._error
            made: torch.Tensor = forward(*given)
            return made

        inner.forward = spoiled


def spoiled_team(folder: Path, tmp_path: Path, size: int, spoiled: Spoiled) -> device_team.Team:
    settings = device_team.on_device(rank_team.settings_of(folder, SMALL))
    return device_team.Team(tmp_path / "ranks", settings, size, spoil=spoiled)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("size", "rank"), [(2, 0), (2, 1), (3, 2)])
def test_memory_that_runs_out_on_one_rank_ends_the_step_on_all_and_they_go_on(
    folder: Path, tmp_path: Path, size: int, rank: int
) -> None:
    spoiled = Spoiled(rank, torch.OutOfMemoryError("Tried to allocate 20.00 GiB"))
    team = spoiled_team(folder, tmp_path, size, spoiled)
    have = asked(folder, SMALL, team)
    have.submit(PROMPTS[:2], PARAMS[:2])
    for _ in range(3):
        have._take(have.core.step())
    spoiled.armed.set()
    have.run()
    ends = [outputs[-1] for outputs in have.outputs.values()]
    assert {end.finish for end in ends} == {messages.FinishReason.FAILED}
    assert all("memory ran out in a step: Tried to allocate" in end.message for end in ends)
    assert (f"rank {rank}" in ends[0].message) == (rank > 0)
    one = on_processor(folder, SMALL)
    assert twice(have) == twice(one)
    assert team.worker._meetings.generation == 2
    have.core.close()
    one.core.close()
    team.let_go()


@pytest.mark.usefixtures("plain")
def test_another_error_of_a_rank_is_the_end_and_says_what_it_was(folder: Path, tmp_path: Path) -> None:
    spoiled = Spoiled(1, errors.EngineError("the model computed nan"))
    team = spoiled_team(folder, tmp_path, 2, spoiled)
    spoiled.armed.set()
    with pytest.raises(errors.RankLost, match="rank 1: the model computed nan"):
        team.steps.submit(prompt(1)).result(30)
    with pytest.raises(errors.EngineError, match="nan"):
        team.others[0].result(PATIENCE_SECONDS)
    with pytest.raises(errors.RankLost, match="nan"):
        team.steps.submit(prompt(2)).result(30)
    team.let_go()


def prompt(step: int) -> step_plan.StepPlan:
    params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
    join = step_plan.Join(slot=0, token_ids=(1, 2, 3), num_prompt_tokens=3, params=params, pages=(0,))
    return step_plan.StepPlan(
        step=step, joins=(join,), chunks=(step_plan.Chunk(slot=0, start=0, count=3, samples=True),)
    )


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda frames: [frames[0][:-3]], r"rank 1: message \d+ of rank 0 cannot be read, it was cut"),
        (lambda frames: [frames[0], frames[0]], r"rank 1: message \d+ of rank 0 came twice"),
        (lambda frames: [], r"rank 1: message \d+ of rank 0 is here, but 1 before it are missing"),
    ],
)
def test_a_plan_that_is_cut_repeated_or_lost_ends_all(
    folder: Path, tmp_path: Path, spoil: Callable[[list[bytes]], list[bytes]], told: str
) -> None:
    team = device_team.Team(tmp_path / "ranks", device_team.on_device(rank_team.settings_of(folder, SMALL)), 2)
    frames, socket = team.link._frames, team.link._to[0]
    frame = frames.write(rank_messages.Execute(prompt(1)))
    for each in spoil([frame]):
        socket.send(each)
    with pytest.raises(errors.RankLost, match=told):  # noqa: PT012  what was sent twice is noticed behind the first
        team.steps.submit(prompt(2)).result(30)
        team.steps.submit(prompt(3)).result(30)
    team.let_go()


@pytest.mark.usefixtures("plain")
def test_steps_that_need_what_was_lost_are_not_sent(folder: Path, tmp_path: Path) -> None:
    """A step ahead: the plan behind the one that failed was made before anybody knew."""
    spoiled = Spoiled(1, torch.OutOfMemoryError("Tried to allocate 20.00 GiB"))
    team = spoiled_team(folder, tmp_path, 2, spoiled)
    spoiled.armed.set()
    behind = step_plan.StepPlan(step=2, decodes=(0,))
    failed, lost = team.steps.submit(prompt(1)), team.steps.submit(behind)
    for each in (failed, lost):
        with pytest.raises(errors.OutOfMemory, match="rank 1: memory ran out"):
            each.result(30)
    anew = team.steps.submit(prompt(3)), team.steps.submit(step_plan.StepPlan(step=4, decodes=(0,)))
    assert all(len(each.result(30).token_ids) == 1 for each in anew)
    team.steps.close()
    team.let_go()


def test_plans_that_begin_in_themselves_need_nothing() -> None:
    assert device_ranks.needs_nothing(prompt(1))
    assert not device_ranks.needs_nothing(step_plan.StepPlan(step=1, decodes=(0,)))
    assert not device_ranks.needs_nothing(step_plan.StepPlan(step=1, new_pages=(step_plan.NewPages(0, (1,)),)))
    assert device_ranks.needs_nothing(step_plan.StepPlan(step=1, swaps_out=(step_plan.Copy(1, 1),)))


# ----------------------------------------------------------------------------- what is refused beforehand


def test_fewer_devices_than_ranks_are_refused_with_both_numbers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 1)
    settings = rank_team.settings_of(folder, {"hardware": {"device": "cuda", "tensorParallel": 4}})
    told = "hardware.tensorParallel: got 4, expected at most 1: this process sees 1 of type cuda"
    with pytest.raises(errors.ConfigError, match=told):
        followers.Followers(settings, sources.resolve(str(folder), folder), tmp_path / "ranks")
    assert not (tmp_path / "ranks").exists()
    accelerators.check_count("cuda", 1, ranks.KEY)


@pytest.mark.usefixtures("plain")
def test_a_draft_model_is_refused_where_several_devices_share_the_model(folder: Path, tmp_path: Path) -> None:
    sections = {**SMALL, "speculative": {"method": "draft", "draftModel": str(folder)}}
    settings = device_team.on_device(rank_team.settings_of(folder, sections))
    place = ranks.Place(process_group.GlooGroup(model_parallel.Shard(0, 2), tmp_path), lambda pages: pages)
    with pytest.raises(errors.ConfigError, match=r"speculative\.draftModel.*none where 2 devices share the model"):
        device_loading.load_rank(settings, sources.resolve(str(folder), folder), lambda *_: None, place)


@pytest.mark.usefixtures("plain")
def test_a_model_that_does_not_divide_is_refused_with_the_numbers(folder: Path, tmp_path: Path) -> None:
    settings = device_team.on_device(rank_team.settings_of(folder, SMALL))
    place = ranks.Place(process_group.GlooGroup(model_parallel.Shard(0, 5), tmp_path), lambda pages: pages)
    with pytest.raises(errors.ConfigError, match=r"hardware.tensorParallel: got 5, expected one of 1, 2, 3, 6, 12"):
        device_loading.load_rank(settings, sources.resolve(str(folder), folder), lambda *_: None, place)


@pytest.mark.parametrize("kind", vendors.VENDORS)
def test_each_vendor_has_a_backend_and_one_that_is_not_there_is_named(kind: str, tmp_path: Path) -> None:
    group = process_group.of_device(kind, model_parallel.Shard(0, 2), tmp_path)
    assert group.backend == vendors.VENDORS[kind].collectives
    if kind in ("npu", "musa", "mlu"):
        with pytest.raises(errors.ConfigError, match=f"torch.distributed has no backend {group.backend}"):
            group.meet(1)


def test_the_backend_that_was_registered_is_used_without_a_default_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gloo under a vendor's name: sums in place, and what a vendor cannot gather to one rank is gathered to all."""
    torch.distributed.Backend._ensure_backend_registered("gloo")
    plugins = dict(torch.distributed.Backend._plugins)
    monkeypatch.setattr(torch.distributed.Backend, "_plugins", {**plugins, "CNCL": plugins["GLOO"]})
    groups = [process_group.of_device("mlu", model_parallel.Shard(rank, 2), tmp_path) for rank in range(2)]
    found: dict[int, list[torch.Tensor]] = {}

    def rank(group: Any) -> None:
        group.meet(1)
        own = torch.full((3, 2), float(group.shard.rank + 1))
        found[group.shard.rank] = [
            group.gather(own),
            group.all_reduce(own.clone()),
            group.broadcast(torch.tensor([group.shard.rank])),
        ]
        group.leave()

    threads = [threading.Thread(target=rank, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert torch.equal(found[0][0], torch.tensor([[1.0, 1.0, 2.0, 2.0]] * 3))
    for _, total, told in found.values():
        assert torch.equal(total, torch.full((3, 2), 3.0))
        assert told.tolist() == [0]
    assert not torch.distributed.is_initialized()
    assert not groups[0].can_leave
