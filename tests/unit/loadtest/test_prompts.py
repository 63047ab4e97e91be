"""Prompts are as long as wanted, by the server's own count, and no two begin alike unless the workload says so."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
import virtual_loop

from tidemark_runtime.loadtest import prompts, target, words
from tidemark_runtime.simulation import senders, workload

TEMPLATE_TOKENS = 7
"""The made server's."""


def request(number: int, tokens: int, shared: int = 0) -> senders.Request:
    kind = {
        "arrivals": {"at": {"seconds": [0]}},
        "promptTokens": max(tokens, shared),
        "outputTokens": 1,
        "sharedPromptTokens": shared,
    }
    (only,) = workload.parse({"classes": {"chat": kind}}, "w").classes
    return senders.Request(only, number, tokens, 1, 1, "chat-0", 0.0)


@pytest.fixture
def measure(server, open_http) -> Callable[[], prompts.Measure]:
    def measured(endpoint: target.Endpoint = target.Endpoint.CHAT) -> prompts.Measure:
        async def ask() -> prompts.Measure:
            async with open_http() as http:
                return await prompts.measure(http, endpoint, "made", None)

        return virtual_loop.run(ask())

    return measured


def counted(server, text: str, endpoint: target.Endpoint) -> int:
    return int(server._count(target.spoken(endpoint, text)))


@pytest.mark.parametrize("endpoint", list(target.Endpoint))
def test_exact_by_the_servers_tokenizer(server, measure, endpoint: target.Endpoint) -> None:
    measured = measure(endpoint)
    made = prompts.Prompts(measured, "salt")
    assert measured.how.startswith("exact: ")
    assert 64 < len(measured.words) < len(words.WORDS), "words of two tokens are left out"
    for tokens in (10, 11, 128, 4000):
        assert counted(server, made.text(0, request(1, tokens)), endpoint) == tokens


def test_by_what_requests_are_charged_where_nothing_counts(server, measure) -> None:
    server.counts_tokens = False
    measured = measure()
    assert measured.how.startswith("estimated: 1.0")
    text = prompts.Prompts(measured, "salt").text(0, request(1, 1000))
    assert counted(server, text, target.Endpoint.CHAT) == pytest.approx(1000, rel=0.03)


def test_guessed_where_the_server_says_nothing(server, measure) -> None:
    server.counts_tokens = server.says_usage = False
    assert measure().how.startswith("guessed: one token a word")


def test_prompts_shorter_than_their_template_still_have_a_word(server, measure) -> None:
    assert len(prompts.Prompts(measure(), "salt").text(0, request(1, 1)).split()) == 2


def test_no_two_prompts_begin_alike(measure) -> None:
    made, other_run = prompts.Prompts(measure(), "salt"), prompts.Prompts(measure(), "pepper")
    texts = [made.text(level, request(number, 60)) for level in range(3) for number in range(300)]
    assert len({" ".join(text.split()[:5]) for text in texts}) == len(texts)
    assert made.text(0, request(7, 60)) == made.text(0, request(7, 60)), "a retry sends the same"
    assert other_run.text(0, request(7, 60)) != made.text(0, request(7, 60)), "or a second run would be cached"


def test_shared_beginnings_are_alike_and_no_longer_than_the_prompt(server, measure) -> None:
    made = prompts.Prompts(measure(), "salt")
    first, second = (made.text(0, request(number, 100, shared=40)).split() for number in (1, 2))
    alike = next(at for at, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
    assert alike + TEMPLATE_TOKENS == pytest.approx(40, abs=2)
    assert counted(server, made.text(0, request(3, 20, shared=40)), target.Endpoint.CHAT) == 20


def test_words_are_one_each() -> None:
    assert len(set(words.WORDS)) > 300
    assert all(word.isalpha() and word.islower() for word in words.WORDS)


def test_the_client_follows_no_proxy_and_has_no_limit(open_http: Callable[[], httpx.AsyncClient]) -> None:
    http = open_http()
    assert http.trust_env is False
    assert http.follow_redirects is False
