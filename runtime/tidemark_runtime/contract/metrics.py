"""Every metric an engine exports: name, kind, help, unit, labels, buckets. Dashboards and alerts read this table.

A section for each layer of the reference page, in its order. Standard library only, because the operator imports it.
`server.metrics` exports exactly these, and a test compares the two.
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
    where: str = ""
    """The file of the runtime in which it gets its value, and when."""


FIRST_TOKEN_BUCKETS = (
    *(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
    *(120.0, 300.0, 450.0, 600.0, 1200.0),
)
"""Seconds, 2 ms to 20 minutes: longer than a request may wait by default (`scheduler.maxQueueSeconds`)."""
INTER_TOKEN_BUCKETS = (
    *(0.001, 0.0025, 0.004, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1.0, 2.0),
    *(5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 450.0, 600.0),
)
"""Seconds, 1 ms to 2 s closely; up to 10 minutes for one that was preempted meanwhile."""
REQUEST_BUCKETS = (
    *(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0),
    *(120.0, 300.0, 450.0, 600.0, 1200.0, 3600.0),
)
"""Seconds, 2 ms to an hour."""
STEP_BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0),
)
"""Seconds: schedule and update take well under a millisecond, a long chunk on a CPU takes seconds."""
OP_BUCKETS = (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds, of all calls of an op within one step."""
SIZE_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
TOKEN_BUCKETS = (0.0, 1.0, 4.0, 16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)

_COUNTER, _GAUGE, _HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM


def _metric(
    name: str,
    kind: Kind,
    text: str,
    unit: str,
    labels: tuple[str, ...] = (),
    buckets: tuple[float, ...] = (),
    *,
    where: str,
) -> Metric:
    return Metric(PREFIX + name, kind, text, unit, labels, buckets, where)


# ---- requests --------------------------------------------------------------------------------------------------------

REQUESTS = _metric(
    "requests_total",
    _COUNTER,
    "Generation requests ended, by how.",
    "requests",
    ("outcome",),
    where="server/endpoint.py, when the answer has ended",
)
REQUEST_DURATION = _metric(
    "request_duration_seconds",
    _HISTOGRAM,
    "Arrival to last byte handed over.",
    "seconds",
    (),
    REQUEST_BUCKETS,
    where="server/endpoint.py, when the answer has ended",
)
FIRST_TOKEN = _metric(
    "time_to_first_token_seconds",
    _HISTOGRAM,
    "Arrival to first token.",
    "seconds",
    (),
    FIRST_TOKEN_BUCKETS,
    where="server/generation.py, as tokens arrive from the engine",
)
INTER_TOKEN = _metric(
    "inter_token_seconds",
    _HISTOGRAM,
    "Time between tokens of one choice.",
    "seconds",
    (),
    INTER_TOKEN_BUCKETS,
    where="server/generation.py, as tokens arrive from the engine",
)
REJECTED = _metric(
    "requests_rejected_total",
    _COUNTER,
    "Requests refused, by reason.",
    "requests",
    ("reason",),
    where="server/endpoint.py and server/auth.py, as they refuse",
)
REJECT_REASONS = (
    *("queue_full", "queue_tokens", "queue_time", "queue_timeout", "retry_budget", "deadline", "shed", "degraded"),
    *("exceeds_kv_capacity", "context_length_exceeded", "body_too_large", "body_timeout", "invalid"),
    *("model_not_found", "unauthorized", "priority_not_allowed", "draining", "loading"),
)
"""Values of its label, each what the answer has as `code` (invalid: no code; unauthorized: invalid_api_key). The first
line is load, the second the request, the third the rest. All are there from the start."""
RETRIES = _metric(
    "request_retries_total",
    _COUNTER,
    "Generation requests of which the client said that it tried before.",
    "requests",
    where="server/endpoint.py, once the request is read",
)
DEGRADED = _metric(
    "requests_degraded_total",
    _COUNTER,
    "Requests whose max_tokens a degrade rule made smaller.",
    "requests",
    where="server/endpoint.py, once the request is read",
)
KEY_REQUESTS = _metric(
    "key_requests_total",
    _COUNTER,
    "Generation requests ended, by the name of the API key (empty: none) and by how.",
    "requests",
    ("key", "outcome"),
    where="server/endpoint.py, when the answer has ended",
)
KEY_TOKENS = _metric(
    "key_tokens_total",
    _COUNTER,
    "Tokens of accepted requests, by the name of the API key (empty: none) and by kind: prompt or generated.",
    "tokens",
    ("key", "kind"),
    where="server/generation.py, as a request is submitted and as tokens arrive from the engine",
)
PROMPT_TOKENS = _metric(
    "prompt_tokens_total",
    _COUNTER,
    "Prompt tokens of accepted requests.",
    "tokens",
    where="server/generation.py, as the request goes to the engine",
)
GENERATED_TOKENS = _metric(
    "generated_tokens_total",
    _COUNTER,
    "Tokens generated for clients.",
    "tokens",
    where="server/generation.py, as tokens arrive from the engine",
)
REQUEST_LAYER = (
    REQUESTS,
    REQUEST_DURATION,
    FIRST_TOKEN,
    INTER_TOKEN,
    REJECTED,
    RETRIES,
    DEGRADED,
    KEY_REQUESTS,
    KEY_TOKENS,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
)


