"""Every metric an engine exports: name, kind, help, unit, labels, buckets. Dashboards and alerts read this table.

Standard library only, because the operator imports it. `server.metrics` exports exactly these, and a test compares
the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "tidemark_"


class Kind(StrEnum):
    """As Prometheus understands it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family."""

    name: str
    """Full name as scraped, `_total` included for counters."""
    kind: Kind
    help: str
    unit: str
    """seconds, bytes, tokens, requests, ratio, pages ...; times are seconds, sizes bytes, ratios 0 to 1."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds, for histograms."""


FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Seconds, 10 ms to 60 s."""
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds, 1 ms to 2 s."""
REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds."""
STEP_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds: schedule and update take well under a millisecond, a long chunk on a CPU takes seconds."""
SIZE_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
TOKEN_BUCKETS = (0.0, 1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


def _metric(
    name: str, kind: Kind, text: str, unit: str, labels: tuple[str, ...] = (), buckets: tuple[float, ...] = ()
) -> Metric:
    return Metric(PREFIX + name, kind, text, unit, labels, buckets)


REQUESTS = _metric("requests_total", _COUNTER, "Generation requests ended, by how.", "requests", ("outcome",))
REQUEST_DURATION = _metric(
    "request_duration_seconds", _HISTOGRAM, "Arrival to last byte handed over.", "seconds", (), REQUEST_BUCKETS
)
FIRST_TOKEN = _metric(
    "time_to_first_token_seconds", _HISTOGRAM, "Arrival to first token.", "seconds", (), FIRST_TOKEN_BUCKETS
)
INTER_TOKEN = _metric(
    "inter_token_seconds", _HISTOGRAM, "Time between tokens of one choice.", "seconds", (), INTER_TOKEN_BUCKETS
)
REJECTED = _metric("requests_rejected_total", _COUNTER, "Requests refused, by reason.", "requests", ("reason",))
REJECT_REASONS = (
    *("queue_full", "queue_tokens", "queue_time", "queue_timeout", "retry_budget", "deadline", "shed", "degraded"),
    *("exceeds_kv_capacity", "context_length_exceeded", "body_too_large", "invalid", "model_not_found"),
    *("unauthorized", "priority_not_allowed", "draining", "loading"),
)
"""Values of its label, each what the answer has as `code` (invalid: no code; unauthorized: invalid_api_key). The first
line is load, the second the request, the third the rest. All are there from the start."""
RETRIES = _metric(
    "request_retries_total", _COUNTER, "Generation requests of which the client said that it tried before.", "requests"
)
DEGRADED = _metric(
    "requests_degraded_total", _COUNTER, "Requests whose max_tokens a degrade rule made smaller.", "requests"
)
KEY_REQUESTS = _metric(
    "key_requests_total",
    _COUNTER,
    "Generation requests ended, by the name of the API key (empty: none) and by how.",
    "requests",
    ("key", "outcome"),
)
PROMPT_TOKENS = _metric("prompt_tokens_total", _COUNTER, "Prompt tokens of accepted requests.", "tokens")
GENERATED_TOKENS = _metric("generated_tokens_total", _COUNTER, "Tokens generated for clients.", "tokens")

BATCH_SIZE = _metric("batch_size", _HISTOGRAM, "Sequences in a step.", "sequences", (), SIZE_BUCKETS)
BATCH_FILL = _metric("batch_fill_ratio", _GAUGE, "Sequences in the last step over the most allowed.", "ratio")
STEP_TOKENS = _metric(
    "step_tokens", _HISTOGRAM, "Tokens computed in a step, prompt or generated.", "tokens", ("phase",), TOKEN_BUCKETS
)
RUNNING = _metric("requests_running", _GAUGE, "Sequences in the running batch.", "requests")
WAITING = _metric(
    "requests_waiting", _GAUGE, "Sequences that wait for a turn, by lane: express or slow.", "requests", ("lane",)
)
QUEUE_WAIT = _metric(
    "queue_wait_seconds", _HISTOGRAM, "Waits until the first turn.", "seconds", (), FIRST_TOKEN_BUCKETS
)
OLDEST_WAIT = _metric("oldest_wait_seconds", _GAUGE, "Wait of the one that waits longest.", "seconds")
PREEMPTIONS = _metric(
    "preemptions_total",
    _COUNTER,
    "Sequences that lost their pages, by how they come back: swap or recompute.",
    "preemptions",
    ("mode",),
)
RESUMES = _metric(
    "resumes_total",
    _COUNTER,
    "Preempted sequences that run again, by how they came back: swap or recompute.",
    "resumes",
    ("mode",),
)

KV_PAGES = _metric(
    "kv_pages",
    _GAUGE,
    "Pages by state. used, cached (held by nobody, kept for who begins with the same tokens) and free are the slab; "
    "swapped are in the host's memory.",
    "pages",
    ("state",),
)
KV_USAGE = _metric("kv_usage_ratio", _GAUGE, "Used pages over all pages of the slab.", "ratio")
KV_FRAGMENTATION = _metric("kv_fragmentation_ratio", _GAUGE, "Share of used pages that holds no token.", "ratio")
KV_BYTES = _metric("kv_bytes", _GAUGE, "Size of the slab, by the dtype of what lies there.", "bytes", ("dtype",))
MEMORY_BYTES = _metric(
    "memory_bytes",
    _GAUGE,
    "Memory by part, as measured at the start: weights (tensors held), kv and swap (mapped), activations (peak of the "
    "largest step), workspace (tables), overhead (resident after loading), free (the rest of the limit).",
    "bytes",
    ("part",),
)
MEMORY_PLANNED_BYTES = _metric(
    "memory_planned_bytes",
    _GAUGE,
    "Memory by part, as `tidemark plan` has it from the files and the settings, before anything is loaded.",
    "bytes",
    ("part",),
)
WATERMARK_STATE = _metric(
    "watermark_state", _GAUGE, "1 while the line is crossed: queue or preempt.", "state", ("level",)
)
WATERMARK_SECONDS = _metric(
    "watermark_seconds_total", _COUNTER, "Time for which the line was crossed.", "seconds", ("level",)
)
SWAP_BYTES = _metric(
    "swap_bytes_total", _COUNTER, "Copied to the swap space (out) and back (in).", "bytes", ("direction",)
)
PREFIX_TOKENS = _metric(
    "prefix_tokens_total",
    _COUNTER,
    "Known tokens of sequences that got a turn: found in the prefix cache (hit), or computed (miss).",
    "tokens",
    ("result",),
)
PAGE_EVICTIONS = _metric(
    "page_evictions_total", _COUNTER, "Cached pages given to others because no free ones were left.", "pages"
)

STEP_DURATION = _metric(
    "step_duration_seconds", _HISTOGRAM, "Time of a step by phase.", "seconds", ("phase",), STEP_BUCKETS
)
KERNEL_PATH = _metric(
    "kernel_path_info",
    _GAUGE,
    "1 for each path that each op ran on, by the dtype of its numbers.",
    "info",
    ("op", "path", "dtype"),
)
KERNEL_PATHS_UNPLANNED = _metric(
    "kernel_paths_unplanned",
    _GAUGE,
    "Ops, by dtype, that run on another path than planned; 0 is as it should be.",
    "ops",
)
CONFIG_RELOADS = _metric(
    "config_reloads_total",
    _COUNTER,
    "Configurations sent to a running engine, by what came of it.",
    "configurations",
    ("result",),
)
CONFIG_INFO = _metric("config_info", _GAUGE, "1 for the configuration in force.", "info", ("hash", "generation"))

REQUEST_LAYER = (
    REQUESTS,
    REQUEST_DURATION,
    FIRST_TOKEN,
    INTER_TOKEN,
    REJECTED,
    RETRIES,
    DEGRADED,
    KEY_REQUESTS,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
)
BATCH_LAYER = (
    BATCH_SIZE,
    BATCH_FILL,
    STEP_TOKENS,
    RUNNING,
    WAITING,
    QUEUE_WAIT,
    OLDEST_WAIT,
    PREEMPTIONS,
    RESUMES,
)
MEMORY_LAYER = (
    KV_PAGES,
    KV_USAGE,
    KV_FRAGMENTATION,
    KV_BYTES,
    MEMORY_BYTES,
    MEMORY_PLANNED_BYTES,
    WATERMARK_STATE,
    WATERMARK_SECONDS,
    SWAP_BYTES,
    PREFIX_TOKENS,
    PAGE_EVICTIONS,
)
COMPUTE_LAYER = (STEP_DURATION, KERNEL_PATH, KERNEL_PATHS_UNPLANNED)
CONFIG_LAYER = (CONFIG_RELOADS, CONFIG_INFO)

ENGINE_METRICS = REQUEST_LAYER + BATCH_LAYER + MEMORY_LAYER + COMPUTE_LAYER + CONFIG_LAYER
"""All of them, in the order of the four layers."""
