"""Server-sent events: what is in them, in which order, and what never is."""

from __future__ import annotations

import pytest

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def stream(http, parse_events):
    async def run(path: str = COMPLETIONS, **fields) -> list:
        prompt = {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"prompt": "Hi"}
        response = await http.post(path, json={"model": "M", "stream": True, **prompt, **fields})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.text)

    return run


def texts(events: list) -> list[str]:
    return [choice["text"] for event in events[:-1] for choice in event["choices"]]


async def test_chat_begins_with_the_role_and_ends_with_the_finish(stream):
    events = await stream(CHAT, max_tokens=50)
    assert events[-1] == "[DONE]"
    assert events[0]["object"] == "chat.completion.chunk"
    assert events[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant"}, "logprobs": None, "finish_reason": None}
    ]
    deltas = [event["choices"][0]["delta"] for event in events[1:-2]]
    assert all(delta["content"] for delta in deltas)
    assert "".join(delta["content"] for delta in deltas) == "Hello, world!"
    assert events[-2]["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert len({event["id"] for event in events[:-1]}) == 1


async def test_tokens_that_come_together_go_in_one_chunk(stream, engine):
    engine.tokens_per_output = 100
    assert texts(await stream()) == ["Hello, world!"]


@pytest.mark.parametrize("per_output", [1, 2, 3, 100])
async def test_b001_no_part_of_a_stop_string_is_shown(stream, http, engine, per_output):
    engine.tokens_per_output = per_output
    events = await stream(stop=["lo, wor"], max_tokens=40)
    assert "".join(texts(events)) == "Hel"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    whole = await http.post(COMPLETIONS, json={"prompt": "Hi", "stop": ["lo, wor"], "max_tokens": 40})
    assert whole.json()["choices"][0]["text"] == "Hel"
    assert whole.json()["choices"][0]["finish_reason"] == "stop"


async def test_b001_the_engine_is_told_and_later_tokens_do_not_count(stream, engine):
    engine.pause_after = 9
    events = await stream(stop=["o"], max_tokens=40, stream_options={"include_usage": True})
    assert "".join(texts(events[:-2] + events[-1:])) == "Hell"
    assert events[-2]["usage"]["completion_tokens"] <= 9
    assert engine.aborted == [engine.submitted[0].id]
    assert engine.num_running == 0


async def test_b003_only_a_possible_stop_is_withheld_and_it_comes_out_at_the_end(stream, engine):
    engine.script = lambda request: list(b"Hi zqz")
    events = await stream(stop=["zqzqzqzqzqzqzqzqzqzqzqzqzqzq"], max_tokens=6)
    pieces = texts(events)
    assert pieces[:3] == ["H", "i", " "]
    assert pieces[-1] == "zqz"
    assert all(pieces)
    assert events[-2]["choices"][0]["finish_reason"] == "length"


async def test_b003_no_empty_deltas_while_a_character_is_incomplete(stream, engine):
    engine.script = lambda request: list("é語!".encode())
    events = await stream(max_tokens=40)
    assert [text for text in texts(events) if text] == ["é", "語", "!"]
    assert all(text or event["choices"][0]["finish_reason"] for text, event in zip(texts(events), events, strict=False))


async def test_b007_a_prompt_that_ends_in_half_a_character_is_not_repeated(stream, http, engine):
    head, tail = list("Hello world 語".encode())[:-1], "語".encode()[-1]
    engine.script = lambda request: [tail, *b"ok"]
    events = await stream(prompt=head, max_tokens=8)
    whole = await http.post(COMPLETIONS, json={"prompt": head, "max_tokens": 8})
    assert "".join(texts(events)) == whole.json()["choices"][0]["text"] == "語ok"


async def test_b007_bytes_that_are_never_completed_are_shown_once(stream, engine):
    engine.script = lambda request: list(b"ok")
    head = list("Hello 語".encode())[:-1]
    assert "".join(texts(await stream(prompt=head, max_tokens=8))) == "\ufffdok"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
async def test_b027_no_usage_unless_asked_for(stream, path, options):
    events = await stream(path, stream_options=options)
    assert all(event.get("usage") is None for event in events[:-1])
    assert all(event["choices"] for event in events[:-1])


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_b027_usage_comes_once_right_before_the_end(stream, path):
    events = await stream(path, stream_options={"include_usage": True})
    assert [event["choices"] == [] for event in events[:-1]].index(True) == len(events) - 2
    assert all(event.get("usage") is None for event in events[:-2])
    usage = events[-2]["usage"]
    assert usage["completion_tokens"] == 14
    assert usage["total_tokens"] == usage["prompt_tokens"] + 14


async def test_echo_sends_the_prompt_first(stream):
    assert texts(await stream(echo=True))[:2] == ["Hi", "H"]


async def test_an_error_before_the_first_token_is_an_http_error(http, engine, fakes):
    engine.refuse = fakes.messages.RejectReason.QUEUE_FULL
    response = await http.post(COMPLETIONS, json={"prompt": "Hi", "stream": True})
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) >= 1


async def test_an_error_after_it_is_one_event_and_the_end(stream, engine, fakes):
    engine.end_early = (5, fakes.messages.FinishReason.FAILED, "the step failed")
    response = await stream()
    assert "".join(event["choices"][0]["text"] for event in response[:-1]) == "Hello"
    assert response[-1]["error"]["message"] == "the step failed"


async def test_a_special_token_in_the_middle_is_no_text(stream, engine, fakes):
    engine.script = lambda request: [65, fakes.END, 66]
    events = await stream(ignore_eos=True, max_tokens=3)
    assert "".join(texts(events)) == "AB"
    assert engine.submitted[0].params.ignore_stop_tokens


async def test_stop_token_ids_end_and_are_not_shown(stream, engine, fakes):
    events = await stream(stop_token_ids=[ord(",")], max_tokens=30)
    assert "".join(texts(events)) == "Hello"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert set(engine.submitted[0].params.stop_token_ids) == {ord(","), fakes.END}