# ---- batch and queue -------------------------------------------------------------------------------------------------

BATCH_SIZE = _metric(
    "batch_size",
    _HISTOGRAM,
    "Sequences in a step.",
    "sequences",
    (),
    SIZE_BUCKETS,
    where="server/counters.py, from what the engine says after each step",
)
BATCH_FILL = _metric(
    "batch_fill_ratio",
    _GAUGE,
    "Sequences in the last step over the most that may run at once (scheduler.maxNumSeqs); 0 while nothing runs.",
    "ratio",
    where="server/metrics.py, at the scrape, from the last step",
)
STEP_TOKENS = _metric(
    "step_tokens",
    _HISTOGRAM,
    "Tokens computed in a step, prompt or generated.",
    "tokens",
    ("phase",),
    TOKEN_BUCKETS,
    where="server/counters.py, from what the engine says after each step",
)
RUNNING = _metric(
    "requests_running",
    _GAUGE,
    "Sequences in the running batch.",
    "requests",
    where="core/scheduler.py; read at the scrape",
)
WAITING = _metric(
    "requests_waiting",
    _GAUGE,
    "Sequences that wait for a turn, by lane: express or slow.",
    "requests",
    ("lane",),
    where="core/waiting_queue.py; read at the scrape",
)
QUEUE_WAIT = _metric(
    "queue_wait_seconds",
    _HISTOGRAM,
    "Wait of each sequence from its arrival in the engine until the step that it first takes part in is planned. "
    "Counted once, then, in its lane; not for one that never had a turn, nor when one comes back after a preemption.",
    "seconds",
    ("lane",),
    FIRST_TOKEN_BUCKETS,
    where="engine/stats.py, as the first turn is planned",
)
OLDEST_WAIT = _metric(
    "oldest_wait_seconds",
    _GAUGE,
    "Wait of the one that waits longest.",
    "seconds",
    where="engine/stats.py; read at the scrape",
)
PREEMPTIONS = _metric(
    "preemptions_total",
    _COUNTER,
    "Sequences that lost their pages, by how they come back: swap or recompute.",
    "preemptions",
    ("mode",),
    where="core/transitions.py, as pages are taken",
)
RESUMES = _metric(
    "resumes_total",
    _COUNTER,
    "Preempted sequences that run again, by how they came back: swap or recompute.",
    "resumes",
    ("mode",),
    where="core/transitions.py, as pages are given again",
)
SPECULATIVE_TOKENS = _metric(
    "speculative_tokens_total",
    _COUNTER,
    "Tokens that were guessed (proposed) and checked in a step, and those of them that were right (accepted).",
    "tokens",
    ("result",),
    where="core/speculation.py; read at the scrape",
)
SPECULATIVE_ACTIVE = _metric(
    "speculative_active_ratio",
    _GAUGE,
    "Share of the sequences that decode whose guesses were checked, over about the last 50 steps; 0: it is off.",
    "ratio",
    where="core/speculation.py; read at the scrape",
)
SPECULATIVE_GAIN = _metric(
    "speculative_gain",
    _GAUGE,
    "Tokens that the last steps with guesses brought each sequence that decodes, times the time predicted without over "
    "the time measured (at most 1): at most speculative.tokens + 1; 1: nothing gained.",
    "factor",
    where="core/guess_value.py; read at the scrape",
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
    SPECULATIVE_TOKENS,
    SPECULATIVE_ACTIVE,
    SPECULATIVE_GAIN,
)


