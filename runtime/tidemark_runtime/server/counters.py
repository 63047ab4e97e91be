"""What the request layer counts, and what each engine step brings, under the names of `contract.metrics`."""

from __future__ import annotations

import prometheus_client
from prometheus_client import registry

from tidemark_runtime.contract import metrics as names
from tidemark_runtime.engine import messages

OUTCOMES = ("stop", "length", "aborted", "rejected", "timeout", "deadline", "failed")
"""Present from the start, so that a rate over them is never missing."""
RELOAD_RESULTS = ("applied", "unchanged", "rejected")


class ServerMetrics:
    """What the request layer counts, and what each step brings."""

    def __init__(self) -> None:
        # Without this every counter would come with a `_created` twin. The library only has a switch for the process.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry.CollectorRegistry(auto_describe=False)
        self._requests = self._counter(names.REQUESTS)
        self._rejected = self._counter(names.REJECTED)
        self._retries = self._counter(names.RETRIES)
        self._degraded = self._counter(names.DEGRADED)
        self._key_requests = self._counter(names.KEY_REQUESTS)
        self._prompt_tokens = self._counter(names.PROMPT_TOKENS)
        self._generated_tokens = self._counter(names.GENERATED_TOKENS)
        self._duration = self._histogram(names.REQUEST_DURATION)
        self._first_token = self._histogram(names.FIRST_TOKEN)
        self._inter_token = self._histogram(names.INTER_TOKEN)
        self._batch_size = self._histogram(names.BATCH_SIZE)
        self._step_tokens = self._histogram(names.STEP_TOKENS)
        self._queue_wait = self._histogram(names.QUEUE_WAIT)
        self._step_duration = self._histogram(names.STEP_DURATION)
        self._reloads = self._counter(names.CONFIG_RELOADS)
        self._last_step = 0
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

    def prompt_tokens(self, count: int) -> None:
        self._prompt_tokens.inc(count)

    def tokens(self, count: int) -> None:
        """Generated tokens that arrived."""
        self._generated_tokens.inc(count)

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def inter_token(self, seconds: float) -> None:
        self._inter_token.observe(seconds)

    def step(self, stats: messages.EngineStats) -> None:
        """The engine's observer. A heartbeat repeats the last step, which counts once."""
        for wait in stats.queue_waits_seconds:
            self._queue_wait.observe(wait)
        if stats.steps <= self._last_step:
            return
        self._last_step = stats.steps
        self._batch_size.observe(stats.step_sequences)
        self._step_tokens.labels("prompt").observe(stats.step_prompt_tokens)
        self._step_tokens.labels("decode").observe(stats.step_tokens - stats.step_prompt_tokens)
        self._step_duration.labels("schedule").observe(stats.schedule_seconds)
        self._step_duration.labels("execute").observe(stats.execute_seconds)
        self._step_duration.labels("update").observe(stats.update_seconds)

    def _counter(self, metric: names.Metric) -> prometheus_client.Counter:
        name = metric.name.removesuffix("_total")
        return prometheus_client.Counter(name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: names.Metric) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
        )
