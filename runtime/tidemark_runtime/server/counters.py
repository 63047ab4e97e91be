"""What the request layer counts, and what each engine step brings, under the names of `contract.metrics`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import registry

from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages
from tidemark_runtime.server import tallies

OUTCOMES = ("stop", "length", "aborted", "rejected", "timeout", "deadline", "failed")
"""Present from the start, so that a rate over them is never missing."""
RELOAD_RESULTS = ("applied", "unchanged", "rejected")
STEP_TOKEN_PHASES = ("prompt", "decode")
STEP_PHASES = ("schedule", "execute", "update")


class ServerMetrics:
    """What the request layer counts, and what each step brings."""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry(auto_describe=False)
        self._collectors: dict[names.Metric, registry.Collector] = {}
        self._requests = self._counter(names.REQUESTS)
        self._rejected = self._counter(names.REJECTED)
        self._retries = self._counter(names.RETRIES).labels()
        self._degraded = self._counter(names.DEGRADED).labels()
        self._key_requests = self._counter(names.KEY_REQUESTS)
        self._key_tokens = self._counter(names.KEY_TOKENS)
        self._generated: dict[str, tallies.Count] = {}
        self._keep(names.PROMPT_TOKENS, tallies.Total(names.PROMPT_TOKENS, self._key_tokens, "prompt"))
        self._keep(names.GENERATED_TOKENS, tallies.Total(names.GENERATED_TOKENS, self._key_tokens, "generated"))
        self._duration = self._histogram(names.REQUEST_DURATION).labels()
        self._first_token = self._histogram(names.FIRST_TOKEN).labels()
        self.inter_token = self._histogram(names.INTER_TOKEN).labels().observe
        """Called with seconds for each token; kept so because that is often."""
        self._batch_size = self._histogram(names.BATCH_SIZE).labels()
        tokens, durations = self._histogram(names.STEP_TOKENS), self._histogram(names.STEP_DURATION)
        self._step_tokens = {phase: tokens.labels(phase) for phase in STEP_TOKEN_PHASES}
        self._step_duration = {phase: durations.labels(phase) for phase in STEP_PHASES}
        waits = self._histogram(names.QUEUE_WAIT)
        self._queue_wait, self._slow_queue_wait = waits.labels("express"), waits.labels("slow")
        self._reloads = self._counter(names.CONFIG_RELOADS)
        self._op_duration = self._histogram(names.OP_DURATION)
        self._last_step = 0
        self.num_out_of_memory = 0
        """In this process."""
        self._known_keys: set[str] = set()
        for outcome in OUTCOMES:
            self._requests.labels(outcome)
        for reason in names.REJECT_REASONS:
            self._rejected.labels(reason)
        for result in RELOAD_RESULTS:
            self._reloads.labels(result)

    def request(self, outcome: str, duration_seconds: float, key_name: str = "") -> None:
        """One generation request has ended."""
        self._requests.labels(outcome).inc()
        self._key_requests.labels(key_name, outcome).inc()
        self._duration.observe(duration_seconds)

    def know_keys(self, key_names: Iterable[str]) -> None:
        """Names of API keys: their series are there before their first request, so that no first error is missed."""
        for name in key_names:
            if name not in self._known_keys:
                self._known_keys.add(name)
                for outcome in OUTCOMES:
                    self._key_requests.labels(name, outcome)
                for kind in ("prompt", "generated"):
                    self._key_tokens.labels(name, kind)

    def out_of_memory(self) -> None:
        """An allocation failed in this process."""
        self.num_out_of_memory += 1

    def retry(self) -> None:
        """A request has arrived that its client sent before."""
        self._retries.inc()

    def degraded(self) -> None:
        """A request got less than it asked for."""
        self._degraded.inc()

    def rejected(self, reason: str) -> None:
        """One request was refused."""
        self._rejected.labels(reason).inc()

    def config_reload(self, result: str) -> None:
        """One of `RELOAD_RESULTS`: a configuration was sent to this engine."""
        self._reloads.labels(result).inc()

    def prompt_tokens(self, count: int, key_name: str = "") -> None:
        self._key_tokens.labels(key_name, "prompt").inc(count)

    def tokens(self, count: int, key_name: str = "") -> None:
        """Generated tokens that arrived. Called for each token of each request: its series is kept at hand."""
        series = self._generated.get(key_name)
        if series is None:
            series = self._generated[key_name] = self._key_tokens.labels(key_name, "generated")
        series.value += count

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def step(self, stats: messages.EngineStats) -> None:
        """The engine's observer. A heartbeat repeats the last step, which counts once."""
        for wait in stats.queue_waits_seconds:
            self._queue_wait.observe(wait)
        for wait in stats.slow_queue_waits_seconds:
            self._slow_queue_wait.observe(wait)
        for step in stats.op_seconds:
            for op, seconds in step.items():
                self._op_duration.labels(op).observe(seconds)
        if stats.steps <= self._last_step:
            return
        self._last_step = stats.steps
        self._batch_size.observe(stats.step_sequences)
        self._step_tokens["prompt"].observe(stats.step_prompt_tokens)
        self._step_tokens["decode"].observe(stats.step_tokens - stats.step_prompt_tokens)
        self._step_duration["schedule"].observe(stats.schedule_seconds)
        self._step_duration["execute"].observe(stats.execute_seconds)
        self._step_duration["update"].observe(stats.update_seconds)

    def totals(self, metric: names.Metric) -> dict[str, float]:
        """What a counter of at most one label says now, by its values; by "" where it has none."""
        samples = [sample for family in self._collectors[metric].collect() for sample in family.samples]
        return {next(iter(sample.labels.values()), ""): sample.value for sample in samples}

    def _counter(self, metric: names.Metric) -> tallies.Counter:
        made = tallies.Counter(metric)
        self._keep(metric, made)
        return made

    def _keep(self, metric: names.Metric, made: registry.Collector) -> None:
        """For the scrape, and for `totals`."""
        self._collectors[metric] = made
        self.registry.register(made)

    def _histogram(self, metric: names.Metric) -> tallies.Histogram:
        made = tallies.Histogram(metric)
        self.registry.register(made)
        return made
