"""The reference page says what the models say, and the models accept what the engine accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_operator import effects
from tidemark_operator.api import describe, service
from tidemark_operator.commands import reference
from tidemark_runtime.contract import settings

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs/reference/inferenceservice.md"

SAME_RANGE = {
    "model.maxContextTokens": "model.maxContextTokens",
    "kvCache.blockSize": "kvCache.blockSize",
    "kvCache.memoryUtilization": "kvCache.memoryUtilization",
    "scheduler.maxNumSeqs": "scheduler.maxNumSeqs",
    "scheduler.maxNumBatchedTokens": "scheduler.maxNumBatchedTokens",
    "scheduler.preemption.maxPerRequest": "scheduler.maxPreemptionsPerRequest",
    "overload.maxQueuedRequests": "scheduler.maxQueuedRequests",
    "overload.maxQueueSeconds": "scheduler.maxQueueSeconds",
}
SAME_DEFAULT = {
    "kvCache.blockSize": "kvCache.blockSize",
    "kvCache.memoryUtilization": "kvCache.memoryUtilization",
    "kvCache.dtype": "kvCache.dtype",
    "scheduler.preemption.maxPerRequest": "scheduler.maxPreemptionsPerRequest",
    "rollout.drainSeconds": "server.drainSeconds",
    "model.weights.dtype": "model.dtype",
    "model.weights.quantization": "model.quantization",
}
ENGINE = {entry.key: entry for entry in settings.entries()}


def field(path: str) -> tuple[object, list[object], object]:
    hint, metadata, info = describe.hint_at(service.Spec, path.split("."))
    assert info is not None
    return hint, metadata, info.get_default(call_default_factory=True)


def test_the_checked_in_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.page()


@pytest.mark.parametrize(("path", "key"), SAME_RANGE.items())
def test_ranges_are_those_of_the_engine(path: str, key: str) -> None:
    hint, metadata, _ = field(path)
    bounds = {type(item).__name__: item for item in metadata}
    low, high = getattr(bounds.get("Ge"), "ge", None), getattr(bounds.get("Le"), "le", None)
    assert (low, high) == (ENGINE[key].setting.minimum, ENGINE[key].setting.maximum)
    assert hint in (ENGINE[key].type, *getattr(ENGINE[key].type, "__args__", ()))


@pytest.mark.parametrize(("path", "key"), SAME_DEFAULT.items())
def test_defaults_are_those_of_the_engine(path: str, key: str) -> None:
    assert field(path)[2] == ENGINE[key].default


@pytest.mark.parametrize("path", ["scheduler.maxNumSeqs", "scheduler.maxNumBatchedTokens",
                                  "overload.maxQueuedRequests", "overload.maxQueueSeconds"])  # fmt: skip
def test_where_the_engine_chooses_the_page_says_what(path: str) -> None:
    _, _, info = describe.hint_at(service.Spec, path.split("."))
    assert info is not None
    assert isinstance(info.json_schema_extra, dict)
    assert info.json_schema_extra["default_text"] == f"the engine's: {ENGINE[SAME_RANGE[path]].default:g}"


@pytest.mark.parametrize("path", sorted(effects.paths()))
def test_every_path_of_the_effects_table_exists(path: str) -> None:
    assert describe.hint_at(service.Spec, path.split("."))[2] is not None
