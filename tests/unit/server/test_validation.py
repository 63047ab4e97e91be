"""Every wrong value is answered 400 with the field's name, in valid JSON, before the engine sees anything."""

from __future__ import annotations

import json

import pytest

PATHS = {"/v1/completions": {"prompt": "Hi"}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]}}


@pytest.fixture(params=PATHS, ids=["completions", "chat"])
def path(request):
    return request.param


@pytest.fixture
def post(http, path):
    """Sends a body with one field given as raw JSON text."""

    async def send(field: str, raw: str):
        start = json.dumps({"model": "M", "max_tokens": 4, **PATHS[path]})[:-1]
        return await http.post(path, content=f'{start}, "{field}": {raw}}}'.encode())

    return send


def assert_refused(response, param: str, status: int = 400) -> dict:
    assert response.status_code == status, response.text
    error = json.loads(response.content, parse_constant=pytest.fail)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert param in error["message"]
    return error


WRONG_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", '"NaN"', '"0.5"', "true", "[]", "{}", "-0.1"]


@pytest.mark.parametrize("raw", WRONG_NUMBERS)
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "repetition_penalty"])
async def test_b015_numbers_that_are_not_finite_or_out_of_range(post, engine, field, raw):
    assert_refused(await post(field, raw), field)
    assert engine.submitted == []


@pytest.mark.parametrize(
    ("field", "raw"),
    [
        ("temperature", "2.1"),
        ("top_p", "0"),
        ("top_p", "1.0001"),
        ("min_p", "1.1"),
        ("top_k", "-2"),
        ("top_k", "1.5"),
        ("presence_penalty", "2.5"),
        ("frequency_penalty", "-2.5"),
        ("repetition_penalty", "0"),
        ("n", "0"),
        ("n", "129"),
        ("n", "2.0"),
        ("max_tokens", "0"),
        ("max_tokens", "-1"),
        ("max_tokens", "1" * 5000),
        ("stop", '""'),
        ("stop", '["a", ""]'),
        ("stop", "[1]"),
        ("stop", "7"),
        ("stop", json.dumps(["x"] * 17)),
        ("stop_token_ids", "[258]"),
        ("stop_token_ids", "[-1]"),
        ("stop_token_ids", "[true]"),
        ("stream", '"yes"'),
        ("ignore_eos", "1"),
        ("logit_bias", "[]"),
        ("logit_bias", '{"258": 1}'),
        ("logit_bias", '{"-1": 1}'),
        ("logit_bias", '{"a": 1}'),
        ("tools", '[{"type": "function"}]'),
        ("response_format", '{"type": "json_object"}'),
        ("suffix", '"end"'),
        ("max_token", "5"),
    ],
)
async def test_wrong_values_name_their_field(post, engine, field, raw):
    assert_refused(await post(field, raw), field)
    assert engine.submitted == []


async def test_logit_bias_values_have_limits(post):
    error = assert_refused(await post("logit_bias", '{"5": 101}'), "logit_bias.5")
    assert "100" in error["message"]


async def test_a_misspelt_field_is_told_its_neighbour(post):
    assert "Did you mean max_tokens?" in assert_refused(await post("max_token", "5"), "max_token")["message"]


@pytest.mark.parametrize(
    ("field", "raw"),
    [
        ("temperature", "null"),
        ("user", '"me"'),
        ("metadata", '{"a": "b"}'),
        ("store", "true"),
        ("service_tier", '"auto"'),
        ("tools", "[]"),
        ("tools", "null"),
        ("tool_choice", '"none"'),
        ("response_format", '{"type": "text"}'),
        ("n", "1"),
        ("top_k", "-1"),
        ("stop", "[]"),
        ("logit_bias", '{"5": -100}'),
    ],
)
async def test_harmless_values_are_served(post, field, raw):
    assert (await post(field, raw)).status_code == 200


@pytest.mark.parametrize("raw", ["1e-5", "1e-40", "1e-400", "0", "9.9e-6"])
async def test_b015_tiny_temperatures_reach_the_engine_and_act_greedy(post, engine, raw):
    assert (await post("temperature", raw)).status_code == 200
    params = engine.submitted[0].params
    assert params.is_greedy == (float(raw) < 1e-5)


@pytest.mark.parametrize(
    "raw", ["18446744073709551616", "9223372036854775808", "-9223372036854775809", '"7"', "1.5", "true"]
)
async def test_b017_seeds_out_of_range_or_of_another_type(post, engine, raw):
    assert_refused(await post("seed", raw), "seed")
    assert engine.submitted == []


@pytest.mark.parametrize("raw", ["0", "-1", "9223372036854775807", "-9223372036854775808"])
async def test_b017_signed_64_bit_seeds_work(post, engine, raw):
    assert (await post("seed", raw)).status_code == 200
    assert engine.submitted[0].params.seed == int(raw) % 2**64


async def test_b017_null_is_unset_and_so_random(post, engine):
    for _ in range(2):
        assert (await post("seed", "null")).status_code == 200
    first, second = (request.params.seed for request in engine.submitted)
    assert first != second


