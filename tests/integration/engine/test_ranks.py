"""Several ranks against one: the same text whatever the engine does, and an end for everybody where one fails."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rank_team
import torch

from tidemark_runtime import errors
from tidemark_runtime.core import sampling, step_plan
from tidemark_runtime.engine import messages
from tidemark_runtime.model import parallel as model_parallel
from tidemark_runtime.model import sources
from tidemark_runtime.planning import capacity
from tidemark_runtime.worker import interface, process_group, rank_links, rank_messages, ranks, torch_worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 60.0
"""For what is due at once, on a busy machine."""
Finish = messages.FinishReason
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "recompute": {"scheduler": {"preemptionMode": "recompute"}},
    "swap": {"scheduler": {"preemptionMode": "swap"}, "kvCache": {"swapSpace": "1Mi"}},
    "int8, a map": {
        "kvCache": {"dtype": "int8", "precision": [{"layers": "1", "heads": "0,4", "kind": "k", "dtype": "bfloat16"}]}
    },
    "guesses": {"speculative": {"method": "ngram", "tokens": 3}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rank_team.write(tmp_path_factory.mktemp("model"))


def alone(folder: Path, sections: dict[str, dict[str, Any]]) -> rank_team.Asked:
    settings = rank_team.settings_of(folder, sections)
    source = sources.resolve(str(folder), folder)
    worker = torch_worker.create(settings, source, lambda _phase, _share: None)
    asked = rank_team.Asked(worker, settings)
    asked.submit(rank_team.PROMPTS, rank_team.PARAMS)
    return asked


@pytest.mark.parametrize(("way", "size"), [("recompute", 2), ("swap", 2), ("int8, a map", 3), ("guesses", 3)])
def test_text_is_what_one_rank_writes(tmp_path: Path, folder: Path, way: str, size: int) -> None:
    """Chunked by a budget of 24 tokens, preempted by a slab of 12 pages, greedy beside sampled."""
    one = alone(folder, WAYS[way])
    want = one.run()
    settings = rank_team.settings_of(folder, WAYS[way])
    team = rank_team.Team(tmp_path / "ranks", settings, size)
    asked = rank_team.Asked(team.worker, settings)
    asked.submit(rank_team.PROMPTS, rank_team.PARAMS)
    assert asked.run() == want
    assert {len(tokens) for tokens in want.values()} == {30}
    stats = asked.core.stats()
    assert stats.preemptions_total > 0
    assert (stats.swapped_out_pages_total > 0) == (way == "swap")
    have, known = ([each for output in side.outputs["r2"] for each in output.logprobs] for side in (asked, one))
    assert [each.top_ids for each in have] == [each.top_ids for each in known]
    assert [each.chosen for each in have] == pytest.approx([each.chosen for each in known], abs=1e-4)
    asked.core.close()
    team.let_go()
    one.core.close()


def test_facts_are_of_all_ranks(tmp_path: Path, folder: Path) -> None:
    settings = rank_team.settings_of(folder, {"kvCache": {"swapSpace": "64Ki"}})
    single = torch_worker.create(settings, sources.resolve(str(folder), folder), lambda *_: None)
    team = rank_team.Team(tmp_path / "ranks", settings, 2)
    one, two = single.facts, team.worker.facts
    # Panels of 16 outputs are filled up on each rank; here that is much, in real models it is nothing.
    assert one.memory_bytes["weights"] <= two.memory_bytes["weights"] < 1.3 * one.memory_bytes["weights"]
    assert two.memory_bytes["kv"] == one.memory_bytes["kv"] == 12 * one.layout.page_bytes
    assert two.layout.page_bytes == one.layout.page_bytes // 2
    assert two.num_host_pages == one.num_host_pages
    assert one.shape is not None
    assert two.shape is not None
    assert dataclasses.replace(two.shape, weights_bytes=0) == dataclasses.replace(one.shape, weights_bytes=0)
    assert two.planned_bytes["kv"] == one.planned_bytes["kv"]
    assert two.memory_limit_bytes == 2 * rank_team.MEMORY_BYTES
    assert two.notes["ranks"].startswith("2 by gloo, bytes measured: rank 0: weights ")
    assert "; rank 1: weights " in two.notes["ranks"]
    team.close()
    single.close()


def test_pages_and_paths_are_of_all_ranks(tmp_path: Path, folder: Path) -> None:
    """A precision map of heads that the second rank has: the first one's pages know nothing of its dtype."""
    rules = [{"layers": "1", "heads": "4", "kind": "k", "dtype": "bfloat16"}]
    sections = {"kvCache": {"dtype": "int8", "precision": rules}}
    team = rank_team.Team(tmp_path / "ranks", rank_team.settings_of(folder, sections), 2)
    whole = torch_worker.create(
        rank_team.settings_of(folder, sections), sources.resolve(str(folder), folder), lambda *_: None
    )
    facts, one = team.worker.facts, whole.facts
    assert set(facts.layout.page_bytes_by_dtype) == {"int8"}
    assert dict(facts.page.by_dtype) == one.layout.page_bytes_by_dtype
    assert facts.page.total == one.layout.page_bytes == sum(facts.page.by_dtype.values())
    assert facts.memory_bytes["kv"] == facts.num_pages * facts.page.total
    assert one.page == interface.PageBytes(one.layout.page_bytes, one.layout.page_bytes_by_dtype)
    assert "of each rank" in facts.notes["memoryLimit"]
    written = {path.dtype for path in facts.kernel_paths if path.op == "paged_attention"}
    assert written == {path.dtype for path in one.kernel_paths if path.op == "paged_attention"}
    team.close()
    whole.close()


