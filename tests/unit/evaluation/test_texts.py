"""Made texts: the same for the same seed, with the facts in them that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_runtime import errors
from tidemark_runtime.evaluation import contracts, haystack, items, prose, subject


def test_prose_is_seeded_and_as_long_as_asked() -> None:
    for language in prose.LANGUAGES:
        one = prose.sentences(language, 1, len, 3000)
        assert one == prose.sentences(language, 1, len, 3000)
        assert one != prose.sentences(language, 2, len, 3000)
        assert 3000 <= sum(map(len, one)) < 3300
        assert "{" not in "".join(one)
    assert "".join(prose.sentences("zh", 1, len, 500)).isascii() is False


@pytest.mark.parametrize("language", prose.LANGUAGES)
def test_a_contract_holds_its_fields(language: str) -> None:
    seen = set()
    for seed in range(20):
        made = contracts.make(language, seed)
        assert made == contracts.make(language, seed)
        assert len(made.fields) == 8
        for _, value in made.fields.values():
            assert value in made.text
        assert made.fields["seller"][1] != made.fields["buyer"][1]
        seen.add(made.text)
    assert len(seen) == 20


@pytest.mark.parametrize("language", prose.LANGUAGES)
@pytest.mark.parametrize("length", [600, 2000, 6000])
def test_a_haystack_fits_and_hides_facts_at_their_depths(language: str, length: int) -> None:
    made = haystack.make(language, length, 1, len)
    assert 0.5 * length < len(made.text) <= length
    assert sorted(question.depth for question in made.questions) == list(haystack.DEPTHS)
    for question in made.questions:
        assert made.text.count(f"{question.answer}.") + made.text.count(f"{question.answer}。") == 1
        assert abs(made.text.index(question.answer) / len(made.text) - question.depth) < 0.1 + 250 / length
    assert len({question.answer for question in made.questions}) == len(haystack.DEPTHS)


def test_windows_cover_the_text_evenly(made: subject.Subject) -> None:
    plan = items.Plan(text_tokens=600, window_tokens=128)
    found = items.windows(items.made_text(made.encoder, plan), made.encoder, 600, 128)
    assert [item.key for item in found] == ["en-0", "en-1", "en-2", "zh-0", "zh-1", "zh-2"]
    assert [item.num_tokens for item in found] == [128, 128, 44] * 2


def test_answers_stand_where_they_are_said_to(made: subject.Subject) -> None:
    plan = items.Plan(text_tokens=256, window_tokens=128, lengths=(900, 9000), contracts=1, prompts=3)
    parts = items.build(plan, items.made_text(made.encoder, plan), made.encoder, 2048)
    assert list(parts) == list(items.PARTS)
    assert [item.key for item in parts["retrieval"]] == ["en-900", "zh-900"], "9000 is more than the model reads"
    for item in (*parts["retrieval"], *parts["extraction"]):
        assert isinstance(item, items.AskItem)
        text = made.encoder.decode(item.token_ids[: item.asked[0].start])
        for asked in item.asked:
            answer = made.encoder.decode(item.token_ids[asked.start : asked.end]).strip()
            assert answer in text
    greedy = [item for item in parts["greedy"] if isinstance(item, items.GreedyItem)]
    assert [len(item.prompts) for item in greedy] == [3]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (items.Plan(lengths=(4096,)), "--lengths: got '4096', expected lengths of 400 tokens to the model's context"),
        (items.Plan(lengths=(100, 800)), "Change --lengths, or leave the part out"),
        (items.Plan(continuation_tokens=2048), "--continuation: got 2048, expected fewer than the model's context"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(made: subject.Subject, plan: items.Plan, words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        items.build(plan, items.Text("made", (("en", "word " * 2000),)), made.encoder, 2048)
    assert words in str(caught.value)


def test_a_text_that_is_too_short_or_not_there_is_refused(made: subject.Subject, tmp_path: Path) -> None:
    file = tmp_path / "site.txt"
    file.write_text("only a few words", encoding="utf-8")
    with pytest.raises(errors.ConfigError, match=r"--text: got 'site.txt, 16 tokens', expected a text of at least 512"):
        items.windows(items.read_text(file), made.encoder, 1024, 512)
    file.write_text("two", encoding="utf-8")  # shorter than any window: its tokens are counted all the same
    with pytest.raises(errors.ConfigError, match=r"--text: got 'site.txt, 3 tokens', expected a text of at least 512"):
        items.windows(items.read_text(file), made.encoder, 1024, 512)
    with pytest.raises(errors.ConfigError, match="expected a readable file of UTF-8 text"):
        items.read_text(tmp_path / "none.txt")
