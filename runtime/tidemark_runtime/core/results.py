"""What the result of a step changes: pages that others may use now, what steps and copies are known to cost, and the
tokens of those that still want them. Until then it keeps what each step in flight is to bring."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tidemark_runtime.core import counters, memory, sequence, speculation, step_plan, step_time, victims
from tidemark_runtime.core import draft as draft_

Sampled = tuple[sequence.Sequence, int, "step_plan.TokenLogprobs | None"]
"""A token that came back for a sequence that still wanted it."""


class Results:
    """Of the steps in flight, and what guesses brought in the last one that is done."""

    def __init__(
        self,
        memory_: memory.Memory,
        *,
        times: step_time.StepTime,
        costs: victims.Costs,
        speculation_: speculation.Speculation | None,
        counters_: counters.Counters,
    ) -> None:
        self._memory = memory_
        self._times = times
        self._costs = costs
        self._speculation = speculation_
        self._counters = counters_
        self._planned: dict[int, draft_.InFlight] = {}
        self._verified: list[speculation.Verified] = []

    @property
    def are_awaited(self) -> bool:
        """Whether a step is in flight."""
        return bool(self._planned)

    def wait_for(self, step: int, planned: draft_.InFlight) -> None:
        """`step` was planned, and will bring this."""
        self._planned[step] = planned

    def note_filled(self, entry: sequence.Sequence, num_tokens: int, step: int) -> None:
        """The first `num_tokens` of `entry` are in pages once `step` is done, which may be long ago."""
        if step in self._planned:
            self._planned[step].filled.append((entry, num_tokens))
        else:
            self._memory.publish(entry, num_tokens)

    def book(self, result: step_plan.StepResult, next_step: int) -> list[Sampled]:
        """The tokens of a step, but not those of sequences that have ended meanwhile. Who had guesses checked decodes
        again from `next_step` on, and is told by `take_verified`."""
        done = self._planned.pop(result.step)
        if done.verifying and self._speculation is not None:
            result = self._book_guesses(done, result, self._speculation, next_step)
        elif done.sampling or done.work.prompt_tokens:
            seconds = max(0.0, result.execute_seconds - result.swap_seconds)
            self._times.observe(done.work, seconds)
            if self._speculation is not None:
                self._speculation.note_plain(done.work, seconds)
        self._costs.observe(done.swaps_out, done.num_swaps_in, result.swap_seconds)
        for entry, num_tokens in done.filled:
            if entry.state is sequence.State.RUNNING and entry.first_step <= result.step:
                self._memory.publish(entry, num_tokens)
        finished = sequence.State.FINISHED
        pairs = zip(done.sampling, result.token_ids, result.logprobs, strict=True)
        sampled: list[Sampled] = [item for item in pairs if item[0].state is not finished]
        for entry, token_id, _ in sampled:
            entry.token_ids.append(token_id)
        self._counters.generated_tokens += len(sampled)
        return sampled

    def take_verified(self) -> list[speculation.Verified]:
        """What guesses brought in the last `book`, beside what that returned."""
        taken, self._verified = self._verified, []
        return taken

    def give_up(self) -> Iterator[sequence.Sequence]:
        """No step in flight will come back. Returns all that these would have sampled a token of, maybe twice."""
        planned, self._planned = self._planned, {}
        return (entry for step in planned.values() for entry in step.sampling)

    def _book_guesses(
        self,
        done: draft_.InFlight,
        result: step_plan.StepResult,
        speculation_: speculation.Speculation,
        next_step: int,
    ) -> step_plan.StepResult:
        """What `result` is without the verifications; what they brought is kept for `take_verified`."""
        booked = speculation_.book(done, result, next_step)
        self._verified += booked
        self._counters.generated_tokens += sum(len(each.token_ids) for each in booked)
        count = len(done.sampling)
        return dataclasses.replace(result, token_ids=result.token_ids[:count], logprobs=result.logprobs[:count])
