"""The real model's text side, beside transformers' reading of the same file.

transformers cuts this file's text by GPT-2's rules. The rules that the file names (`smollm`: the tokenizer.json of
the SmolLM models) cut digits apart first, so the yardstick is transformers' tokenizer with that one step added.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import pre_tokenizers

from tidemark_runtime.model import sources
from tidemark_runtime.text import detokenizer, encoding, loading, text_model

pytestmark = pytest.mark.slow

TEXTS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "The quick brown fox doesn't jump over 13 lazy dogs; it's 1234567890 o'clock.",
    "  two  spaces,   three,\ttabs\t\tand \n\n\n new lines \r\n ",
    "a  12   345 x1y2 3.14159 1,000,000 ½ ² Ⅷ ٣",
    "你好，世界！今天天气很好。2026年11月29日",
    "日本語のテキストとカタカナ、한국어 텍스트",
    "😀👩‍👩‍👧‍👦🇨🇭 emoji 🎉🎉",
    "def f(x: int) -> int:\n    return x ** 2  # square\n\n\nprint(f(10))\n",
    '{"a": [1, 2.5e-3], "b": null, "c": "\\u00e9"}',
    "é e\u0301 ñ ﬁ İ ß \u200b\u200d\ufeff \x00\x01",
    "Привет, мир! שלום مرحبا नमस्ते",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "half <|im_start a <|endoftext|><|endoftext|> and <repo_name>x<file_sep>",
    "https://example.com/a/b?c=d&e=f#g",
    "x" * 500,
    " " * 300 + "1",
    "！？。，、；：" * 20,
]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "你好 😀 12  34"}],
    [
        {"role": "user", "content": "One\n\ntwo"},
        {"role": "assistant", "content": " three "},
        {"role": "user", "content": "<|im_end|> four"},
    ],
]


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> text_model.TextModel:
    return loading.load(sources.ModelSource("gguf", smollm2_path, "smollm2-135m"))


@pytest.fixture(scope="module")
def yardstick(smollm2_path: Path) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(smollm2_path.parent), gguf_file=smollm2_path.name)
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def random_texts() -> list[str]:
    """Pieces of the texts above, shuffled together, so that borders between kinds of text are met too."""
    source = random.Random(3)
    pieces = [text[start : start + 7] for text in TEXTS for start in range(0, len(text), 7)]
    return ["".join(source.choices(pieces, k=source.randint(1, 30))) for _ in range(300)]


def test_ids_equal_the_yardsticks(model: text_model.TextModel, yardstick: Any) -> None:
    for text in [*TEXTS, *random_texts()]:
        assert model.encode(text, add_special=True) == yardstick.encode(text), text


def test_text_equals_the_yardsticks(model: text_model.TextModel, yardstick: Any) -> None:
    source = random.Random(4)
    id_lists = [model.encode(text, add_special=False) for text in TEXTS]
    id_lists += [source.choices(range(model.vocab_size), k=12) for _ in range(300)]
    for ids in id_lists:
        assert model.decode(ids) == yardstick.decode(ids, skip_special_tokens=True)


def test_chats_equal_the_yardsticks(model: text_model.TextModel, yardstick: Any) -> None:
    """B031: the template's begin tokens and no other."""
    for messages in CHATS:
        text = yardstick.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert model.render_chat(messages) == text
        assert model.encode_chat(messages) == yardstick.encode(text, add_special_tokens=False)
        without = yardstick.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        assert model.render_chat(messages, add_generation_prompt=False) == without


def test_what_the_file_says_of_itself(model: text_model.TextModel) -> None:
    assert (model.vocab_size, model.bos_id, model.end_ids) == (49152, 1, (2,))
    assert model.special_ids == set(range(17))
    assert model.has_chat_template
    assert not model.drops_leading_space


def test_every_token_alone_equals_the_yardsticks(model: text_model.TextModel, yardstick: Any) -> None:
    ids = range(len(model.special_ids), model.vocab_size)
    assert [model.token_text(token_id) for token_id in ids] == yardstick.batch_decode([[token_id] for token_id in ids])


def test_streams_equal_texts(model: text_model.TextModel) -> None:
    """Token by token, every delta whole characters, and every prompt border (B007)."""
    for text in TEXTS:
        ids = model.encode(text, add_special=False)
        for border in range(0, len(ids), 1 + len(ids) // 20):
            decoder = detokenizer.Detokenizer(model, ids[:border])
            deltas = [decoder.add([token_id]) for token_id in ids[border:]] + [decoder.flush()]
            prompt = detokenizer.Detokenizer(model).add(ids[:border])
            assert prompt + "".join(deltas) == model.decode(ids)


def long_text() -> str:
    source = random.Random(5)
    return " ".join(source.choices(["hello", "Thermodynamics", "数据，库", "x\ny", "12  3", "😀", "don't"], k=150_000))


def test_a_long_text_has_the_same_ids_in_parts(model: text_model.TextModel, yardstick: Any) -> None:
    text = long_text()[:300_000]
    assert len(list(encoding.cut(text))) > 5
    assert model.encode(text, add_special=False) == yardstick.encode(text, add_special_tokens=False)


async def test_a_long_text_does_not_stall_the_loop(model: text_model.TextModel) -> None:
    """While one thread tokenizes a megabyte, the loop turns many times for each part of it."""
    text = long_text()
    num_turns = 0
    encoded = asyncio.create_task(asyncio.to_thread(model.encode, text, add_special=False))
    while not encoded.done():
        await asyncio.sleep(0.001)
        num_turns += 1
    assert model.decode(await encoded) == text
    assert num_turns > 3 * len(list(encoding.cut(text)))
