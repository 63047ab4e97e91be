"""From sums to figures, limits, comparisons, and the journal that outlives a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.evaluation import figures, journal, results

SPENT = {"promptTokens": 100, "promptSeconds": 2.0, "decodeTokens": 0, "decodeSeconds": 0.0}


def window(tokens: int, kl: float, loss: float, base_loss: float) -> dict[str, Any]:
    sums = {
        "tokens": tokens,
        "klSum": kl * tokens,
        "klMax": 3 * kl,
        "agree": tokens // 2,
        "predicted": tokens,
        "lossSum": loss * tokens,
        "baseLossSum": base_loss * tokens,
        "byPosition": {"0": [tokens, kl * tokens]},
    }
    return {"base": SPENT, "configurations": {"int8": {**sums, **SPENT}}}


def entry(mean_kl: float, rise: float, *, name: str = "int8", rules: dict[str, Any] | None = None) -> figures.Figures:
    speed = figures.Speed(50.0, None)
    text = figures.TextFigures(10, mean_kl, mean_kl, 10 * (1 + rise), 10.0, rise, 1.0, ((0, mean_kl),), speed, speed)
    return figures.Figures(name, "int8", rules, 100.0, text, None, None, None)


def result(*entries: figures.Figures) -> results.Result:
    return results.Result({"model": "made", "plan": {"seed": 1}}, "float32", 400.0, entries)


def test_windows_count_by_their_tokens() -> None:
    text = figures.parts_of("int8", {"text": [window(10, 0.1, 2.0, 1.0), window(30, 0.3, 2.0, 1.0)]})["text"]
    assert text.mean_kl == pytest.approx(0.25)
    assert text.max_kl == pytest.approx(0.9)
    assert text.perplexity == pytest.approx(math.exp(2))
    assert text.perplexity_rise == pytest.approx(math.e - 1)
    assert text.argmax_agreement == 0.5
    assert text.kl_by_position == ((0, pytest.approx(0.25)),)
    assert text.speed == figures.Speed(50.0, None)


def test_answers_are_counted_by_group() -> None:
    def asked(right: bool, same: bool) -> dict[str, Any]:
        answers = {"en/512/0.5": {"right": right, "same": same}}
        base = {"en/512/0.5": {"right": True}}
        mine = {"answers": answers, "rows": 4, "klSum": 0.4, **SPENT}
        return {"base": {"answers": base, **SPENT}, "configurations": {"int8": mine}}

    found = figures.parts_of("int8", {"retrieval": [asked(True, True), asked(False, False)]})["retrieval"]
    assert (found.questions, found.right, found.base_right, found.same) == (2, 0.5, 1.0, 0.5)
    assert found.mean_kl == pytest.approx(0.1)
    assert found.groups == (figures.AnswerFigures("en/512/0.5", 2, 1, 2, 1),)


def test_continuations() -> None:
    mine = {"same": [8, 4], "of": 8, **SPENT}
    found = figures.parts_of("int8", {"greedy": [{"base": SPENT, "configurations": {"int8": mine}}]})["greedy"]
    assert (found.prompts, found.tokens, found.identical, found.same_tokens) == (2, 16, 0.5, 0.75)


def test_limits_name_what_breaks_them() -> None:
    found = result(entry(0.02, 0.004))
    assert results.over(found, results.Limits()) == []
    assert results.over(found, results.Limits(0.02, 0.004)) == []
    assert results.over(found, results.Limits(0.01, 0.001)) == [
        "int8: mean KL 0.02 is over --max-kl 0.01",
        "int8: perplexity rises by 0.400%, over --max-perplexity-rise 0.100%",
    ]


def test_what_is_no_number_is_within_no_limit() -> None:
    found = result(entry(math.nan, math.nan))
    assert results.over(found, results.Limits()) == []
    assert len(results.over(found, results.Limits(0.02, 0.004))) == 2


def test_with_a_map_the_limits_are_for_the_map() -> None:
    found = result(entry(0.5, 0.5), entry(0.01, 0.0, name="int8 + map", rules={"rules": []}))
    assert results.over(found, results.Limits(0.02, 0.004)) == []


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    before, now = (results.to_mapping(result(entry(kl, 0.01))) for kl in (0.02, 0.01))
    (tmp_path / "result.json").write_text(results.to_json(before), encoding="utf-8")
    for path in (tmp_path, tmp_path / "result.json"):
        changes, differences = results.compare(now, results.read(path))
        assert changes[0] == results.Change("int8", "mean KL", 0.02, 0.01)
        assert differences == []
    _, differences = results.compare({**now, "about": {"model": "other"}}, before)
    assert differences == ["model: 'made' before, 'other' now"]
    others = [{**entry, "name": f"other {entry['name']}"} for entry in now["configurations"]]
    changes, differences = results.compare({**now, "configurations": others}, before)
    assert changes == []
    (told,) = differences
    assert told.startswith("configurations: ")
    assert "int8 before, " in told
    assert told.endswith("other int8 now")


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    for text in ("{}", "[", "[1]"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(errors.ConfigError, match=r"--compare: got .*expected a result.json that"):
            results.read(file)


def test_a_journal_goes_on_where_a_run_was_killed(tmp_path: Path) -> None:
    first = journal.Journal(tmp_path / "run", resume=False)
    first.put("one", {"kl": 1.5})
    first.put("two", {"kl": 2.5})
    file = tmp_path / "run" / journal.ITEMS_FILE
    file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    second = journal.Journal(tmp_path / "run", resume=True)
    assert second.known("one") == {"kl": 1.5}
    assert second.known("two") is None, "half a line"
    second.put("three", {"kl": 3.5})
    assert journal.Journal(tmp_path / "run", resume=True).known("three") == {"kl": 3.5}
    assert journal.Journal(tmp_path / "run", resume=False).known("one") is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(errors.ConfigError, match=r"--results: got .*expected a folder that can be written"):
        journal.Journal(tmp_path / "file" / "run", resume=False)
