"""Incremental detokenizing: any cut of the ids gives the text that decoding them at once gives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark_runtime.text import detokenizer, stop_strings, text_model

IDS = st.lists(st.integers(0, 271), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=8)
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def deltas_of(decoder: detokenizer.Detokenizer, ids: list[int], cuts: list[int]) -> list[str]:
    borders = [0, *sorted(cut for cut in cuts if cut <= len(ids)), len(ids)]
    deltas = [decoder.add(ids[start:end]) for start, end in itertools.pairwise(borders)]
    return [*deltas, decoder.flush()]


@ANY_SPEED
@given(IDS, CUTS, st.booleans())
def test_any_cut_equals_decoding_at_once(
    byte_level: text_model.TextModel, ids: list[int], cuts: list[int], skip_special: bool
) -> None:
    """Random bytes, broken characters among them."""
    decoder = detokenizer.Detokenizer(byte_level, skip_special=skip_special)
    assert "".join(deltas_of(decoder, ids, cuts)) == byte_level.decode(ids, skip_special=skip_special)


@ANY_SPEED
@given(IDS, CUTS)
def test_any_cut_equals_decoding_at_once_with_leading_spaces(
    sentencepiece: text_model.TextModel, ids: list[int], cuts: list[int]
) -> None:
    decoder = detokenizer.Detokenizer(sentencepiece)
    assert "".join(deltas_of(decoder, ids, cuts)) == sentencepiece.decode(ids)


@ANY_SPEED
@given(st.text(max_size=30), CUTS)
def test_whole_characters_only_and_none_lost(byte_level: text_model.TextModel, text: str, cuts: list[int]) -> None:
    """Chinese, emoji and all else come out as they went in, and no delta shows half a character."""
    ids = byte_level.encode(text, add_special=False)
    deltas = deltas_of(detokenizer.Detokenizer(byte_level), ids, cuts)
    assert "".join(deltas) == text
    assert sum(delta.count("\ufffd") for delta in deltas) == text.count("\ufffd")


@ANY_SPEED
@given(st.text(max_size=20), st.text(max_size=20), CUTS)
def test_deltas_hold_generated_text_only(
    byte_level: text_model.TextModel, prompt: str, answer: str, cuts: list[int]
) -> None:
    """B007: wherever the prompt ends, prompt and deltas together are the whole text, and nothing comes twice."""
    ids = byte_level.encode(prompt + answer, add_special=False)
    for border in range(len(ids)):
        decoder = detokenizer.Detokenizer(byte_level, ids[:border])
        whole = detokenizer.Detokenizer(byte_level)
        shown_of_prompt = whole.add(ids[:border])
        assert shown_of_prompt + "".join(deltas_of(decoder, ids[border:], cuts)) == prompt + answer


def test_b007_half_a_character_of_the_prompt_is_completed(byte_level: text_model.TextModel) -> None:
    """B007: two of the three bytes of a character are in the prompt, the third is generated."""
    ids = byte_level.encode("Hello world 語", add_special=False)
    last = ids[-1]
    assert byte_level.token_bytes(last) == "語".encode()[2:]
    decoder = detokenizer.Detokenizer(byte_level, ids[:-1])
    assert decoder.add([last]) == "語"
    assert decoder.flush() == ""


def test_b007_half_a_character_of_the_prompt_shows_once(byte_level: text_model.TextModel) -> None:
    """B007: the generated token does not complete it."""
    ids = byte_level.encode("Hello world 語", add_special=False)
    decoder = detokenizer.Detokenizer(byte_level, ids[:-1])
    assert decoder.add(byte_level.encode("x", add_special=False)) == "\ufffdx"
    assert decoder.flush() == ""


def test_an_unfinished_character_shows_once_at_the_end(byte_level: text_model.TextModel) -> None:
    ids = byte_level.encode("a😀", add_special=False)[:-1]
    decoder = detokenizer.Detokenizer(byte_level)
    assert [decoder.add([token_id]) for token_id in ids] == ["a", "", "", ""]
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""


def test_special_tokens_are_skipped_unless_asked_for(byte_level: text_model.TextModel) -> None:
    ids = byte_level.encode("hello<|im_end|>", add_special=False)
    assert detokenizer.Detokenizer(byte_level).add(ids) == "hello"
    assert detokenizer.Detokenizer(byte_level, skip_special=False).add(ids) == "hello<|im_end|>"


@pytest.mark.parametrize(("prompt", "shown"), [("", "hello"), ("<s>", "hello"), ("x", " hello")])
def test_the_first_space_is_dropped_only_where_a_text_begins(
    sentencepiece: text_model.TextModel, prompt: str, shown: str
) -> None:
    tail = sentencepiece.encode(prompt, add_special=False)
    decoder = detokenizer.Detokenizer(sentencepiece, tail)
    assert decoder.add(sentencepiece.encode("hello", add_special=False)) == shown


@ANY_SPEED
@given(
    st.text(alphabet="ab語😀", max_size=20), st.lists(st.text(alphabet="ab語😀", min_size=1, max_size=3), max_size=3)
)
def test_tokens_through_both_detokenizer_and_stops(
    byte_level: text_model.TextModel, text: str, stops: list[str]
) -> None:
    """B001 with characters of several tokens: token by token is the same as all at once."""
    ids = byte_level.encode(text, add_special=False)
    decoder, matcher = detokenizer.Detokenizer(byte_level), stop_strings.StopMatcher(stops)
    shown = "".join(matcher.add(decoder.add([token_id]))[0] for token_id in ids) + matcher.flush()
    at_once = stop_strings.StopMatcher(stops)
    assert shown == at_once.add(text)[0] + at_once.flush()
