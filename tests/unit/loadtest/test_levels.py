"""What levels are made of: options and workload files, every wrong value named by its option."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark_runtime import errors
from tidemark_runtime.loadtest import levels
from tidemark_runtime.simulation import arrivals, workload

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples/workloads").glob("*.yaml"))
WINDOW = levels.Window(2, 10, 20, 100)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (levels.Shape(prompt_tokens="0"), "--prompt-tokens: got 0.0, expected values of at least 1"),
        (levels.Shape(prompt_tokens="many"), "--prompt-tokens: got 'many', expected a number, or one of"),
        (
            levels.Shape(prompt_tokens="{uniform: {min: 3, max: 2}}"),
            "--prompt-tokens.uniform.min: got 3.0, expected at most",
        ),
        (levels.Shape(prompt_tokens="{"), "--prompt-tokens: got '{', expected a number"),
        (levels.Shape(output_tokens="1.5"), "--output-tokens: got 1.5, expected whole numbers of tokens"),
        (levels.Shape(shared_prompt_tokens=129), "--shared-prompt-tokens: got 129, expected at most the longest"),
    ],
)
def test_wrong_lengths_are_told_by_their_option(shape: levels.Shape, words: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        levels.of_users(4, shape, WINDOW, 1)
    assert words in str(raised.value)


def test_more_requests_than_can_be_kept() -> None:
    with pytest.raises(errors.ConfigError, match="--rate: got 7,020,000,000 requests"):
        levels.of_rate(1e7, levels.Shape(), WINDOW, 1)


@pytest.mark.parametrize("text", ["", "a", "2,1", "1,1", "0,1", "-1", "1.5", "1,,2", "100001", "1;2", "nan", "1e999"])
def test_wrong_lists_of_users(text: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"--users: got .*expected whole numbers above 0 and at most 100000"):
        levels.numbers("--users", text, whole=True, most=levels.USERS_MOST)


@pytest.mark.parametrize("text", ["nan", "inf", "x", "3,2", "0"])
def test_wrong_lists_of_rates(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="--rate: got"):
        levels.numbers("--rate", text, whole=False, most=1e6)


def test_lists() -> None:
    assert levels.numbers("--rate", "0.5, 1,2.5", whole=False, most=1e6) == [0.5, 1.0, 2.5]
    with pytest.raises(errors.ConfigError, match="at most 100 levels"):
        levels.numbers("--users", ",".join(map(str, range(1, 102))), whole=True, most=1000)


@pytest.mark.parametrize(("text", "found"), [("1:8", [1, 2, 4, 8]), ("1:6", [1, 2, 4, 6]), ("3:20", [3, 6, 12, 20])])
def test_ramps(text: str, found: list[float]) -> None:
    assert levels.ramp("--ramp", text) == found


@pytest.mark.parametrize("text", ["", "4", "4:4", "8:4", "0:4", "1:x", "1:100001", "1:2:3", "-1:4"])
def test_wrong_ramps(text: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"--ramp: got .*expected FIRST:LAST"):
        levels.ramp("--ramp", text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_workload_that_a_simulation_reads_is_a_level(path: Path) -> None:
    (level,) = levels.of_file(path, [1.0], None)
    assert level.load == workload.load(path)
    assert level.window is None, "all of it"


def test_a_workload_scaled() -> None:
    values = {
        "durationSeconds": 60,
        "classes": {
            name: {"arrivals": come, "promptTokens": 5, "outputTokens": 5, "requests": 10}
            for name, come in {
                "a": {"poisson": {"perSecond": 3}},
                "b": {"bursts": {"size": 4, "everySeconds": 9}},
                "c": {"users": {"num": 3}},
            }.items()
        },
    }
    scaled = levels.scaled(workload.parse(values, "w"), 2.5)
    a, b, c = (kind.arrivals for kind in scaled.classes)
    assert a == arrivals.Poisson(7.5)
    assert b == arrivals.Bursts(10, 9)
    assert isinstance(c, arrivals.Users)
    assert c.num == 8
    assert [kind.num_requests for kind in scaled.classes] == [25] * 3


def test_given_moments_cannot_be_scaled() -> None:
    kind = {"arrivals": {"at": {"seconds": [1]}}, "promptTokens": 5, "outputTokens": 5}
    load = workload.parse({"classes": {"x": kind}}, "w")
    assert levels.scaled(load, 1) == load
    with pytest.raises(errors.ConfigError, match=r"--scale: got 2 with classes\.x\.arrivals at given seconds"):
        levels.scaled(load, 2)