async def test_b019_temperature_left_out_is_one_and_samples(post, engine):
    assert (await post("user", '"x"')).status_code == 200
    params = engine.submitted[0].params
    assert params.temperature == 1.0
    assert not params.is_greedy


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"M","prompt":"\xc4\xe3\xba\xc3","max_tokens":4}',
        b'{"model":"M","messages":[{"role":"user","content":"\xc4\xe3\xba\xc3"}]}',
        b'{"model":"M","prompt":"cut \\ud83d","max_tokens":4}',
        b'{"model":"M","messages":[{"role":"user","content":"cut \\ud83d"}]}',
        b'{"\\ud83d": 1}',
        b"",
        b"[]",
        b'"text"',
        b"{",
        b"[" * 100_000,
        b'{"a":' * 900 + b"NaN" + b"}" * 900,
    ],
)
async def test_b009_bodies_that_are_no_json_object_of_text(http, path, body):
    response = await http.post(path, content=body)
    assert response.status_code == 400
    assert json.loads(response.content)["error"]["message"]


async def test_b009_half_a_surrogate_pair_is_named_by_field(http, path):
    response = await http.post(path, content=b'{"model":"M","user":"\\udc00"}')
    assert_refused(response, "user")


async def test_b009_nul_is_served(http):
    response = await http.post("/v1/completions", content=b'{"model":"M","prompt":"a\\u0000b","max_tokens":4}')
    assert response.status_code == 200


async def test_another_model_is_404_and_names_the_one_there_is(http, path):
    response = await http.post(path, json={"model": "other", **PATHS[path]})
    assert assert_refused(response, "model", 404)["code"] == "model_not_found"
    assert "'M'" in response.json()["error"]["message"]


@pytest.mark.parametrize("options", [{}, {"include_usage": True}, {"include_usage": False}])
async def test_b027_stream_options_without_stream(http, path, options):
    body = {"model": "M", "stream": False, "stream_options": options, **PATHS[path]}
    assert_refused(await http.post(path, json=body), "stream_options")


@pytest.mark.parametrize(
    "prompt", [None, [], 5, {}, "", [300], [1, "a"], ["a", 1], [[]], [[1], [258]], [1.5], [True], [[1], 2]]
)
async def test_wrong_prompts(http, engine, prompt):
    body = {"model": "M", "prompt": prompt, "add_special_tokens": False}
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")
    assert engine.submitted == []


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "Hi",
        [5],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": "king", "content": "x"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
    ],
)
async def test_wrong_messages(http, engine, messages):
    response = await http.post("/v1/chat/completions", json={"model": "M", "messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("messages")
    assert engine.submitted == []


async def test_an_answer_sent_back_as_it_came_is_accepted(http, engine):
    first = {"role": "assistant", "content": "x", "refusal": None, "tool_calls": None, "annotations": []}
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    response = await http.post("/v1/chat/completions", json={"model": "M", "messages": [first, parts]})
    assert response.status_code == 200
    assert bytes(engine.submitted[0].token_ids[1:]) == b"<assistant>x<user>a\nb"


async def test_logprob_counts_over_the_limit(http):
    body = {"model": "M", "prompt": "Hi", "logprobs": 21}
    assert_refused(await http.post("/v1/completions", json=body), "logprobs")
    body = {"model": "M", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 21}
    assert_refused(await http.post("/v1/chat/completions", json=body), "top_logprobs")


async def test_top_logprobs_needs_logprobs(http):
    body = {"model": "M", "messages": [{"role": "user", "content": "Hi"}], "top_logprobs": 2}
    assert_refused(await http.post("/v1/chat/completions", json=body), "top_logprobs")


async def test_best_of_other_than_n_and_echo_with_logprobs(http):
    assert_refused(await http.post("/v1/completions", json={"prompt": "Hi", "best_of": 2}), "best_of")
    assert (await http.post("/v1/completions", json={"prompt": "Hi", "best_of": 2, "n": 2})).status_code == 200
    assert_refused(await http.post("/v1/completions", json={"prompt": "Hi", "echo": True, "logprobs": 1}), "echo")


async def test_unknown_paths_and_methods_have_the_same_error_shape(http):
    for response, status in [(await http.get("/v1/nothing"), 404), (await http.get("/v1/completions"), 405)]:
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


TOO_MUCH = {
    "stop": json.dumps(["x" * 1001]),
    "stop_token_ids": json.dumps([7] * 1025),
    "logit_bias": json.dumps({str(token_id): 1 for token_id in range(1025)}),
}


@pytest.mark.parametrize("field", TOO_MUCH)
async def test_what_would_slow_down_everybody_is_bounded(post, field):
    error = assert_refused(await post(field, TOO_MUCH[field]), field)
    assert "at most 1024" in error["message"] or "1 to 1000 characters" in error["message"]


@pytest.mark.parametrize(
    "field",
    ["y" * 100_000, "stream_options", "messages"],
    ids=["a long name", "a long name in stream_options", "a long name in a message"],
)
async def test_a_long_name_is_not_sent_back_whole(http, field):
    long = "y" * 100_000
    bodies = {"stream_options": {"stream": True, "stream_options": {long: True}}, "messages": {"messages": [{long: 1}]}}
    for path, body in PATHS.items():
        response = await http.post(path, json=body | bodies.get(field, {long: 1}))
        assert response.status_code == 400
        assert len(response.content) < 4000


async def test_a_long_name_with_a_value_that_is_no_json_is_not_sent_back_whole(http):
    response = await http.post("/v1/completions", content=b'{"' + b"k" * 100_000 + b'": NaN}')
    assert response.status_code == 400
    assert len(response.content) < 4000
    assert json.loads(response.content)["error"]["param"].startswith("kkk")
