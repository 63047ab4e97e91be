"""Hot settings in the engine process: checked against what only it knows, then taken over between two steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import admin
from tidemark_runtime.engine import core_engine, logs
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
        self._log_level = started.server.log_level

    def take_over(self, values: Mapping[str, Any]) -> list[admin.ConfigProblem]:
        """What is wrong; nothing when the engine works by these settings from now on."""
        try:
            parsed = config_parsing.parse(values)
            problems = [*self._of_memory(parsed.scheduler), *self._of_context(parsed.model)]
            if problems:
                raise errors.ConfigError(problems)
            self._engine.configure(parsed.scheduler, max_context_tokens=self._context_tokens(parsed.model))
            if parsed.server.log_level != self._log_level:
                self._log_level = parsed.server.log_level
                logs.apply(self._log_level)
        except errors.ConfigError as error:
            return [
                admin.ConfigProblem(each.key, repr(each.seen), each.expected, each.remedy) for each in error.problems
            ]
        except ValueError as error:
            return [admin.ConfigProblem("scheduler.maxNumSeqs", str(error), "the number the engine was started with")]
        return []

    @property
    def _own_context_tokens(self) -> int:
        """The model's own limit."""
        facts = self._facts
        return facts.shape.max_context_tokens if facts.shape is not None else facts.max_context_tokens

    def _context_tokens(self, wanted: config.ModelConfig) -> int:
        """The limit in force with `wanted`."""
        return self._own_context_tokens if wanted.max_context_tokens is None else wanted.max_context_tokens

    def _of_context(self, wanted: config.ModelConfig) -> Iterator[errors.Problem]:
        """Not more than at the start: so long are a slot's rows of tokens and pages, and the slab was made no larger
        than is useful with it."""
        facts, own, num_tokens = self._facts, self._own_context_tokens, self._context_tokens(wanted)
        if num_tokens <= facts.max_context_tokens:
            return
        yield errors.Problem(
            "model.maxContextTokens",
            wanted.max_context_tokens,
            f"at most {facts.max_context_tokens}, what this engine was started with: its tables hold no more",
            f"The model's own limit, which is meant where it is left out, is {own} tokens. "
            + ("Lower it." if num_tokens > own else "Lower it, or restart the engine with it."),
        )

    def _of_memory(self, wanted: config.SchedulerConfig) -> Iterator[errors.Problem]:
        """What a step takes grows with its budget, and the slab has left no more than `memory_utilization` said.

        Up to the whole limit may be used here: a start keeps a reserve, a running engine has measured its overhead.
        """
        facts, before = self._facts, self._started.scheduler.max_num_batched_tokens
        more_bytes = (wanted.max_num_batched_tokens - before) * facts.step_token_bytes
        # The larger of plan and measurement: a heap in use keeps more than was measured at the start.
        taken = {part: max(size, facts.planned_bytes.get(part, 0)) for part, size in facts.memory_bytes.items()}
        free_bytes = facts.memory_limit_bytes - sum({**facts.planned_bytes, **taken}.values())
        if not facts.memory_limit_bytes or more_bytes <= max(0, free_bytes):
            return
        most = before + max(0, free_bytes) // facts.step_token_bytes
        yield errors.Problem(
            "scheduler.maxNumBatchedTokens",
            wanted.max_num_batched_tokens,
            f"at most {most}: each token of the budget takes {facts.step_token_bytes} bytes of activations, and beside "
            f"weights, slab, workspace and overhead {max(0, free_bytes)} of {facts.memory_limit_bytes} bytes are free",
            "Lower it, or restart the engine with it, so that the slab is made smaller.",
        )
