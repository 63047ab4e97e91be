"""Workload files: every wrong value is named, and what they describe is what is sent."""

from __future__ import annotations

import copy
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from tidemark_runtime import errors
from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import arrivals, clients, distributions, workload

GOOD: dict[str, Any] = {
    "seed": 3,
    "durationSeconds": 10,
    "classes": {"chat": {"arrivals": {"even": {"perSecond": 2}}, "promptTokens": 10, "outputTokens": 5}},
}


def changed(path: str, value: object) -> dict[str, Any]:
    """GOOD with one value put in place; `classes.chat.` is left out of the path where it is in a class."""
    values = copy.deepcopy(GOOD)
    *owners, name = path.split(".")
    found: dict[str, Any] = values
    for owner in owners:
        found = found.setdefault(owner, {})
    found[name] = value
    return values


CLASS = "classes.chat"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("seed", -1, "seed: got -1, expected a whole number of at least 0"),
        ("durationSeconds", 0, "durationSeconds: got 0, expected a number above 0"),
        ("durationSecond", 1, "durationSecond: got 'this key', expected a known key. Did you mean durationSeconds?"),
        ("classes", {}, "classes: got {}, expected a mapping"),
        ("classes", None, "classes: got None, expected a mapping"),
        (CLASS, None, "classes.chat: got None, expected a mapping with arrivals"),
        (f"{CLASS}.arrivals", {"poison": {}}, "classes.chat.arrivals: got {'poison': {}}, expected one of {poisson"),
        (
            f"{CLASS}.arrivals",
            {"poisson": {"perSecond": 0}},
            "arrivals.poisson.perSecond: got 0, expected a number above",
        ),
        (f"{CLASS}.arrivals", {"poisson": {"rate": 1}}, "arrivals.poisson.rate: got 'this key'"),
        (f"{CLASS}.arrivals", {"poisson": 3}, "arrivals.poisson: got 3, expected a mapping"),
        (f"{CLASS}.arrivals", {"at": {"seconds": [1, -1]}}, "arrivals.at.seconds: got [1, -1], expected a list"),
        (f"{CLASS}.arrivals", {"bursts": {"size": 2}}, "arrivals.bursts.everySeconds: got None"),
        (f"{CLASS}.arrivals", {"users": {"num": 1.5}}, "arrivals.users.num: got 1.5, expected a whole number"),
        (f"{CLASS}.promptTokens", None, "classes.chat.promptTokens: got None, expected a number, or one of"),
        (f"{CLASS}.promptTokens", 0, "promptTokens: got 0.0, expected values of at least 1"),
        (f"{CLASS}.promptTokens", True, "promptTokens: got True, expected a number, or one of"),
        (f"{CLASS}.promptTokens", {"uniform": {"min": 5, "max": 3}}, "uniform.min: got 5.0, expected at most max, 3"),
        (f"{CLASS}.promptTokens", {"normal": {}}, "promptTokens: got {'normal': {}}, expected a number, or one of"),
        (
            f"{CLASS}.outputTokens",
            {"lognormal": {"median": 0, "sigma": 1, "min": 1, "max": 2}},
            "lognormal.median: got 0, expected a number above 0",
        ),
        (f"{CLASS}.outputTokens", {"choice": {"values": []}}, "choice.values: got [], expected a list of numbers"),
        (
            f"{CLASS}.outputTokens",
            {"choice": {"values": [1, 2], "weights": [1]}},
            "choice.weights: got 1, expected as many as there are values, 2",
        ),
        (
            f"{CLASS}.outputTokens",
            {"choice": {"values": [1, 2], "weights": [0, 0]}},
            "choice.weights: got [0.0, 0.0], expected numbers of at least 0, not all of them 0",
        ),
        (f"{CLASS}.promptTokens", 1e8, "promptTokens: got 100000000.0, expected values of at most 1048576"),
        (f"{CLASS}.promptTokens", 1.5, "promptTokens: got 1.5, expected whole numbers of tokens"),
        (f"{CLASS}.promptTokens", "5", "promptTokens: got '5', expected a number, or one of"),
        (f"{CLASS}.promptTokens", 10**400, "expected a number, or one of"),
        (f"{CLASS}.outputTokens", {"uniform": {"min": 1, "max": 2.5}}, "outputTokens: got 2.5, expected whole numbers"),
        (f"{CLASS}.outputTokens", {"choice": {"values": [1, 2.5, 9]}}, "outputTokens: got 2.5, expected whole numbers"),
        (f"{CLASS}.maxTokens", 0.5, "maxTokens: got 0.5, expected values of at least 1"),
        (f"{CLASS}.sharedPromptTokens", 11, "got 11, expected at most the longest of promptTokens, 10"),
        (f"{CLASS}.priority", 101, "priority: got 101, expected a whole number of at least -100 and at most 100"),
        (f"{CLASS}.priority", -101, "priority: got -101, expected a whole number of at least -100 and at most 100"),
        (f"{CLASS}.startSeconds", 10, "startSeconds: got 10.0, expected less than durationSeconds, 10"),
        (
            f"{CLASS}.arrivals",
            {"poisson": {"perSecond": 1e300}},
            "classes: got 1e+301 requests, expected at most 5,000,000 in all. Most of them are of the class chat",
        ),
        (f"{CLASS}.arrivals", {"bursts": {"size": 10, "everySeconds": 1e-300}}, "expected at most 5,000,000 in all"),
        (f"{CLASS}.arrivals", {"users": {"num": 6_000_000}}, "classes: got 6,000,000 requests"),
        ("durationSeconds", 1e9, "classes: got 2,000,000,000 requests, expected at most 5,000,000 in all"),
        (f"{CLASS}.retries", {"most": 2000}, "retries.most: got 2000, expected a whole number of at least 0 and at"),
        (f"{CLASS}.tenants", 0, "classes.chat.tenants: got 0, expected a whole number of at least 1"),
        (f"{CLASS}.retries", {"most": 1, "factor": 0.5}, "retries.factor: got 0.5, expected a number of at least 1"),
        (f"{CLASS}.retries", {}, "classes.chat.retries.most: got None"),
        (f"{CLASS}.areRetries", "yes", "areRetries: got 'yes', expected true or false"),
        (f"{CLASS}.priorty", 1, "classes.chat.priorty: got 'this key', expected a known key. Did you mean priority?"),
        ("settings.server", {"port": 1}, "settings.server: got 'this section', expected a setting of kvCache"),
        ("settings.model", {"source": "x"}, "settings.model.source: got 'this key', expected a setting of kvCache"),
        ("settings.scheduler", {"maxNumSeq": 1}, "settings.scheduler.maxNumSeq: got 'this key'"),
        (
            "settings.scheduler",
            {"queueWatermark": 0.99},
            "settings.scheduler.queueWatermark: got 0.99, expected at most",
        ),
    ],
)
def test_a_wrong_value_is_named(path: str, value: object, words: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        workload.parse(changed(path, value), "made")
    assert words in str(caught.value)


def test_all_problems_come_together() -> None:
    values = changed(f"{CLASS}.promptTokens", 0) | {"seed": "x", "more": 1}
    with pytest.raises(errors.ConfigError) as caught:
        workload.parse(values, "made")
    assert sorted(problem.key for problem in caught.value.problems) == ["classes.chat.promptTokens", "more", "seed"]


def test_a_class_must_come_to_an_end() -> None:
    endless = changed("durationSeconds", None)
    with pytest.raises(errors.ConfigError, match=r"classes\.chat\.requests: got None, expected a number of requests"):
        workload.parse(endless, "made")
    for key, value in (("requests", 4), ("endSeconds", 2), ("arrivals", {"at": {"seconds": [1]}})):
        ending = copy.deepcopy(endless)
        ending["classes"]["chat"][key] = value
        assert workload.parse(ending, "made").classes[0].name == "chat"


def test_overrides_win_and_are_named_as_such() -> None:
    values = changed("settings.scheduler", {"maxNumSeqs": 8})
    found = workload.parse(values, "made", seed=9, overrides={"scheduler.maxNumSeqs": "16", "kvCache.blockSize": "32"})
    assert (found.settings.scheduler.max_num_seqs, found.settings.kv_cache.block_size, found.seed) == (16, 32, 9)
    with pytest.raises(errors.ConfigError, match=r"--set scheduler\.maxNumSeqs: got 'x', expected a whole number"):
        workload.parse(values, "made", overrides={"scheduler.maxNumSeqs": "x"})
    with pytest.raises(errors.ConfigError, match=r"--set server\.port: got '1', expected a setting of kvCache"):
        workload.parse(values, "made", overrides={"server.port": "1"})


@pytest.mark.parametrize("key", ["method", "tokens", "draftModel"])
def test_guesses_are_refused_with_the_reason(key: str) -> None:
    said = r"speculative.*: got .*, expected none: made-up tokens repeat nothing, .*Remove the section speculative"
    with pytest.raises(errors.ConfigError, match=rf"--set speculative\.{key}: got 'x', expected none: made-up tokens"):
        workload.parse(changed("seed", 1), "made", overrides={f"speculative.{key}": "x"})
    with pytest.raises(errors.ConfigError, match=rf"settings\.{said}"):
        workload.parse(changed("settings.speculative", {key: "x"}), "made")


def first(kind: arrivals.Arrivals, num: int) -> list[float]:
    return list(itertools.islice(kind.times(random.Random(1)), num))


def test_arrivals() -> None:
    assert first(arrivals.Even(2.0), 3) == [0.0, 0.5, 1.0]
    assert first(arrivals.Bursts(2, 5.0), 5) == [0, 0, 5, 5, 10]
    assert first(arrivals.At((3.0, 1.0)), 9) == [1.0, 3.0]
    assert first(arrivals.Users(4, distributions.Constant(1.0), 8.0), 9) == [0, 2, 4, 6]
    times = first(arrivals.Poisson(4.0), 4000)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1000, rel=0.05)


