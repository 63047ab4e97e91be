from __future__ import annotations

from typing import Any

from tidemark_operator.cluster.kubernetes import activity as activity_


async def test_each_kind_has_an_age_and_the_oldest_is_told(clock: Any) -> None:
    activity = activity_.Activity(["Pod", "Service"], ("",), clock)
    await clock.advance(10)
    activity.worked("Pod", "team")
    await clock.advance(5)
    assert activity.ages() == {"Pod": 5, "Service": 15}
    assert activity.oldest() == ("Service", 15)


async def test_of_several_namespaces_the_oldest_counts(clock: Any) -> None:
    activity = activity_.Activity(["Pod"], ("a", "b"), clock)
    await clock.advance(10)
    activity.worked("Pod", "a")
    assert activity.ages() == {"Pod": 10}
    activity.worked("Pod", "b")
    assert activity.ages() == {"Pod": 0}


def test_a_watch_is_missing_until_it_was_opened(clock: Any) -> None:
    activity = activity_.Activity(["Pod"], ("a", "b"), clock)
    activity.worked("Pod", "a")
    assert activity.missing == {("Pod", "a"), ("Pod", "b")}
    activity.opened("Pod", "a")
    assert activity.missing == {("Pod", "b")}
    activity.opened("Secret", "b")
    activity.opened("Pod", "b")
    assert activity.missing == frozenset()
