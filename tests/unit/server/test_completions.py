"""`/v1/completions` over the scripted engine."""

from __future__ import annotations

PATH = "/v1/completions"


async def test_answers_with_text_finish_and_usage(http):
    response = await http.post(PATH, json={"model": "M", "prompt": "Hi", "max_tokens": 50})
    assert response.status_code == 200
    body = response.json()
    assert body["object"] == "text_completion"
    assert body["choices"] == [{"index": 0, "text": "Hello, world!", "logprobs": None, "finish_reason": "stop"}]
    # begin + 2 bytes; 13 bytes and the end token
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 14
    assert body["usage"]["total_tokens"] == 17
