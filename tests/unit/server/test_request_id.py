"""`x-request-id` on every answer."""

from __future__ import annotations

import pytest

HEADER = "x-request-id"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing", "/health/live"])
async def test_ours_when_there_is_none(http, path):
    first, second = (await http.get(path)).headers[HEADER], (await http.get(path)).headers[HEADER]
    assert len(first) == 32
    assert first != second


async def test_the_clients_own_comes_back_also_on_streams_and_errors(http):
    headers = {HEADER: "trace-1/2:3"}
    for body in ({"prompt": "Hi", "stream": True}, {"prompt": "Hi"}, {"prompt": 5}):
        response = await http.post("/v1/completions", json=body, headers=headers)
        assert response.headers[HEADER] == "trace-1/2:3"


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é".encode()])
async def test_odd_ones_are_not_repeated(http, given):
    assert len((await http.get("/v1/models", headers={HEADER: given})).headers[HEADER]) == 32