# ---- memory ----------------------------------------------------------------------------------------------------------

KV_PAGES = _metric(
    "kv_pages",
    _GAUGE,
    "Pages by state. used, cached (held by nobody, kept for who begins with the same tokens) and free are the slab; "
    "swapped are in the host's memory.",
    "pages",
    ("state",),
    where="core/block_pool.py; read at the scrape",
)
KV_USAGE = _metric(
    "kv_usage_ratio",
    _GAUGE,
    "Used pages over all pages of the slab.",
    "ratio",
    where="server/metrics.py, at the scrape, from kv_pages",
)
KV_FRAGMENTATION = _metric(
    "kv_fragmentation_ratio",
    _GAUGE,
    "Share of the token places in used pages that hold no token: 1 - tokens / (used pages x block size), a shared page "
    "counted once, tokens of planned steps as written; 0 while no page is used.",
    "ratio",
    where="core/scheduler.py; read at the scrape",
)
KV_BYTES = _metric(
    "kv_bytes",
    _GAUGE,
    "Size of the slab, by the dtype of what lies there.",
    "bytes",
    ("dtype",),
    where="planning/page_layout.py, once at the start",
)
KV_TOKEN_BYTES = _metric(
    "kv_token_bytes",
    _GAUGE,
    "What a token costs in KV memory when its page is full: stored (as it is kept, with its scales), and 16bit (what "
    "it would cost with two bytes for each element).",
    "bytes",
    ("precision",),
    where="planning/page_layout.py, once at the start",
)
MEMORY_BYTES = _metric(
    "memory_bytes",
    _GAUGE,
    "Memory by part, as measured at the start: weights (tensors held), kv and swap (mapped), activations (peak of the "
    "largest step), workspace (tables), overhead (resident after loading), free (the rest of the limit).",
    "bytes",
    ("part",),
    where="worker/torch_worker.py, once at the start",
)
MEMORY_PLANNED_BYTES = _metric(
    "memory_planned_bytes",
    _GAUGE,
    "Memory by part, as `tidemark plan` has it from the files and the settings, before anything is loaded.",
    "bytes",
    ("part",),
    where="worker/planned.py, once at the start",
)
WATERMARK_STATE = _metric(
    "watermark_state",
    _GAUGE,
    "1 while the line is crossed: queue or preempt.",
    "state",
    ("level",),
    where="core/lines.py, whenever pages change hands",
)
WATERMARK_SECONDS = _metric(
    "watermark_seconds_total",
    _COUNTER,
    "Time for which the line was crossed.",
    "seconds",
    ("level",),
    where="engine/stats.py; read at the scrape",
)
WATERMARK_LEVEL = _metric(
    "watermark_level_ratio",
    _GAUGE,
    "Where each line lies in the configuration in force, as a share of the slab's pages: queue or preempt.",
    "ratio",
    ("level",),
    where="server/metrics.py, at the scrape, from the configuration in force",
)
SWAP_BYTES = _metric(
    "swap_bytes_total",
    _COUNTER,
    "Copied to the swap space (out) and back (in).",
    "bytes",
    ("direction",),
    where="core/transitions.py (out) and core/restoring.py (in), as copies are planned",
)
PREFIX_TOKENS = _metric(
    "prefix_tokens_total",
    _COUNTER,
    "Known tokens of sequences that got a turn: found in the prefix cache (hit), or computed (miss).",
    "tokens",
    ("result",),
    where="core/prefix_cache.py, at each turn",
)
PAGE_EVICTIONS = _metric(
    "page_evictions_total",
    _COUNTER,
    "Cached pages given to others because no free ones were left.",
    "pages",
    where="core/block_pool.py, as pages are given",
)
OUT_OF_MEMORY = _metric(
    "out_of_memory_total",
    _COUNTER,
    "Times that memory ran out: an allocation failed in a step (who ran is ended with an error, the engine goes on) or "
    "in the HTTP process, or the engine process was killed for memory (its server then ends, too).",
    "times",
    where="engine/core_engine.py as a step fails; server/context.py adds what ended the engine, at the scrape",
)
MEMORY_LAYER = (
    KV_PAGES,
    KV_USAGE,
    KV_FRAGMENTATION,
    KV_BYTES,
    KV_TOKEN_BYTES,
    MEMORY_BYTES,
    MEMORY_PLANNED_BYTES,
    WATERMARK_STATE,
    WATERMARK_SECONDS,
    WATERMARK_LEVEL,
    SWAP_BYTES,
    PREFIX_TOKENS,
    PAGE_EVICTIONS,
    OUT_OF_MEMORY,
)


