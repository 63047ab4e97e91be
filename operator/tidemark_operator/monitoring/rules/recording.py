"""Ratios and percentiles, computed once for alerts, dashboards and reports. At zero traffic a share has no series."""

from __future__ import annotations

from tidemark_operator.monitoring.rules import promql, slo
from tidemark_operator.monitoring.rules.model import About, Group, RecordingRule
from tidemark_operator.monitoring.rules.thresholds import MINUTE, Thresholds
from tidemark_runtime.contract import metrics

KV_USAGE = "service:tidemark_kv_usage:ratio_max"
KV_FRAGMENTATION = "service:tidemark_kv_fragmentation:ratio_max"
BATCH_FILL = "service:tidemark_batch_fill:ratio_avg5m"
PREFIX_HIT = "service:tidemark_prefix_hit:ratio_rate5m"
REFUSED = "service:tidemark_requests_refused:ratio_rate10m"
RETRIED = "service:tidemark_requests_retried:ratio_rate10m"
PREEMPTED = "service:tidemark_preemptions:ratio_rate15m"
QUEUE_WAIT_P95 = "service:tidemark_queue_wait_seconds:p95_rate5m"
FIRST_TOKEN_P95 = "service:tidemark_time_to_first_token_seconds:p95_rate5m"
INTER_TOKEN_P95 = "service:tidemark_inter_token_seconds:p95_rate5m"
LINE_CROSSED = "engine:tidemark_watermark_crossed:ratio_rate5m"

LOAD_REASONS = ("queue_full", "queue_tokens", "queue_time", "queue_timeout", "retry_budget", "shed")
"""Refusals because there is too much to do. `degraded` was agreed, `deadline` is the client's own."""


def group(thresholds: Thresholds) -> Group:
    """Of services; those of the SLOs stand in `slo`."""
    return Group(
        name="tidemark-ratios", about=About.SERVICE, recording=(*_memory(thresholds.scope), *_traffic(thresholds.scope))
    )


def _memory(scope: promql.Scope) -> tuple[RecordingRule, ...]:
    by_service = promql.by(promql.SERVICE)
    window = promql.duration(5 * MINUTE)
    by_line = promql.by((*promql.ENGINE, *metrics.WATERMARK_STATE.labels))
    hits = scope.total_rate(metrics.PREFIX_TOKENS.name, 5 * MINUTE, 'result="hit"')
    known = scope.total_rate(metrics.PREFIX_TOKENS.name, 5 * MINUTE)
    return (
        RecordingRule(
            record=KV_USAGE,
            expr=f"max by {by_service} ({scope.select(metrics.KV_USAGE.name)})",
            help="Used pages over all pages, of the fullest engine.",
        ),
        RecordingRule(
            record=KV_FRAGMENTATION,
            expr=f"max by {by_service} ({scope.select(metrics.KV_FRAGMENTATION.name)})",
            help="Share of used pages without a token, of the worst engine.",
        ),
        RecordingRule(
            record=PREFIX_HIT,
            expr=_share(hits, known),
            help="Prompt tokens found in the prefix cache over all known tokens.",
        ),
        RecordingRule(
            record=LINE_CROSSED,
            expr=f"sum by {by_line} (rate({scope.select(metrics.WATERMARK_SECONDS.name)}[{window}]))",
            help="Share of five minutes for which a line was crossed, of each engine and line.",
        ),
    )


def _traffic(scope: promql.Scope) -> tuple[RecordingRule, ...]:
    window = promql.duration(5 * MINUTE)
    requests = scope.total_rate(metrics.REQUESTS.name, 10 * MINUTE)
    refused = scope.total_rate(metrics.REJECTED.name, 10 * MINUTE, promql.one_of("reason", LOAD_REASONS))
    retried = scope.total_rate(metrics.RETRIES.name, 10 * MINUTE)
    preempted = scope.total_rate(metrics.PREEMPTIONS.name, 15 * MINUTE)
    quantiles = (
        (QUEUE_WAIT_P95, metrics.QUEUE_WAIT, "Wait for a first turn, of 95 of 100, seconds."),
        (FIRST_TOKEN_P95, metrics.FIRST_TOKEN, "Arrival to first token, of 95 of 100, seconds."),
        (INTER_TOKEN_P95, metrics.INTER_TOKEN, "Between tokens, of 95 of 100, seconds."),
    )
    fill = scope.select(metrics.BATCH_FILL.name)
    return (
        RecordingRule(
            record=BATCH_FILL,
            expr=f"avg by {promql.by(promql.SERVICE)} (avg_over_time({fill}[{window}]))",
            help="Sequences in a step over the most allowed.",
        ),
        RecordingRule(
            record=REFUSED, expr=_share(refused, requests), help="Requests refused for load over all that ended."
        ),
        RecordingRule(
            record=RETRIED, expr=_share(retried, requests), help="Requests that were tried before over all that ended."
        ),
        RecordingRule(
            record=PREEMPTED,
            expr=_share(preempted, scope.total_rate(metrics.REQUESTS.name, 15 * MINUTE)),
            help="Preemptions for each request that ended.",
        ),
        *(
            RecordingRule(record=record, expr=scope.quantile(0.95, metric.name, 5 * MINUTE), help=text)
            for record, metric, text in quantiles
        ),
    )


def _share(part: str, whole: str) -> str:
    """No series where the whole is 0, rather than one of NaN."""
    return f"{part} / ({whole} > 0)"


def groups(thresholds: Thresholds) -> tuple[Group, ...]:
    """All of services: ratios, and the SLOs' shares over short and long windows."""
    return (group(thresholds), *slo.groups(thresholds))
