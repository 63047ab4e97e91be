"""The whole engine turned by hand, with a clock of its own and a worker that notices every mistake with pages.

The clock stands still unless a test moves it, or gives steps a duration (`step_seconds`). With durations the bench is a
simulation: what a client would see at which second, the same in every run.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import page_checking_worker

from tidemark_runtime import config, errors
from tidemark_runtime.core import overload, sampling, step_plan
from tidemark_runtime.engine import core_engine, messages, worker_thread

Finish = messages.FinishReason
StepSeconds = Callable[[step_plan.StepPlan], float]


@dataclass
class Record:
    """One request as its client saw it. Times are seconds on the bench's clock, steps are calls of `Bench.step`."""

    name: str
    prompt: list[int]
    max_tokens: int
    stops: tuple[int, ...]
    submitted_at: float
    submitted_step: int
    tokens: list[int] = field(default_factory=list)
    num_outputs: int = 0
    cached: list[int] = field(default_factory=list)
    """`num_cached_tokens` of each output that brought tokens."""
    first_token_at: float | None = None
    first_token_step: int | None = None
    ended_at: float | None = None
    ended_step: int | None = None
    finish: Finish | None = None
    reject: overload.Reason | None = None
    message: str = ""
    retry_after: float = 0.0
    join_steps: list[int] = field(default_factory=list)
    """Steps in which it entered the running batch: the first turn, then one for each return."""

    @property
    def num_preemptions(self) -> int:
        return max(0, len(self.join_steps) - 1)

    @property
    def steps_to_first_token(self) -> int:
        assert self.first_token_step is not None, f"{self.name} never got a token: {self.finish} {self.message}"
        return self.first_token_step - self.submitted_step

    @property
    def seconds_to_first_token(self) -> float:
        assert self.first_token_at is not None, f"{self.name} never got a token: {self.finish} {self.message}"
        return self.first_token_at - self.submitted_at

    @property
    def solo(self) -> list[int]:
        return solo(tuple(self.prompt), self.max_tokens, self.stops)


