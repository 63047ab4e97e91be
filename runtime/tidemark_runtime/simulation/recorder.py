"""Writes down what happens: of each class of requests, of the batch, of the pages, and how it all went over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_runtime.core import step_plan
from tidemark_runtime.engine import messages
from tidemark_runtime.simulation import percentiles, senders

SAMPLE_EVERY_STEPS = 10
"""How often pages are counted: it costs a look at every running sequence."""

MOST_POINTS = 600
"""Of a curve over time; with more, every second one goes and the next ones are taken half as often."""


@dataclass(slots=True)
class Try:
    """One request as the engine sees it."""

    request: senders.Request
    of_class: ClassRecord
    sent: float
    num_tokens: int = 0
    first_token: float = 0.0
    """When it came; 0 before."""
    last_token: float = 0.0
    num_turns: int = 0
    """Times that it entered the batch; each after the first follows a preemption."""


@dataclass(slots=True)
class ClassRecord:
    """Totals of one class; times in seconds."""

    requests: int = 0
    tries: int = 0
    served: int = 0
    served_first_try: int = 0
    gave_up: int = 0
    rejected_tries: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    """Of requests that were served."""
    output_tokens: int = 0
    preempted_requests: int = 0
    most_preemptions: int = 0
    first_token: percentiles.Values = field(default_factory=percentiles.Values)
    end_to_end: percentiles.Values = field(default_factory=percentiles.Values)
    queue_wait: percentiles.Values = field(default_factory=percentiles.Values)
    between_tokens: percentiles.Histogram = field(default_factory=percentiles.Histogram)

    def merge(self, other: ClassRecord) -> None:
        """Take in the totals of another class."""
        self.requests += other.requests
        self.tries += other.tries
        self.served += other.served
        self.served_first_try += other.served_first_try
        self.gave_up += other.gave_up
        self.rejected_tries += other.rejected_tries
        self.prompt_tokens += other.prompt_tokens
        self.output_tokens += other.output_tokens
        self.preempted_requests += other.preempted_requests
        self.most_preemptions = max(self.most_preemptions, other.most_preemptions)
        self.first_token.extend(other.first_token)
        self.end_to_end.extend(other.end_to_end)
        self.queue_wait.extend(other.queue_wait)
        self.between_tokens.extend(other.between_tokens)


@dataclass(frozen=True, slots=True)
class Point:
    """State at one moment."""

    seconds: float
    running: int
    waiting: int
    pages_used_share: float
    output_tokens: int
    """Total so far."""


TryEnded = Callable[[Try, messages.SequenceOutput], None]
"""Told of every try at its last output."""


class Recorder:
    """Told of everything; owns the tries that have not ended."""

    def __init__(self, class_names: list[str], block_size: int, *, ended: TryEnded | None = None) -> None:
        self.classes = {name: ClassRecord() for name in class_names}
        self.concurrency = percentiles.TimeAverage()
        """Sequences that compute in a step."""
        self.step_tokens = percentiles.TimeAverage()
        self.waiting = percentiles.TimeAverage()
        self.pages_used = percentiles.TimeAverage()
        """Share of all pages, while there is work."""
        self.pages_used_while_waiting = percentiles.TimeAverage()
        """The same, while requests wait: at saturation."""
        self.waste = percentiles.TimeAverage()
        """Share of used pages that holds no token."""
        self.points: list[Point] = []
        self.num_output_tokens = 0
        self._block_size = block_size
        self._ended = ended
        self._tries: dict[str, Try] = {}
        self._by_number: dict[int, Try] = {}
        """By the request's number, which is its seed."""
        self._last_sample = 0.0
        self._point_every = 1
        self._num_samples = 0

    # ---- requests --------------------------------------------------------------------------------------------

    def sent(self, request: senders.Request, request_id: str, at: float) -> None:
        """A try is about to be handed to the engine."""
        record = self.classes[request.kind.name]
        record.tries += 1
        record.requests += request.num_tries == 1
        entry = Try(request, record, at)
        self._tries[request_id] = entry
        self._by_number[request.number] = entry

    def output(self, output: messages.SequenceOutput, now: float) -> Try | None:
        """What a step brought one request; its try where that was the last output of it."""
        entry = self._tries[output.id]
        num = len(output.token_ids)
        if num:
            if entry.num_tokens:
                entry.of_class.between_tokens.add(now - entry.last_token)
            else:
                entry.first_token = now
                entry.of_class.first_token.add(now - entry.request.first_sent)
            entry.num_tokens += num
            entry.last_token = now
            self.num_output_tokens += num
        if output.finish is None:
            return None
        del self._tries[output.id]
        del self._by_number[entry.request.number]
        self._end(entry, output, now)
        return entry

    def gave_up(self, entry: Try) -> None:
        """A client does not come back with a request that was not served."""
        entry.of_class.gave_up += 1

    def _end(self, entry: Try, output: messages.SequenceOutput, now: float) -> None:
        record, request = entry.of_class, entry.request
        if entry.num_turns > 1:
            record.preempted_requests += 1
            record.most_preemptions = max(record.most_preemptions, entry.num_turns - 1)
        if was_served(output):
            record.served += 1
            record.served_first_try += request.num_tries == 1
            record.prompt_tokens += request.num_prompt_tokens
            record.output_tokens += entry.num_tokens
            record.end_to_end.add(now - request.first_sent)
        else:
            record.rejected_tries[str(output.reject or output.finish)] += 1
        if self._ended is not None:
            self._ended(entry, output)

    # ---- steps -----------------------------------------------------------------------------------------------

    def step(self, plan: step_plan.StepPlan, start: float, end: float) -> None:
        """A `virtual_time.StepSeen`."""
        num_decodes = len(plan.decodes)
        self.concurrency.add(num_decodes + len(plan.chunks), end - start)
        self.step_tokens.add(plan.num_tokens if plan.chunks else num_decodes, end - start)
        for join in plan.joins:
            entry = self._by_number.get(join.params.seed)
            if entry is not None:
                entry.num_turns += 1
                if entry.num_turns == 1:
                    entry.of_class.queue_wait.add(max(0.0, start - entry.sent))

    def idle(self, seconds: float) -> None:
        """Nothing runs for a while."""
        self.concurrency.add(0, seconds)

    def sample(self, stats: messages.EngineStats, now: float) -> None:
        """State of the engine; called every `SAMPLE_EVERY_STEPS`."""
        seconds, self._last_sample = now - self._last_sample, now
        share = stats.pages_used / stats.pages_total
        self.waiting.add(stats.requests_waiting, seconds)
        self.pages_used.add(share, seconds)
        if stats.requests_waiting:
            self.pages_used_while_waiting.add(share, seconds)
        if stats.pages_used:
            self.waste.add(1.0 - stats.tokens_in_used_pages / (stats.pages_used * self._block_size), seconds)
        if self._num_samples % self._point_every == 0:
            self.points.append(
                Point(now, stats.requests_running, stats.requests_waiting, share, self.num_output_tokens)
            )
            if len(self.points) > MOST_POINTS:
                self.points = self.points[::2]
                self._point_every *= 2
        self._num_samples += 1

    def skip_to(self, now: float) -> None:
        """Time that no sample stands for: nothing ran."""
        self._last_sample = now

    @property
    def num_open(self) -> int:
        return len(self._tries)


def was_served(output: messages.SequenceOutput) -> bool:
    return output.finish in (messages.FinishReason.STOP, messages.FinishReason.LENGTH)
