"""Questions to the engine process: each gets its own answer, all get an error when the engine dies, none is kept."""

from __future__ import annotations

import asyncio

import pytest

from tidemark_runtime import errors
from tidemark_runtime.engine import answers


async def asked(waiting: answers.Answers[str], sent: list[int]) -> asyncio.Task[str]:
    task = asyncio.create_task(waiting.ask(sent.append))
    await asyncio.sleep(0)
    return task


async def test_each_question_gets_its_own_answer_in_any_order() -> None:
    waiting, sent = answers.Answers[str](), list[int]()
    first, second = await asked(waiting, sent), await asked(waiting, sent)
    assert sent == [1, 2]
    waiting.take(2, "to the second")
    waiting.take(1, "to the first")
    waiting.take(1, "once more")
    assert (await first, await second) == ("to the first", "to the second")
    waiting.take(1, "late")


async def test_a_question_that_was_given_up_is_not_kept() -> None:
    waiting, sent = answers.Answers[str](), list[int]()
    task = await asked(waiting, sent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting.take(1, "late")
    waiting.fail(errors.EngineDead("gone"))


async def test_the_end_of_the_engine_answers_all() -> None:
    waiting, sent = answers.Answers[str](), list[int]()
    tasks = [await asked(waiting, sent) for _ in range(3)]
    waiting.take(1, "in time")
    waiting.fail(errors.EngineDead("killed"))
    assert await tasks[0] == "in time"
    for task in tasks[1:]:
        with pytest.raises(errors.EngineDead, match="killed"):
            await task