def test_distributions_keep_their_bounds() -> None:
    source = random.Random(1)
    lognormal = distributions.Lognormal(100.0, 1.0, 10.0, 500.0)
    drawn = [lognormal.draw(source) for _ in range(3000)]
    assert (min(drawn), max(drawn)) == (10.0, 500.0)
    assert sorted(drawn)[1500] == pytest.approx(100, rel=0.1)
    choice = distributions.Choice((1.0, 2.0), (1.0, 3.0))
    assert sum(choice.draw(source) == 2.0 for _ in range(4000)) == pytest.approx(3000, rel=0.05)
    assert {distributions.whole(distributions.Uniform(1.0, 3.0), source) for _ in range(100)} == {1, 2, 3}


def sent(values: dict[str, Any]) -> list[tuple[str, float, int, int]]:
    load = workload.parse(values, "made")
    source = clients.Clients(load, load.seed)
    return [
        (request.kind.name, at, request.num_prompt_tokens, request.num_output_tokens) for request, at in source.due(1e9)
    ]


def test_a_class_is_not_disturbed_by_another() -> None:
    values = changed(f"{CLASS}.promptTokens", {"uniform": {"min": 1, "max": 999}})
    values["classes"]["chat"]["arrivals"] = {"poisson": {"perSecond": 5}}
    alone = sent(values)
    values["classes"] = {"other": GOOD["classes"]["chat"], **values["classes"]}
    together = sent(values)
    assert len(alone) > 20
    assert [item for item in together if item[0] == "chat"] == alone
    assert sent(values | {"seed": 4}) != together