# ---- computing -------------------------------------------------------------------------------------------------------

STEP_DURATION = _metric(
    "step_duration_seconds",
    _HISTOGRAM,
    "Time of a step by phase: schedule, execute or update.",
    "seconds",
    ("phase",),
    STEP_BUCKETS,
    where="engine/stats.py, after each step",
)
OPS = (
    *("all_reduce", "dense_linear_f32", "grouped_linear", "grouped_linear_int8", "grouped_rows"),
    *("half_linear", "half_rows"),
    *("linear", "other", "paged_attention", "rms_norm", "rope_and_write", "sampler", "silu_mul", "swap_copy"),
)
"""Values of the label of `op_duration_seconds`: the kernels' ops, `linear` (products in torch's own kernels),
`sampler`, `swap_copy`, `all_reduce` (sums over ranks that share the model, waits for them included), and `other`, what
is left of the step."""
OP_DURATION = _metric(
    "op_duration_seconds",
    _HISTOGRAM,
    "Time that one step spends in an op, all its calls together; one step in 64 is timed. paged_attention includes "
    "rope_and_write where both are one call, as in the compiled kernels; other is what is left of the step.",
    "seconds",
    ("op",),
    OP_BUCKETS,
    where="worker/op_times.py, in one step of 64",
)
KERNEL_PATH = _metric(
    "kernel_path_info",
    _GAUGE,
    "1 for each path that each op ran on, by the dtype of its numbers.",
    "info",
    ("op", "path", "dtype"),
    where="worker/selftest.py, from the calls that kernels/tidemark_kernels/dispatch.py counts",
)
KERNEL_PATHS_UNPLANNED = _metric(
    "kernel_paths_unplanned",
    _GAUGE,
    "Ops, by dtype, that run on another path than planned; 0 is as it should be.",
    "ops",
    where="server/metrics.py, at the scrape, from kernel_path_info",
)
DEVICE_SECONDS = _metric(
    "device_seconds_total",
    _COUNTER,
    "Devices that this pod holds times seconds since its server started, loading included: device hours are its "
    "increase over 3600. A processor counts as one device, all cores of the pod together.",
    "seconds",
    where="server/device_time.py, at the scrape",
)
DEVICE_BUSY_SECONDS = _metric(
    "device_busy_seconds_total",
    _COUNTER,
    "Devices times seconds that they spent on steps; its rate over that of device_seconds_total is the share of the "
    "time in which they were used.",
    "seconds",
    where="engine/stats.py, after each step; server/device_time.py multiplies by the devices at the scrape",
)
_NVML_WHERE = "server/nvml.py, every 5 seconds"
DEVICE_UTILIZATION = _metric(
    "device_utilization_ratio",
    _GAUGE,
    "Share of the last sample period in which a kernel ran on the card, as NVML has it. Absent without a card.",
    "ratio",
    ("device",),
    where=_NVML_WHERE,
)
DEVICE_MEMORY_USED = _metric(
    "device_memory_used_bytes",
    _GAUGE,
    "Memory of the card in use by all processes, as NVML has it. Absent without a card.",
    "bytes",
    ("device",),
    where=_NVML_WHERE,
)
DEVICE_MEMORY_TOTAL = _metric(
    "device_memory_total_bytes",
    _GAUGE,
    "Memory of the card, as NVML has it. Absent without a card.",
    "bytes",
    ("device",),
    where=_NVML_WHERE,
)
DEVICE_TEMPERATURE = _metric(
    "device_temperature_celsius",
    _GAUGE,
    "Temperature of the card's chip. Absent without a card.",
    "celsius",
    ("device",),
    where=_NVML_WHERE,
)
DEVICE_POWER = _metric(
    "device_power_watts",
    _GAUGE,
    "Power that the card draws. Absent without a card, and for a card that does not say.",
    "watts",
    ("device",),
    where=_NVML_WHERE,
)
XIDS = ("13", "31", "43", "45", "48", "61", "62", "63", "64", "74", "79", "92", "94", "95", "119", "120")
"""Xid errors with a series of their own, from the start: those that NVIDIA's documentation ("XID Errors") has for
failing programs, memory, links and cards lost. Any other counts as `other`; the log has its number."""
DEVICE_XID_ERRORS = _metric(
    "device_xid_errors_total",
    _COUNTER,
    "Xid errors that the driver reported of the card since the server started, by number. Absent without a card, and "
    "where the driver does not report them.",
    "errors",
    ("device", "xid"),
    where="server/nvml.py, as the driver reports them",
)
COMPUTE_LAYER = (
    STEP_DURATION,
    OP_DURATION,
    KERNEL_PATH,
    KERNEL_PATHS_UNPLANNED,
    DEVICE_SECONDS,
    DEVICE_BUSY_SECONDS,
    DEVICE_UTILIZATION,
    DEVICE_MEMORY_USED,
    DEVICE_MEMORY_TOTAL,
    DEVICE_TEMPERATURE,
    DEVICE_POWER,
    DEVICE_XID_ERRORS,
)