@functools.lru_cache(maxsize=4096)
def _solo(prompt: tuple[int, ...], max_tokens: int, stops: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(page_checking_worker.solo(prompt, max_tokens, stops))


def solo(prompt: Sequence[int], max_tokens: int, stops: tuple[int, ...] = ()) -> list[int]:
    """What a request gets when it is alone on an empty engine."""
    return list(_solo(tuple(prompt), max_tokens, stops))


def prompt(length: int, seed: int = 0) -> list[int]:
    """Different from the first token on for each of thousands of seeds."""
    numbers = random.Random(seed)
    return [numbers.randrange(page_checking_worker.VOCABULARY) for _ in range(length)]


def per_token(base: float = 0.0, *, decode: float = 0.0, prompt_token: float = 0.0, guess: float = 0.0) -> StepSeconds:
    """A device whose steps take so long, in seconds."""

    def seconds(plan: step_plan.StepPlan) -> float:
        decodes = len(plan.decodes) + len(plan.verifications)
        guesses = sum(each.count for each in plan.verifications)
        prompt_tokens = sum(chunk.count for chunk in plan.chunks)
        return base + decode * decodes + prompt_token * prompt_tokens + guess * guesses

    return seconds


class _Device(worker_thread.WorkerThread):
    """Stands in for the thread: a step is computed when it is handed over, and its result is due at a time."""

    def __init__(self, bench: Bench, worker: page_checking_worker.PageCheckingWorker) -> None:
        self._worker = worker
        self._bench = bench
        self._free_at = 0.0
        self._lost = False
        """A step has come to nothing, and the engine has not heard of it yet: so do those behind it."""

    def heard(self) -> None:
        self._lost = False

    def submit(self, plan: step_plan.StepPlan) -> concurrent.futures.Future[step_plan.StepResult]:
        bench = self._bench
        bench.note_plan(plan)
        if bench.fails(plan) or self._lost:
            self._lost = True
            return _Lost(self)
        result = self._worker.execute(plan)
        if bench.step_seconds is not None:
            seconds = result.swap_seconds + bench.step_seconds(plan)
            result = dataclasses.replace(result, execute_seconds=seconds)
            self._free_at = max(self._free_at, bench.now) + seconds
        return _Due(bench, self._free_at, result)

    def close(self) -> None:
        self._worker.close()


class _Lost(concurrent.futures.Future[step_plan.StepResult]):
    """A step for which there was no memory."""

    def __init__(self, device: _Device) -> None:
        super().__init__()
        self._device = device
        self.set_exception(errors.OutOfMemory("memory ran out in a step: 5 of 4 bytes"))

    def result(self, timeout: float | None = None) -> step_plan.StepResult:
        self._device.heard()
        return super().result(timeout)


class _Due(concurrent.futures.Future[step_plan.StepResult]):
    """Who asks for it waits until it is due."""

    def __init__(self, bench: Bench, at: float, result: step_plan.StepResult) -> None:
        super().__init__()
        self._bench = bench
        self._at = at
        self.set_result(result)

    def done(self) -> bool:
        return self._bench.now >= self._at and super().done()

    def result(self, timeout: float | None = None) -> step_plan.StepResult:
        self._bench.now = max(self._bench.now, self._at)
        return super().result(timeout)


class Bench:
    """An engine, and what came out of it. `scheduler`: settings that differ from profile S of the cases."""

    def __init__(
        self,
        *,
        num_pages: int = 64,
        block_size: int = 16,
        overlap: bool = True,
        prefix_caching: bool = True,
        num_host_pages: int = 0,
        page_copy_seconds: float = 0.0,
        max_context_tokens: int = 2048,
        step_seconds: StepSeconds | None = None,
        speculative: config.SpeculativeConfig | None = None,
        **scheduler: object,
    ) -> None:
        values = {"max_num_seqs": 8, "max_num_batched_tokens": 256, **scheduler}
        self.now = 0.0
        self.steps = 0
        self.step_seconds = step_seconds
        self.fails: Callable[[step_plan.StepPlan], bool] = lambda _: False
        """Steps for which memory runs out."""
        self.settings = config.SchedulerConfig(**values)  # type: ignore[arg-type]
        self.worker = page_checking_worker.PageCheckingWorker(
            num_pages=num_pages,
            block_size=block_size,
            max_num_seqs=self.settings.max_num_seqs,
            max_context_tokens=max_context_tokens,
            num_host_pages=num_host_pages,
            page_copy_seconds=page_copy_seconds,
        )
        self.engine = core_engine.CoreEngine(
            self.settings,
            _Device(self, self.worker),
            max_context_tokens=max_context_tokens,
            now=lambda: self.now,
            overlap=overlap,
            prefix_caching=prefix_caching,
            speculative=speculative,
        )
        self.records: dict[str, Record] = {}
        self.plans: list[step_plan.StepPlan] = []
        self.joins: list[str] = []
        """Names in the order in which they entered the running batch, each time they did."""
        self._by_prompt: dict[tuple[int, ...], str] = {}

    # ---- what comes in -----------------------------------------------------------------------------------------

    def submit(self, name: str, prompt_: list[int], max_tokens: int, **more: object) -> Record:
        self.submit_all([(name, prompt_, max_tokens)], **more)
        return self.records[name]

    def submit_all(
        self,
        requests: list[tuple[str, list[int], int]],
        *,
        priority: int = 0,
        tenant: str = "",
        is_retry: bool = False,
        deadline_seconds: float | None = None,
        group: str = "",
        **params: object,
    ) -> None:
        made = []
        for name, prompt_, max_tokens in requests:
            assert name not in self.records
            wanted = sampling.SamplingParams(max_tokens, **params)  # type: ignore[arg-type]
            self.records[name] = Record(name, prompt_, max_tokens, wanted.stop_token_ids, self.now, self.steps)
            self._by_prompt[tuple(prompt_)] = name
            made.append(
                messages.EngineRequest(
                    name,
                    prompt_,
                    wanted,
                    deadline_seconds=deadline_seconds,
                    priority=priority,
                    tenant=tenant,
                    is_retry=is_retry,
                    group=group,
                )
            )
        self.take(self.engine.submit(made))

    def abort(self, *names: str) -> None:
        self.take(self.engine.abort(names))

    def configure(self, **scheduler: object) -> None:
        """These settings from now on, the others as they are."""
        wanted = dataclasses.replace(self.settings, **scheduler)  # type: ignore[arg-type]
        self.engine.configure(wanted)
        self.settings = wanted

    # ---- the wheel ---------------------------------------------------------------------------------------------

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.steps += 1
            self.take(self.engine.step())
            self.engine.check_integrity()

    def run(self, limit: int = 5000) -> None:
        """To the end of all that is here. `limit`: steps after which it does not come to an end."""
        for _ in self.turning(limit):
            if not self.engine.has_work:
                return

    def run_until(self, holds: Callable[[], object], limit: int = 2000) -> None:
        for _ in self.turning(limit):
            if holds():
                return

    def turning(self, limit: int) -> Iterator[int]:
        """Before the first step, and after each."""
        yield 0
        for step in range(1, limit + 1):
            self.step()
            yield step
        raise AssertionError(f"not within {limit} steps: {self.engine.stats()}")

    # ---- what comes out ----------------------------------------------------------------------------------------

    def note_plan(self, plan: step_plan.StepPlan) -> None:
        self.plans.append(plan)
        for join in plan.joins:
            name = self._by_prompt[join.token_ids[: join.num_prompt_tokens]]
            self.joins.append(name)
            self.records[name].join_steps.append(self.steps)

    def take(self, outputs: list[messages.SequenceOutput]) -> None:
        for output in outputs:
            record = self.records[output.id]
            assert record.finish is None, f"an output of {output.id} after the last one"
            record.num_outputs += 1
            record.tokens.extend(output.token_ids)
            if output.token_ids:
                record.cached.append(output.num_cached_tokens)
                if record.first_token_at is None:
                    record.first_token_at, record.first_token_step = self.now, self.steps
            if output.finish is not None:
                record.finish, record.reject = output.finish, output.reject
                record.message, record.retry_after = output.message, output.retry_after_seconds
                record.ended_at, record.ended_step = self.now, self.steps

    @property
    def stats(self) -> messages.EngineStats:
        return self.engine.stats()

    @property
    def running(self) -> list[str]:
        """By what came out: those that had a turn, and have not ended."""
        return [name for name, each in self.records.items() if each.join_steps and each.finish is None]

    def check_all_as_alone(self) -> None:
        """Every request that was not ended early got exactly its text; the others the beginning of it."""
        for record in self.records.values():
            assert record.finish is not None, f"{record.name} has not ended"
            if record.finish in (Finish.LENGTH, Finish.STOP):
                assert record.tokens == record.solo, record.name
            else:
                assert record.tokens == record.solo[: len(record.tokens)], record.name

    def check_baseline(self) -> None:
        """Nothing is held once nobody is here; what is cached counts as free."""
        stats = self.stats
        assert (stats.requests_running, stats.requests_waiting) == (0, 0)
        assert (stats.pages_used, stats.pages_swapped, stats.tokens_in_used_pages) == (0, 0, 0)
