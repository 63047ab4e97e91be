"""`LossyKV` stands while K and V lose facts, and is not there otherwise; one event says when it begins."""

from __future__ import annotations

from typing import Any

import manifests
import pytest

from tidemark_operator import api
from tidemark_operator.reconcile import news
from tidemark_operator.status import lossy
from tidemark_runtime.contract import settings
from tidemark_runtime.contract import status as contract


def engine(**kv_bytes: int) -> contract.EngineStatus:
    return contract.EngineStatus(
        version="0",
        state=contract.EngineState.READY if kv_bytes else contract.EngineState.LOADING,
        message="",
        model=contract.ModelStatus("base", "/models"),
        config=contract.ConfigStatus("abc"),
        memory=contract.MemoryStatus(kv_bytes=kv_bytes),
    )


def condition(
    kv_cache: dict[str, Any], *engines: contract.EngineStatus, previous: dict[str, Any] | None = None
) -> tuple[str, str] | None:
    found = lossy.condition(api.parse(manifests.small(kvCache=kv_cache)), engines, previous or {})
    return None if found is None else (found.status, found.message)


ALL = {"dtype": "int4", "allowLossy": True}
BY_MAP = {"dtype": "int8", "allowLossy": True, "precision": {"mapRef": {"name": "found"}}}


@pytest.mark.parametrize(
    ("kv_cache", "engines", "words"),
    [
        (ALL, [], "int4 is asked for, accepted by spec.kvCache.allowLossy. "),
        (ALL, [engine()], "int4 is asked for"),
        (ALL, [engine(int4=10)], "int4 holds 100% of the KV memory, accepted by spec.kvCache.allowLossy. "),
        (BY_MAP, [engine(int8=300, int4=100)], "int4 holds 25% of the KV memory"),
        (BY_MAP, [engine(int8=300), engine(int8=100, int4=100)], "int4 holds 50% of the KV memory"),
    ],
)
def test_it_stands_while_facts_are_lost(
    kv_cache: dict[str, Any], engines: list[contract.EngineStatus], words: str
) -> None:
    found = condition(kv_cache, *engines)
    assert found is not None
    assert found[0] == "True"
    assert found[1].startswith(words)
    assert settings.LOSSY_COST in found[1]


@pytest.mark.parametrize(
    ("kv_cache", "engines"),
    [
        ({"dtype": "int8"}, [engine(int8=10)]),
        ({"dtype": "int8", "allowLossy": True}, [engine(int8=10)]),
        (BY_MAP, []),
        ({"dtype": "int8"}, [engine(int4=10)]),  # pods of the revision before: their spec is gone
    ],
)
def test_else_it_is_not_there(kv_cache: dict[str, Any], engines: list[contract.EngineStatus]) -> None:
    assert condition(kv_cache, *engines) is None


def test_what_only_an_engine_knows_stays_while_none_has_loaded() -> None:
    before = {"type": "LossyKV", "status": "True", "message": "int4 holds 25% of the KV memory."}
    assert condition(BY_MAP, engine(), previous=before) == ("True", before["message"])
    assert condition(BY_MAP, engine(int8=10), previous=before) is None


def test_one_event_says_that_it_begins() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    on = {"type": "LossyKV", "status": "True", "reason": lossy.REASON, "message": "int4 holds all."}
    plain, with_it = {"conditions": [ready]}, {"conditions": [ready, on]}
    assert list(news.of(plain, with_it)) == [news.News("Warning", "LossyKV", "int4 holds all.")]
    changed = {"conditions": [ready, {**on, "message": "int4 holds half."}]}
    assert list(news.of(with_it, changed)) == []
    assert list(news.of(with_it, plain)) == []