# ---- configuration ---------------------------------------------------------------------------------------------------

CONFIG_RELOADS = _metric(
    "config_reloads_total",
    _COUNTER,
    "Configurations sent to a running engine, by what came of it.",
    "configurations",
    ("result",),
    where="server/live_config.py and server/admin.py",
)
CONFIG_INFO = _metric(
    "config_info",
    _GAUGE,
    "1 for the configuration in force.",
    "info",
    ("hash", "generation"),
    where="server/context.py; read at the scrape",
)
CERTIFICATE_EXPIRY = _metric(
    "certificate_expiry_timestamp_seconds",
    _GAUGE,
    "Unix time at which the certificate that is served ends; of a chain, its first one to end. Absent without TLS.",
    "seconds",
    where="server/tls.py, whenever the files are read",
)
KEY_EXPIRY = _metric(
    "key_expiry_timestamp_seconds",
    _GAUGE,
    "Unix time at which an API key ends, by its name (without one: the beginning of its SHA-256). Absent for a key "
    "that does not end.",
    "seconds",
    ("key",),
    where="server/keys.py, whenever the file is read",
)
CONFIG_LAYER = (CONFIG_RELOADS, CONFIG_INFO, CERTIFICATE_EXPIRY, KEY_EXPIRY)

ENGINE_METRICS = REQUEST_LAYER + BATCH_LAYER + MEMORY_LAYER + COMPUTE_LAYER + CONFIG_LAYER
"""All of them, in the order of the layers."""
