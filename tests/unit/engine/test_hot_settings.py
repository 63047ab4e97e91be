"""What the engine process checks before it takes settings over."""

from __future__ import annotations

from typing import Any

import page_checking_worker
import pytest

from tidemark_runtime import config, config_parsing
from tidemark_runtime.engine import core_engine, hot_settings, worker_thread
from tidemark_runtime.planning import page_layout
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