class Spoiled:
    """A model that raises in the forward pass that `when` says, on one rank."""

    def __init__(self, rank: int, error: BaseException) -> None:
        self._rank = rank
        self._error = error
        self.armed = threading.Event()

    def __call__(self, rank: int, worker: torch_worker.TorchWorker) -> None:
        if rank != self._rank:
            return
        model = worker._model
        assert model is not None
        inner = model._layers[1]  # type: ignore[attr-defined]  in the middle: sums before and behind it
        forward = inner.forward

        def spoiled(*given: Any) -> torch.Tensor:
            if self.armed.is_set():
                self.armed.clear()
                raise self._error
            made: torch.Tensor = forward(*given)
            return made

        inner.forward = spoiled


@pytest.mark.parametrize("rank", [0, 1])
def test_memory_that_runs_out_on_one_rank_ends_the_step_on_all_and_they_go_on(
    tmp_path: Path, folder: Path, rank: int
) -> None:
    settings = rank_team.settings_of(folder)
    spoiled = Spoiled(rank, MemoryError())
    team = rank_team.Team(tmp_path / "ranks", settings, 2, spoil=spoiled)
    asked = rank_team.Asked(team.worker, settings)
    asked.submit(rank_team.PROMPTS[:2], rank_team.PARAMS[:2])
    for _ in range(4):
        asked._take(asked.core.step())
    spoiled.armed.set()
    asked.run()
    ends = [outputs[-1] for outputs in asked.outputs.values()]
    assert {end.finish for end in ends} == {Finish.FAILED}
    assert all("memory ran out in a step" in end.message for end in ends)
    assert ("rank 1" in ends[0].message) == (rank == 1)
    asked.submit(rank_team.PROMPTS, rank_team.PARAMS)
    again = asked.run()
    one = alone(folder, {})
    assert again == one.run()
    asked.core.close()
    one.core.close()
    team.let_go()


def test_another_error_of_a_rank_is_the_end_and_says_what_it_was(tmp_path: Path, folder: Path) -> None:
    settings = rank_team.settings_of(folder)
    spoiled = Spoiled(1, errors.EngineError("the model computed nan"))
    team = rank_team.Team(tmp_path / "ranks", settings, 2, spoil=spoiled)
    spoiled.armed.set()
    with pytest.raises(errors.RankLost, match="rank 1: the model computed nan"):
        team.worker.execute(plan(1))
    with pytest.raises(errors.EngineError, match="nan"):
        team.others[0].result(PATIENCE_SECONDS)
    team.let_go()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (lambda frame: [frame[:-3]], r"rank 1: message \d+ of rank 0 cannot be read, it was cut"),
        (lambda frame: [frame[:5]], "rank 1: a message between ranks has 5 bytes: it was cut off"),
        (lambda frame: [frame, frame], r"rank 1: message \d+ of rank 0 came twice"),
        (lambda _frame: [], r"rank 1: message \d+ of rank 0 is here, but 1 before it are missing"),
    ],
)
def test_a_plan_that_is_cut_repeated_or_lost_ends_all(
    tmp_path: Path, folder: Path, sent: Callable[[bytes], list[bytes]], told: str
) -> None:
    team = rank_team.Team(tmp_path / "ranks", rank_team.settings_of(folder), 2)
    frame = team.link._frames.write(rank_messages.Execute(plan(1)))
    for each in sent(frame):
        team.link._to[0].send(each)
    with pytest.raises(errors.RankLost, match=told):  # noqa: PT012  what was sent twice is noticed behind the first
        team.worker.execute(plan(2))
        team.worker.execute(plan(3))
    with pytest.raises(errors.RankLost):
        team.others[0].result(10)
    team.let_go()


def test_an_answer_that_is_cut_ends_the_wait_for_it(tmp_path: Path) -> None:
    first = rank_links.FirstLink(tmp_path, 2, lambda: None)
    other = rank_links.OtherLink(tmp_path, 1)
    other._to.send(other._frames.write(rank_messages.Copied(1, 5))[:-1])
    with pytest.raises(errors.RankLost, match="message 0 of rank 1 cannot be read, it was cut"):
        first.receive(20)
    other.close()
    first.close()


def test_a_message_to_nobody_says_whose_end_is_closed(tmp_path: Path) -> None:
    first = rank_links.FirstLink(tmp_path, 2, lambda: None)
    with pytest.raises(errors.RankLost, match="rank 1 takes no more messages"):
        first.send(rank_messages.Close())
    first.close()


