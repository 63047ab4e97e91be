"""Begin and end tokens, bytes of tokens, chat prompts, and long texts."""

from __future__ import annotations

import concurrent.futures
import random
import subprocess
import sys
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from tidemark_runtime import errors
from tidemark_runtime.text import encoding, gguf_text, gguf_tokenizer, pre_tokenizers, text_model

USER = [{"role": "user", "content": "hello"}]
CUT_PARTS = st.sampled_from(
    [
        *("a", "b1", "Qx", "5", "½", " ", "  ", "\n", "\n\n", "\r\n", " \n", "\t", "\u00a0", "\u180e", "\u3000"),
        *(
            "，",
            "。",
            "語言",
            "か",
            "か\u3099",
            "한",
            "\u1112\u1161",
            "мир",
            "😀",
            "é",
            "e\u0301",
            " \u0301",
            "'s",
            "...",
            "/",
        ),
        *("_", ",", "+=", "(", '"', "!?", ";", "=\u0338"),
    ]
)
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ANY_SPEED
@given(st.text(max_size=60))
def test_text_survives_encoding(byte_level: text_model.TextModel, text: str) -> None:
    assert byte_level.decode(byte_level.encode(text, add_special=False)) == text


@ANY_SPEED
@given(st.text(max_size=40))
def test_text_survives_sentencepiece_encoding(sentencepiece: text_model.TextModel, text: str) -> None:
    """Except for U+2581, which is how the vocabulary spells a space."""
    ids = sentencepiece.encode(text, add_special=False)
    assert sentencepiece.decode(ids) == text.replace("\u2581", " ")


def test_bytes_and_texts_of_tokens(byte_level: text_model.TextModel, sentencepiece: text_model.TextModel) -> None:
    first, *rest = byte_level.encode("語", add_special=False)
    assert byte_level.token_bytes(first) == "語".encode()[:2]
    assert byte_level.token_text(first) == "\ufffd"
    assert [byte_level.token_bytes(token_id) for token_id in rest] == ["語".encode()[2:]]
    assert byte_level.token_bytes(2) == b"<|im_end|>"
    assert byte_level.token_bytes(-1) == byte_level.token_bytes(10**6) == b""
    assert sentencepiece.token_bytes(3 + 0xE8) == b"\xe8"
    assert [sentencepiece.token_text(i) for i in sentencepiece.encode("hello world", add_special=False)] == [
        " hello",
        " world",
    ]


def test_special_tokens_written_in_a_text_become_tokens(byte_level: text_model.TextModel) -> None:
    ids = byte_level.encode("<|im_start|>hello<think>", add_special=False)
    assert [byte_level.token_text(token_id) for token_id in ids] == ["<|im_start|>", "hello", "<think>"]
    assert byte_level.special_ids == {0, 1, 2}
    assert byte_level.decode(ids) == "hello<think>"


def test_half_a_surrogate_pair_is_refused(byte_level: text_model.TextModel) -> None:
    """B009: a clear 400, never a crash; a zero character is served."""
    with pytest.raises(errors.InvalidRequest, match="surrogate"):
        byte_level.encode("cut \ud83d", add_special=False)
    assert byte_level.decode(byte_level.encode("a\0b", add_special=False)) == "a\0b"


def test_completions_follow_the_tokenizers_own_rule(
    byte_level: text_model.TextModel, sentencepiece: text_model.TextModel
) -> None:
    """B031: with `add_special` the begin token is added, also before one the client wrote."""
    assert sentencepiece.encode("hello", add_special=True)[:1] == [1]
    assert sentencepiece.encode("<s>hello", add_special=True)[:2] == [1, 1]
    assert sentencepiece.encode("hello", add_special=False)[0] != 1
    assert byte_level.encode("hello", add_special=True) == byte_level.encode("hello", add_special=False)


def test_b031_one_begin_token_when_the_template_writes_it(sentencepiece: text_model.TextModel) -> None:
    """B031: the template wrote it and the tokenizer's rule asks for it."""
    assert sentencepiece.render_chat(USER).startswith("<s>[INST]")
    assert sentencepiece.encode_chat(USER).count(1) == 1
    assert sentencepiece.encode_chat(USER) == sentencepiece.encode(sentencepiece.render_chat(USER), add_special=False)


def test_b031_one_begin_token_when_the_template_leaves_it_out(sentencepiece_fields: dict[str, Any]) -> None:
    """B031: the tokenizer's rule asks for it and the template forgot it; an end token is never added."""
    sentencepiece_fields["tokenizer.chat_template"] = "{{ messages[0]['content'] }}"
    sentencepiece_fields["tokenizer.ggml.add_eos_token"] = True
    model = gguf_text.from_metadata(sentencepiece_fields, "made")
    ids = model.encode_chat(USER)
    assert ids[0] == 1
    assert ids.count(1) == 1
    assert 2 not in ids
    assert model.encode("hello", add_special=True)[-1] == 2


def test_no_begin_token_where_the_rule_asks_for_none(byte_level: text_model.TextModel) -> None:
    assert byte_level.bos_id == 0
    assert 0 not in byte_level.encode_chat(USER)


def test_turn_ends_of_the_template_end_an_answer(byte_level: text_model.TextModel) -> None:
    assert byte_level.end_ids == (0, 2)


