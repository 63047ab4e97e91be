"""Hot settings in the engine process: checked against what only it knows, then taken over between two steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import admin
from tidemark_runtime.engine import core_engine
from tidemark_runtime.worker import interface


class HotSettings:
    """Takes over a whole configuration or nothing of it."""

    def __init__(
        self, started: config.EngineConfig, facts: interface.WorkerFacts, engine: core_engine.CoreEngine
    ) -> None:
        """`started`: the settings that the worker was loaded with; its memory was planned for these."""
        self._started = started
        self._facts = facts
        self._engine = engine

    def take_over(self, values: Mapping[str, Any]) -> list[admin.ConfigProblem]:
        """What is wrong; nothing when the engine works by these settings from now on."""
        try:
            parsed = config_parsing.parse(values)
            self._check_memory(parsed.scheduler)
            self._engine.configure(parsed.scheduler)
        except errors.ConfigError as error:
            return [
                admin.ConfigProblem(each.key, repr(each.seen), each.expected, each.remedy) for each in error.problems
            ]
        except ValueError as error:
            return [admin.ConfigProblem("scheduler.maxNumSeqs", str(error), "the number the engine was started with")]
        return []

    def _check_memory(self, wanted: config.SchedulerConfig) -> None:
        """The workspace of a step grows with its budget, and the slab has left no more than `memory_utilization` said.

        Up to the whole limit may be used here: a start keeps a reserve, a running engine has measured its overhead.
        Raises `ConfigError` with the sum.
        """
        facts, before = self._facts, self._started.scheduler.max_num_batched_tokens
        more_bytes = (wanted.max_num_batched_tokens - before) * facts.step_token_bytes
        free_bytes = facts.memory_limit_bytes - sum(facts.memory_bytes.values())
        if not facts.memory_limit_bytes or more_bytes <= max(0, free_bytes):
            return
        most = before + max(0, free_bytes) // facts.step_token_bytes
        problem = errors.Problem(
            "scheduler.maxNumBatchedTokens",
            wanted.max_num_batched_tokens,
            f"at most {most}: each token of the budget takes {facts.step_token_bytes} bytes of workspace, and beside "
            f"weights, slab, workspace and overhead {max(0, free_bytes)} of {facts.memory_limit_bytes} bytes are free",
            "Lower it, or restart the engine with it, so that the slab is made smaller.",
        )
        raise errors.ConfigError([problem])
