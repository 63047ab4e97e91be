"""How much a step may hold beside its decodes: tokens of prompts, and guesses. By the budget of tokens, and where there
is a target time, by what is predicted to fit into it."""

from __future__ import annotations

from tidemark_runtime import config
from tidemark_runtime.core import draft as draft_
from tidemark_runtime.core import running, speculation, step_time


class Budget:
    """Of the step that is being planned; looks at who runs, and changes nothing."""

    def __init__(self, running_: running.Running, times: step_time.StepTime, block_size: int) -> None:
        self._running = running_
        self._decoding = running_.decoding
        self._times = times
        self._block_size = block_size

    def prompt_tokens(self, draft: draft_.Draft, settings: config.SchedulerConfig) -> int:
        """Tokens for prompts in a step that holds none yet: what decodes leave, and what is predicted to fit into the
        target time; at least a page's, or prompts would never come to an end."""
        left = self.tokens_beside_decodes(settings)
        if settings.target_step_seconds is None or left <= self._block_size:
            return left
        context = self._running.prompting[0].num_computed if self._running.prompting else 0
        return min(left, max(self._block_size, self.prompt_tokens_in_time(draft, context, settings)))

    def tokens_beside_decodes(self, settings: config.SchedulerConfig) -> int:
        """Whatever the target time says."""
        return settings.max_num_batched_tokens - len(self._decoding)

    def prompt_tokens_in_time(self, draft: draft_.Draft, context: int, settings: config.SchedulerConfig) -> int:
        """How many more, after `context` tokens of the same prompt, the step may hold."""
        target = settings.target_step_seconds
        if target is None:
            return settings.max_num_batched_tokens
        return self._times.prompt_tokens_within(target, self._work(draft), context)

    def for_guesses(
        self, draft: draft_.Draft, settings: config.SchedulerConfig, *, queue_line_crossed: bool
    ) -> speculation.Room:
        """What prompts and decodes leave of the step."""
        left = self.tokens_beside_decodes(settings) - draft.num_prompt_tokens
        seconds = None
        if settings.target_step_seconds is not None:
            seconds = max(0.0, settings.target_step_seconds - self._times.seconds(self._work(draft)))
        return speculation.Room(left, seconds, may_take_pages=not (draft.had_to_preempt or queue_line_crossed))

    def _work(self, draft: draft_.Draft) -> step_time.Work:
        """What the step holds so far."""
        tokens_read = self._decoding.num_tokens_read(draft.step)
        return step_time.Work(len(self._decoding), draft.num_prompt_tokens, tokens_read, draft.num_pairs)