def test_the_time_and_the_number_end_a_class() -> None:
    assert len(sent(GOOD)) == 20
    assert len(sent(changed(f"{CLASS}.requests", 7))) == 7
    assert len(sent(changed(f"{CLASS}.startSeconds", 8))) == 4
    assert len(sent(changed(f"{CLASS}.endSeconds", 3))) == 6


def test_what_the_engine_is_told() -> None:
    values = copy.deepcopy(GOOD)
    values["classes"]["chat"] |= {
        "maxTokens": 50,
        "priority": 4,
        "tenants": 2,
        "deadlineSeconds": 9,
        "areRetries": True,
    }
    load = workload.parse(values, "made")
    source = clients.Clients(load, load.seed)
    told = [source.message(request) for request, _ in source.due(1e9)]
    assert [message.tenant for message in told[:3]] == ["chat-0", "chat-1", "chat-0"]
    message = told[1]
    assert (message.priority, message.deadline_seconds, message.is_retry) == (4, 9.0, True)
    assert (message.params.max_tokens, message.params.seed, len(message.token_ids)) == (50, 1, 10)
    assert len({message.id for message in told}) == len(told)


def test_a_class_that_ends_before_it_starts_is_refused() -> None:
    values = changed(f"{CLASS}.startSeconds", 5)
    values["classes"]["chat"]["endSeconds"] = 4
    with pytest.raises(errors.ConfigError, match=r"chat\.endSeconds: got 4\.0, expected more than startSeconds, 5"):
        workload.parse(values, "made")


def test_a_seed_from_the_command_line_is_looked_at_as_the_files_is() -> None:
    with pytest.raises(errors.ConfigError, match="--seed: got -1, expected a whole number of at least 0"):
        workload.parse(GOOD, "made", seed=-1)


def test_a_high_rate_of_few_requests_is_no_harm() -> None:
    values = changed(f"{CLASS}.arrivals", {"poisson": {"perSecond": 1e300}})
    values["classes"]["chat"]["requests"] = 7
    assert len(sent(values)) == 7


def test_a_number_as_yaml_writes_it_and_a_key_that_stands_twice(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    text = "durationSeconds: 1e1\nclasses: {c: {arrivals: {even: {perSecond: 2}}, promptTokens: 1, outputTokens: 1}}\n"
    file.write_text(text)
    assert workload.load(file).duration_seconds == 10.0
    file.write_text(text + "seed: 1\nseed: 2\n")
    with pytest.raises(errors.ConfigError, match="seed: got two of it, on lines 3 and 4"):
        workload.load(file)


def test_a_user_who_is_refused_does_not_ask_again_in_the_same_moment() -> None:
    """Else a closed loop without thinking would turn for ever while the clock stands still."""
    load = workload.parse(changed(f"{CLASS}.arrivals", {"users": {"num": 1}}), "made")
    source = clients.Clients(load, load.seed)
    ((request, _),) = source.due(0.0)
    too_long = messages.RejectReason.CONTEXT_LENGTH
    refusal = messages.SequenceOutput("x", (), (), messages.FinishReason.REJECTED, reject=too_long)
    assert not source.ended(request, refusal, 3.0, 0)
    assert source.next_at >= 4.0
