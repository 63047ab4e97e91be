"""What the engine process checks before it takes settings over."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import page_checking_worker
import pytest

from tidemark_runtime import config, config_parsing
from tidemark_runtime.core import overload, sampling
from tidemark_runtime.engine import core_engine, hot_settings, messages, worker_thread
from tidemark_runtime.planning import capacity, page_layout
from tidemark_runtime.worker import interface

MIB = 2**20


@pytest.fixture
def engine() -> core_engine.CoreEngine:
    worker = page_checking_worker.PageCheckingWorker(num_pages=64, block_size=16, max_num_seqs=8)
    settings = config.SchedulerConfig(max_num_seqs=8)
    return core_engine.CoreEngine(settings, worker_thread.WorkerThread(lambda: worker), max_context_tokens=2048)


def document(**scheduler: Any) -> dict[str, Any]:
    return {"scheduler": {"maxNumSeqs": 8, **scheduler}}


def facts(*, limit_mib: int, used_mib: int, token_bytes: int = MIB) -> interface.WorkerFacts:
    layout = page_layout.PageLayout(page_layout.KVShape(1, 1, 8), 16, "float32")
    return interface.WorkerFacts(
        kind="torch",
        device="cpu",
        dtype="float32",
        layout=layout,
        num_pages=64,
        max_context_tokens=2048,
        memory_bytes={"weights": used_mib * MIB // 2, "workspace": used_mib * MIB // 2},
        memory_limit_bytes=limit_mib * MIB,
        step_token_bytes=token_bytes,
    )


@pytest.fixture
def hot(engine: core_engine.CoreEngine) -> hot_settings.HotSettings:
    """500 MiB are free beside a budget of 512 tokens, 1 MiB each."""
    started = config_parsing.parse(document())
    return hot_settings.HotSettings(started, facts(limit_mib=2000, used_mib=1500), engine)


def test_a_budget_whose_workspace_does_not_fit_is_refused_with_the_sum(hot: hot_settings.HotSettings) -> None:
    (problem,) = hot.take_over(document(maxNumBatchedTokens=1013))
    assert (problem.key, problem.seen) == ("scheduler.maxNumBatchedTokens", "1013")
    assert problem.expected.startswith("at most 1012: each token of the budget takes 1048576 bytes")
    assert "restart" in problem.remedy
    assert hot.take_over(document(maxNumBatchedTokens=1012)) == []
    assert hot.take_over(document(maxNumBatchedTokens=8)) == []
    assert hot.take_over(document()) == [], "back to what it was started with, always"


def test_where_more_is_used_than_allowed_already_nothing_is_added(engine: core_engine.CoreEngine) -> None:
    hot = hot_settings.HotSettings(config_parsing.parse(document()), facts(limit_mib=1000, used_mib=1500), engine)
    assert hot.take_over(document(maxNumBatchedTokens=513))[0].expected.startswith("at most 512:")
    assert hot.take_over(document(maxNumBatchedTokens=511)) == []


def test_a_worker_that_knows_no_limit_sets_none(engine: core_engine.CoreEngine) -> None:
    hot = hot_settings.HotSettings(config_parsing.parse(document()), facts(limit_mib=0, used_mib=1), engine)
    assert hot.take_over(document(maxNumBatchedTokens=100_000)) == []


def test_what_the_server_should_have_refused_is_refused_here_too(hot: hot_settings.HotSettings) -> None:
    assert [each.key for each in hot.take_over({"scheduler": {"maxNumSeqs": 9}})] == ["scheduler.maxNumSeqs"]
    assert [each.key for each in hot.take_over(document(maxQueueSeconds="soon"))] == ["scheduler.maxQueueSeconds"]


# ---- the context limit -------------------------------------------------------------------------------------------


def with_model(max_context_tokens: int | None, **scheduler: Any) -> dict[str, Any]:
    return {"model": {"maxContextTokens": max_context_tokens}, **document(**scheduler)}


def hot_of(engine: core_engine.CoreEngine, *, started: int, own: int) -> hot_settings.HotSettings:
    """Over a worker that was started for `started` tokens, with a model that can do `own`."""
    shape = capacity.ModelShape(
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
        hidden_size=8,
        intermediate_size=8,
        vocab_size=8,
        max_context_tokens=own,
        weights_bytes=1,
    )
    known = dataclasses.replace(facts(limit_mib=2000, used_mib=1500), max_context_tokens=started, shape=shape)
    return hot_settings.HotSettings(config_parsing.parse(with_model(started)), known, engine)


def ask(engine: core_engine.CoreEngine, name: str, num_tokens: int) -> list[messages.SequenceOutput]:
    params = sampling.SamplingParams(num_tokens - 4, temperature=0.0)
    return engine.submit([messages.EngineRequest(name, [1, 2, 3, 4], params)])


def run(engine: core_engine.CoreEngine) -> dict[str, int]:
    """To the end of all; tokens that came out by name."""
    tokens: dict[str, int] = {}
    while engine.has_work:
        for output in engine.step():
            tokens[output.id] = tokens.get(output.id, 0) + len(output.token_ids)
    return tokens


def test_a_lower_context_limit_refuses_newcomers_and_leaves_alone_who_is_here(engine: core_engine.CoreEngine) -> None:
    hot = hot_of(engine, started=2048, own=8192)
    assert ask(engine, "runs", 200) == []
    engine.step()
    assert ask(engine, "waits", 200) == []
    assert hot.take_over(with_model(64)) == []
    (refused,) = ask(engine, "longer", 65)
    assert (refused.finish, refused.reject) == (messages.FinishReason.REJECTED, overload.Reason.CONTEXT_LENGTH)
    assert "65 tokens long, but the context is limited to 64 tokens" in refused.message
    assert ask(engine, "as long", 64) == []
    assert run(engine) == {"runs": 196, "waits": 196, "as long": 60}
    engine.check_integrity()


def test_a_context_limit_can_be_raised_again_up_to_that_of_the_start(engine: core_engine.CoreEngine) -> None:
    hot = hot_of(engine, started=512, own=8192)
    assert hot.take_over(with_model(64)) == []
    assert hot.take_over(with_model(512)) == []
    assert ask(engine, "long", 512) == []
    assert ask(engine, "longer", 513)[0].reject is overload.Reason.CONTEXT_LENGTH


@pytest.mark.parametrize(
    ("wanted", "remedy"), [(513, "restart"), (8192, "restart"), (None, "restart"), (8193, "Lower")]
)
def test_more_context_than_at_the_start_is_refused_with_the_reason(
    engine: core_engine.CoreEngine, wanted: int | None, remedy: str
) -> None:
    hot = hot_of(engine, started=512, own=8192)
    assert hot.take_over(with_model(100, maxQueuedRequests=3)) == []
    (problem,) = hot.take_over(with_model(wanted, maxQueuedRequests=5))
    assert (problem.key, problem.seen) == ("model.maxContextTokens", repr(wanted))
    assert problem.expected == "at most 512, what this engine was started with: its tables hold no more"
    assert "8192 tokens" in problem.remedy
    assert remedy in problem.remedy
    assert ("restart" in problem.remedy) == (remedy == "restart")
    assert "limited to 100" in ask(engine, "longer", 101)[0].message, "nothing has changed"


def test_left_out_it_is_the_models_own_limit(engine: core_engine.CoreEngine) -> None:
    hot = hot_of(engine, started=900, own=900)
    assert hot.take_over(with_model(100)) == []
    assert hot.take_over(with_model(None)) == []
    assert ask(engine, "long", 900) == []
    assert ask(engine, "longer", 901)[0].reject is overload.Reason.CONTEXT_LENGTH


def test_what_the_slab_cannot_hold_is_told_apart_from_what_the_limit_forbids(engine: core_engine.CoreEngine) -> None:
    """64 pages of 16."""
    assert ask(engine, "large", 1025)[0].reject is overload.Reason.NEVER_FITS
    assert hot_of(engine, started=2048, own=2048).take_over(with_model(1024)) == []
    assert ask(engine, "larger", 1025)[0].reject is overload.Reason.CONTEXT_LENGTH


def test_every_problem_is_named(engine: core_engine.CoreEngine) -> None:
    hot = hot_of(engine, started=512, own=512)
    problems = hot.take_over(with_model(513, maxNumBatchedTokens=100_000))
    assert [each.key for each in problems] == ["scheduler.maxNumBatchedTokens", "model.maxContextTokens"]


def test_the_log_level_reaches_this_process(hot: hot_settings.HotSettings) -> None:
    root = logging.getLogger()
    before = root.level
    try:
        root.setLevel(logging.CRITICAL)
        assert hot.take_over(document() | {"server": {"logLevel": "info"}}) == []
        assert root.level == logging.CRITICAL, "not touched where it is as it was"
        assert hot.take_over(document() | {"server": {"logLevel": "error"}}) == []
        assert root.level == logging.ERROR
        assert hot.take_over({"scheduler": {"maxNumSeqs": 9}, "server": {"logLevel": "debug"}}) != []
        assert root.level == logging.ERROR, "all or nothing"
    finally:
        for name in ("", "uvicorn", "asyncio"):
            logging.getLogger(name).setLevel(logging.NOTSET)
        root.setLevel(before)