def plan(step: int) -> step_plan.StepPlan:
    params = sampling.SamplingParams(max_tokens=2, temperature=0.0)
    join = step_plan.Join(slot=0, token_ids=(1, 2, 3), num_prompt_tokens=3, params=params, pages=(0,))
    return step_plan.StepPlan(
        step=step, joins=(join,), chunks=(step_plan.Chunk(slot=0, start=0, count=3, samples=True),)
    )


@pytest.fixture(params=[PATIENCE_SECONDS])
def pair(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[process_group.GlooGroup, process_group.GlooGroup]]:
    """The parameter: seconds that one waits for the other."""
    shards = [model_parallel.Shard(rank, 2) for rank in range(2)]
    first, second = (process_group.GlooGroup(shard, tmp_path, wait_seconds=request.param) for shard in shards)
    both(lambda: first.meet(1), lambda: second.meet(1))
    yield first, second
    first.leave()
    second.leave()


def both(here: Any, there: Any) -> None:
    other = threading.Thread(target=there)
    other.start()
    here()
    other.join(PATIENCE_SECONDS)
    assert not other.is_alive()


@pytest.mark.parametrize("pair", [5.0], indirect=True)
def test_a_rank_that_does_not_come_ends_the_wait(
    pair: tuple[process_group.GlooGroup, process_group.GlooGroup],
) -> None:
    with pytest.raises(errors.RankLost, match="all_gather between the ranks failed"):
        pair[0].all_reduce(torch.ones(2, 3))


def test_a_rank_that_leaves_ends_the_wait_at_once_and_all_can_meet_again(
    pair: tuple[process_group.GlooGroup, process_group.GlooGroup],
) -> None:
    first, second = pair
    leaves = threading.Timer(0.05, second.leave)
    leaves.start()
    with pytest.raises(errors.RankLost):
        first.all_reduce(torch.ones(2, 3))
    leaves.join()
    with pytest.raises(errors.RankLost, match="rank 1 is in no group"):
        second.broadcast(torch.ones(1))
    both(lambda: first.meet(2), lambda: second.meet(2))
    x, y = torch.ones(2, 3), torch.full((2, 3), 2.0)
    both(lambda: first.all_reduce(x), lambda: second.all_reduce(y))
    assert torch.equal(x, torch.full((2, 3), 3.0))
    assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_is_in_the_order_of_ranks_whatever_stands_beside_it(
    tmp_path: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_group, "PIECE_BYTES", 1000)
    groups = [process_group.GlooGroup(model_parallel.Shard(rank, 3), tmp_path, PATIENCE_SECONDS) for rank in range(3)]
    terms = [torch.randn(37, 16).to(dtype) for _ in groups]
    rows = torch.arange(5, 9)

    def rank(group: process_group.GlooGroup, term: torch.Tensor, out: list[torch.Tensor]) -> None:
        group.meet(1)
        out += [group.all_reduce(term.clone()), group.all_reduce(term[rows].clone()), group.gather(term)]
        group.leave()

    found: list[list[torch.Tensor]] = [[] for _ in groups]
    threads = [threading.Thread(target=rank, args=each) for each in zip(groups, terms, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    want = (terms[0].float() + terms[1] + terms[2]).to(dtype)
    for whole, some, _ in found:
        assert torch.equal(whole, want)
        assert torch.equal(some, want[rows])
    assert torch.equal(found[0][2], torch.cat(terms, 1))


def test_a_model_that_does_not_divide_is_refused_with_the_numbers(folder: Path) -> None:
    settings = rank_team.settings_of(folder)
    place = ranks.Place(rank_alone(5), lambda pages: pages)
    with pytest.raises(
        errors.ConfigError,
        match=r"hardware.tensorParallel: got 5, expected one of 1, 2, 3, 6, 12. 5 does not divide 12 query heads; "
        r"6 KV heads; an MLP 96 wide. Give one of those, or leave --tensor-parallel out and compute in one process$",
    ):
        torch_worker.load(settings, sources.resolve(str(folder), folder), lambda *_: None, place)
    shape = capacity.KNOWN_SHAPES["smollm2-135m"]
    with pytest.raises(errors.ConfigError, match=r"and use one device; in a manifest it is hardware.count$"):
        ranks.check_divides(shape, 2, "cuda")
    with pytest.raises(errors.CapacityError, match=r"3 KV heads do not divide. Set hardware.count to one of 1, 3$"):
        capacity.divided(shape, 2)


def rank_alone(size: int) -> model_parallel.Group:
    return process_group.GlooGroup(model_parallel.Shard(0, size), Path())


def test_one_rank_is_the_worker_itself(folder: Path) -> None:
    settings = rank_team.settings_of(folder)
    made: interface.Worker = torch_worker.create(settings, sources.resolve(str(folder), folder), lambda *_: None)
    assert "ranks" not in made.facts.notes
    made.close()