def test_without_a_template_completions_are_pointed_to(byte_level_fields: dict[str, Any]) -> None:
    del byte_level_fields["tokenizer.chat_template"]
    model = gguf_text.from_metadata(byte_level_fields, "made")
    assert not model.has_chat_template
    with pytest.raises(errors.InvalidRequest, match="/v1/completions"):
        model.encode_chat(USER)


def test_a_template_of_its_own_for_tools(byte_level_fields: dict[str, Any]) -> None:
    byte_level_fields["tokenizer.chat_template.tool_use"] = "{{ tools[0].name }}"
    model = gguf_text.from_metadata(byte_level_fields, "made")
    assert model.render_chat(USER, tools=[{"name": "search"}]) == "search"
    assert model.render_chat(USER, tools=[]).startswith("<|im_start|>user")


@pytest.mark.parametrize("name", ["smollm", "gpt-2", "llama-bpe", "qwen2", "tekken"])
@ANY_SPEED
@given(data=st.data())
def test_long_texts_may_be_cut_without_changing_tokens(name: str, data: st.DataObject) -> None:
    """Every place that `cut` may choose is a border between two words, for every set of rules it is used for."""
    rules = pre_tokenizers.BY_NAME[name]
    splitter, normalizer = rules.pre_tokenizer(), rules.normalizer()

    def words(text: str) -> list[str]:
        return [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text) if normalizer else text)]

    text = "".join(data.draw(st.lists(CUT_PARTS, max_size=20)))
    for place in encoding._CUT.finditer(text):
        head, tail = text[: place.start()], text[place.start() :]
        assert words(head) + words(tail) == words(text)


def test_a_long_text_is_encoded_in_parts(byte_level: text_model.TextModel, byte_level_fields: dict[str, Any]) -> None:
    words = ["hello", "world", "  12", "x\ny", "語，言", "<think>", "\n\n", "."]
    text = " ".join(random.Random(7).choices(words, k=60_000))
    parts = list(encoding.cut(text))
    assert "".join(parts) == text
    assert len(parts) > 5
    assert max(len(part) for part in parts) < 2 * encoding.PART_CHARACTERS
    whole = gguf_tokenizer.build(byte_level_fields, "made").encode(text, add_special_tokens=False).ids
    assert byte_level.encode(text, add_special=False) == whole


def test_a_text_without_a_place_to_cut_stays_whole() -> None:
    text = "a" * 300_000
    assert list(encoding.cut(text)) == [text]


@pytest.mark.parametrize(
    ("sign", "most"), [("a", encoding.MAX_PART_BYTES), ("語", encoding.MAX_PART_BYTES // 3)], ids=["one byte", "three"]
)
def test_a_stretch_without_a_place_to_cut_is_bounded(sign: str, most: int) -> None:
    assert [len(part) for part in encoding.cut(sign * most)] == [most]
    with pytest.raises(
        errors.InvalidRequest, match=r"from character 1 on, \d+ bytes without a place .* at most 1000000"
    ):
        list(encoding.cut(sign * (most + 1)))
    later = "a b " * 10_000 + sign * (most + 1)
    with pytest.raises(errors.InvalidRequest, match="from character 32770 on"):
        list(encoding.cut(later))


def test_a_tokenizer_with_unknown_rules_is_bounded_as_well(byte_level_fields: dict[str, Any]) -> None:
    byte_level_fields["tokenizer.ggml.pre"] = "default"
    encoder = encoding.Encoder(gguf_tokenizer.build(byte_level_fields, "made"))
    with pytest.raises(errors.InvalidRequest, match="Put spaces or line breaks in, or send less at once"):
        encoder.encode("a b " * 250_001)


def test_only_known_rules_are_cut(byte_level_fields: dict[str, Any], sentencepiece_fields: dict[str, Any]) -> None:
    assert encoding.can_cut(gguf_tokenizer.build(byte_level_fields, "made"))
    assert not encoding.can_cut(gguf_tokenizer.build(sentencepiece_fields, "made"))
    byte_level_fields["tokenizer.ggml.pre"] = "default"
    assert not encoding.can_cut(gguf_tokenizer.build(byte_level_fields, "made"))
    byte_level_fields["tokenizer.ggml.pre"] = "smollm"
    for odd in ("a b", "<|v1.5|>", "<a\nb>"):
        byte_level_fields["tokenizer.ggml.tokens"][-1] = odd
        assert not encoding.can_cut(gguf_tokenizer.build(byte_level_fields, "made"))


def test_an_unknown_decoder_is_refused() -> None:
    tokenizer = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(errors.UnsupportedModel, match=r"decoder \(WordPiece\)"):
        text_model.TextModel(tokenizer, text_model.SpecialTokens(), {}, "made")


def test_several_threads_may_encode_at_once(byte_level: text_model.TextModel) -> None:
    texts = [f"hello {number} 語 " * 50 for number in range(40)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        id_lists = list(pool.map(lambda text: byte_level.encode(text, add_special=False), texts))
    assert [byte_level.decode(ids) for ids in id_lists] == texts


def test_the_text_side_needs_no_torch() -> None:
    """The HTTP process stays small because of it."""
    program = "import sys; from tidemark_runtime.text import loading, detokenizer, stop_strings; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers"} & set(ran.stdout.split())
