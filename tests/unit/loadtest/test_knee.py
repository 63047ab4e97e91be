"""The knee: which level it is, why, and what is proposed."""

from __future__ import annotations

import pytest

from tidemark_runtime.loadtest import figures, knee, levels, server_side
from tidemark_runtime.simulation import percentiles

RULE = knee.Rule(target_seconds=2.0, gain=0.05)
NONE = percentiles.Percentiles()


def level(
    users: float,
    speed: float,
    wait: float = 0.1,
    *,
    served: int = 100,
    kind: levels.Kind = levels.Kind.USERS,
    mean: float = 0.0,
    running: int | None = None,
) -> figures.LevelFigures:
    total = figures.ClassFigures(
        requests=100,
        tries=100,
        served=served,
        served_first_try=served,
        gave_up=100 - served,
        outcomes={"ok": served},
        retry_after=NONE,
        prompt_tokens=0,
        wanted_prompt_tokens=0,
        output_tokens=0,
        wanted_output_tokens=0,
        cached_tokens=0,
        time_to_first_token=percentiles.Percentiles(num=100, p50=wait / 2, p95=wait),
        between_tokens=NONE,
        end_to_end=NONE,
    )
    server = None
    if running is not None:
        server = server_side.ServerFigures(
            queue_waits=1,
            queue_wait_mean=0,
            queue_wait_p95=0,
            preemptions=0,
            prefix_hit_share=None,
            running_mean=running,
            running_peak=running,
            waiting_peak=0,
            pages_used_peak=0.5,
        )
    return figures.LevelFigures(
        name="1 user" if (users, kind) == (1, levels.Kind.USERS) else f"{users:g} {kind}",
        kind=str(kind),
        amount=users,
        seconds=10,
        whole=True,
        output_tokens_per_second=speed,
        prompt_tokens_per_second=speed,
        total_tokens_per_second=2 * speed,
        requests_per_second=1,
        mean_concurrency=mean,
        peak_concurrency=int(users),
        classes={"load": total},
        client=figures.ClientFigures(lateness=NONE, lag=NONE, cpu_share=0.1, warnings=()),
        server=server,
        check=None,
    )


@pytest.mark.parametrize(
    ("found", "name", "is_reached", "value"),
    [
        # rises, then stays
        ([level(1, 100), level(2, 180), level(4, 300), level(8, 305), level(16, 306)], "4 users", True, 4),
        # still rises at the end
        ([level(1, 100), level(2, 200)], "2 users", False, None),
        # a gain of exactly 5 % counts
        ([level(1, 100), level(2, 105), level(4, 106)], "2 users", True, 2),
        ([level(1, 100), level(2, 104.9)], "1 user", True, 1),
        # many small steps are a gain over the best, not over the one before
        ([level(1, 100), level(2, 104), level(4, 108)], "4 users", False, None),
        # a dip does not hide what comes after
        ([level(1, 100), level(2, 90), level(4, 200), level(8, 201)], "4 users", True, 4),
        # first tokens come too late
        ([level(1, 100), level(2, 180, 1.9), level(4, 300, 2.1)], "2 users", True, 2),
        # the search ends there, whatever comes after
        ([level(1, 100), level(2, 180, 2.1), level(4, 300, 0.1)], "1 user", True, 1),
        # refused
        ([level(1, 100), level(2, 180, served=98), level(4, 300)], "1 user", True, 1),
        ([level(1, 100), level(2, 180, served=99)], "2 users", False, None),
        # not even the first
        ([level(1, 100, 3.0), level(2, 200, 3.0)], None, True, None),
        ([level(1, 0), level(2, 0)], None, True, None),
        ([], None, True, None),
    ],
)
def test_the_knee(found: list[figures.LevelFigures], name: str | None, is_reached: bool, value: int | None) -> None:
    bend = knee.find(RULE, found)
    assert (bend.level, bend.is_reached, bend.value) == (name, is_reached, value)
    assert bend.advice
    if value is not None:
        assert f"scheduler.maxConcurrencySoft: {value} (hot" in bend.advice


def test_every_level_is_explained() -> None:
    bend = knee.find(RULE, [level(1, 100), level(2, 180), level(4, 182), level(8, 190, 2.5), level(16, 1)])
    assert bend.reasons == (
        "1 user: the first",
        "2 users: +80.0% tokens/s",
        "4 users: +1.1% tokens/s, too little",
        "8 users: first tokens take 2.50 s (p95)",
    )
    assert "5% more output tokens/s" in bend.rule
    assert "within 2 s" in bend.rule


def test_an_open_loop_proposes_what_was_under_way() -> None:
    rate = levels.Kind.RATE
    found = [level(1, 100, kind=rate, mean=2.2), level(2, 200, kind=rate, mean=5.3), level(4, 201, kind=rate, mean=50)]
    assert knee.find(RULE, found).value == 6


def test_more_than_ever_ran_at_once_is_not_proposed() -> None:
    found = [level(4, 100, running=4), level(16, 200, running=8), level(32, 201, running=8)]
    assert knee.find(RULE, found).value == 8


@pytest.mark.parametrize(
    ("found", "past"),
    [
        ([level(1, 100)], False),
        ([level(1, 100), level(2, 101)], False),
        ([level(1, 100), level(2, 101), level(4, 102)], True),
        ([level(1, 100), level(2, 101), level(4, 120)], False),
        ([level(1, 100), level(2, 200, 2.5)], True),
    ],
)
def test_where_a_ramp_ends(found: list[figures.LevelFigures], past: bool) -> None:
    assert knee.is_past(RULE, found) is past
