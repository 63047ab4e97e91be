"""Guesses behind the real server: whatever is guessed, a client gets what it gets without, and is told the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import byte_tokenizer
import httpx
import live
import made_models
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SHARED = ("--threads", "1", "--max-context-tokens", "1024", "--max-num-seqs", "4", "--log-level", "error")
REPEATED = "red green blue, red green blue, red green blue, red"
"""It goes on like this, greedy or not."""


@pytest.fixture(scope="module")
def servers(smollm2_path, tmp_path_factory) -> Iterator[dict[str, live.Server]]:
    """Without guesses; by lookup; by the model itself as draft model, over KV in 8 bits, and without over that."""
    model = str(smollm2_path)
    wanted = {
        "none": (),
        "ngram": ("--speculative-method", "ngram", "--speculative-tokens", "5"),
        "none int8": ("--kv-cache-dtype", "int8"),
        "draft int8": ("--kv-cache-dtype", "int8", "--speculative-method", "draft", "--draft-model", model),
    }
    folder = tmp_path_factory.mktemp("speculative")
    started = {name: live.start(folder, model, *SHARED, *flags) for name, flags in wanted.items()}
    try:
        for server in started.values():
            live.wait_ready(server)
        for name in ("ngram", "draft int8"):  # the first steps go without guesses: what they take is measured
            complete(started[name], max_tokens=24, temperature=0)
        yield started
    finally:
        for server in started.values():
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()


def complete(server: live.Server, **fields: Any) -> dict[str, Any]:
    body = {"prompt": REPEATED, "max_tokens": 40, "seed": 7, "ignore_eos": True, **fields}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, verify=live.CERTIFICATES)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def streamed(server: live.Server, **fields: Any) -> tuple[str, str, dict[str, Any]]:
    """Text, finish reason and usage of a stream."""
    body = {"prompt": REPEATED, "max_tokens": 40, "seed": 7, "ignore_eos": True, "stream": True, **fields}
    body["stream_options"] = {"include_usage": True}
    text, finish, usage = "", "", {}
    with httpx.stream(
        "POST", f"{server.url}/v1/completions", json=body, timeout=120, verify=live.CERTIFICATES
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    text += choice["text"]
                    finish = choice["finish_reason"] or finish
    return text, finish, usage


def told(answer: dict[str, Any]) -> Any:
    """Of an answer, what must not depend on guesses."""
    usage = {name: answer["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return [(choice["text"], choice["finish_reason"], choice["logprobs"]) for choice in answer["choices"]], usage


PAIRS = [("none", "ngram"), ("none int8", "draft int8")]
FIELDS = [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.95, "top_k": 50},
    {"temperature": 0.7, "n": 3},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.8, "frequency_penalty": 0.4, "repetition_penalty": 1.1, "logprobs": 1},
    {"temperature": 0, "stop": ["green blue, red gr"]},
    {"temperature": 0, "stop": ["lue"], "logprobs": 2},
    {"temperature": 0.5, "max_tokens": 3},
]


@pytest.mark.parametrize(("plain", "guessing"), PAIRS, ids=[pair[1] for pair in PAIRS])
@pytest.mark.parametrize("fields", FIELDS, ids=json.dumps)
def test_an_answer_is_the_same_with_guesses(
    servers: dict[str, live.Server], plain: str, guessing: str, fields: dict[str, Any]
) -> None:
    assert told(complete(servers[guessing], **fields)) == told(complete(servers[plain], **fields))


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 0, "stop": ["blue, red green b"]}])
def test_a_stream_has_the_text_and_the_usage_of_the_whole_answer(
    servers: dict[str, live.Server], fields: dict[str, Any]
) -> None:
    whole = complete(servers["none"], **fields)
    for name in ("none", "ngram"):
        text, finish, usage = streamed(servers[name], **fields)
        (choice,) = whole["choices"]
        assert (text, finish) == (choice["text"], choice["finish_reason"])
        assert usage["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_status_and_metrics_say_what_guesses_bring(servers: dict[str, live.Server]) -> None:
    complete(servers["ngram"], temperature=0)
    seen = servers["ngram"].status()["speculative"]
    assert (seen["method"], seen["tokens"]) == ("ngram", 5)
    assert 0 < seen["acceptedTotal"] <= seen["proposedTotal"]
    assert seen["acceptanceRatio"] == pytest.approx(seen["acceptedTotal"] / seen["proposedTotal"])
    assert seen["gain"] > 0
    lines = httpx.get(f"{servers['ngram'].url}/metrics", timeout=10, verify=live.CERTIFICATES).text
    assert f'tidemark_speculative_tokens_total{{result="accepted"}} {float(seen["acceptedTotal"])}' in lines
    drafted = servers["draft int8"].status()
    assert drafted["speculative"]["acceptanceRatio"] > 0.95, "the same model guesses by the same numbers"
    assert drafted["memory"]["partsBytes"]["speculation"] > drafted["memory"]["partsBytes"]["weights"]
    assert servers["none"].status()["speculative"]["method"] == "none"


def test_a_model_with_other_tokens_is_refused_as_draft(smollm2_path, tmp_path) -> None:
    made = {**made_models.LLAMA_CONFIG, "vocab_size": byte_tokenizer.VOCAB_SIZE, "max_position_embeddings": 4096}
    folder = made_models.write_folder(tmp_path / "bytes", made, made_models.llama_weights(made))
    byte_tokenizer.save(folder)
    server = live.start(
        tmp_path, str(smollm2_path), *SHARED, "--speculative-method", "draft", "--draft-model", str(folder)
    )
    assert server.process.wait(120) == 2
    assert "speculative.draftModel" in server.log
    assert "a model with the tokenizer of the model: 49152 tokens (" in server.log
