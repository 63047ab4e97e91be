"""B013: several choices of one request, and several prompts."""

from __future__ import annotations

PATH = "/v1/completions"


def by_index(request) -> list[int]:
    return list(b"abcdefgh"[: 2 + int(request.id.rsplit("-", 1)[1])])


async def test_b013_each_choice_has_its_text_and_usage_is_summed(http, engine):
    engine.script = by_index
    body = (await http.post(PATH, json={"prompt": "Hi", "n": 3, "max_tokens": 20})).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "ab"), (1, "abc"), (2, "abcd")]
    assert all(choice["finish_reason"] == "stop" for choice in body["choices"])
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 3 + 4 + 5


async def test_b013_streamed_choices_have_exactly_one_end_each(http, engine, parse_events):
    engine.script = by_index
    response = await http.post(PATH, json={"prompt": "Hi", "n": 3, "max_tokens": 20, "stream": True})
    joined, ends = {0: "", 1: "", 2: ""}, []
    for event in parse_events(response.text)[:-1]:
        for choice in event["choices"]:
            joined[choice["index"]] += choice["text"]
            ends += [choice["index"]] * (choice["finish_reason"] is not None)
    assert joined == {0: "ab", 1: "abc", 2: "abcd"}
    assert sorted(ends) == [0, 1, 2]


async def test_b013_all_choices_are_submitted_together_with_seeds_of_their_own(http, engine):
    await http.post(PATH, json={"prompt": "Hi", "n": 3, "seed": -2, "max_tokens": 2})
    assert [request.params.seed for request in engine.submitted] == [2**64 - 2, 2**64 - 1, 0]
    assert len({request.id for request in engine.submitted}) == 3


async def test_b013_refused_together(http, engine, fakes):
    engine.refuse = fakes.messages.RejectReason.QUEUE_FULL
    response = await http.post(PATH, json={"prompt": "Hi", "n": 8})
    assert response.status_code == 429
    assert response.json()["error"]["code"] == "queue_full"


async def test_several_prompts_number_their_choices_in_order(http, engine):
    engine.script = lambda request: request.token_ids[1:]
    body = (await http.post(PATH, json={"prompt": ["one", "two"], "n": 2, "max_tokens": 9, "echo": True})).json()
    assert [choice["text"] for choice in body["choices"]] == ["oneone", "oneone", "twotwo", "twotwo"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == 8


async def test_too_many_choices_of_all_prompts_together(http, engine):
    response = await http.post(PATH, json={"prompt": ["a"] * 2, "n": 65})
    assert response.status_code == 400
    assert engine.submitted == []
