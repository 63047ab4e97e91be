"""What an answer says of its own cost."""

from __future__ import annotations

import pytest

from tidemark_runtime.contract import http as paths

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
TWO_PROMPTS = {"prompt": ["Hi", "Ho"]}


@pytest.mark.parametrize(
    ("path", "body", "num_cached"),
    [(paths.CHAT_PATH, CHAT, 2), (paths.COMPLETIONS_PATH, TWO_PROMPTS, 4), (paths.CHAT_PATH, CHAT | {"n": 3}, 2)],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_cached_tokens_of_each_prompt_are_counted_once(
    http, engine, parse_events, path, body, num_cached, stream
):
    engine.num_cached_tokens = 2
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    response = await http.post(path, json=body | options)
    usage = (parse_events(response.text)[-2] if stream else response.json())["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": num_cached}
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_nothing_cached_is_said_as_0(http):
    answer = (await http.post(paths.CHAT_PATH, json=CHAT)).json()
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
