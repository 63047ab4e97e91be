"""Whole sites: every series that rules read, at once."""

from __future__ import annotations

from alert_cases import made
from alert_cases.made import engines, flat, merged, operators, ramp

DAY = 86_400.0
OUTCOMES = ("stop", "length", "aborted", "rejected", "timeout", "deadline", "failed")
_HISTOGRAMS = {
    "tidemark_queue_wait_seconds": ("1.0", "5.0"),
    "tidemark_time_to_first_token_seconds": ("1.0", "2.5"),
    "tidemark_inter_token_seconds": ("0.1", "0.2"),
}


def site(requests: float, count: int) -> made.Series:
    """Three engines and an operator with a standby, where all is well. `requests` a step and engine; 0: nobody asks."""
    zero = flat(0, count)
    return merged(
        engines("up", flat(1, count)),
        engines("tidemark_config_info", flat(1, count), hash="aaa", generation="1"),
        engines("tidemark_config_reloads_total", zero, result="rejected"),
        engines("tidemark_kv_usage_ratio", flat(0.6 if requests else 0, count)),
        engines("tidemark_kv_fragmentation_ratio", flat(0.1 if requests else 0, count)),
        engines("tidemark_batch_fill_ratio", flat(0.5 if requests else 0, count)),
        engines("tidemark_watermark_seconds_total", zero, level="queue"),
        engines("tidemark_watermark_seconds_total", zero, level="preempt"),
        engines("tidemark_prefix_tokens_total", ramp(requests * 30, count), result="hit"),
        engines("tidemark_prefix_tokens_total", ramp(requests * 70, count), result="miss"),
        engines("tidemark_requests_waiting", zero, lane="express"),
        engines("tidemark_requests_running", flat(8 if requests else 0, count)),
        engines("tidemark_oldest_wait_seconds", zero),
        engines("tidemark_kernel_paths_unplanned", zero),
        engines("tidemark_memory_bytes", flat(1000, count), part="kv"),
        engines("tidemark_memory_planned_bytes", flat(1000, count), part="kv"),
        engines("tidemark_preemptions_total", zero, mode="swap"),
        engines("tidemark_out_of_memory_total", zero),
        engines("tidemark_certificate_expiry_timestamp_seconds", flat(90 * DAY, count)),
        engines("tidemark_key_expiry_timestamp_seconds", flat(60 * DAY, count), key="batch"),
        engines("tidemark_device_xid_errors_total", zero, device="0", xid="79"),
        engines("tidemark_device_temperature_celsius", flat(60, count), device="0"),
        engines("tidemark_device_memory_used_bytes", flat(6e10, count), device="0"),
        engines("tidemark_generated_tokens_total", ramp(requests * 100, count)),
        engines("tidemark_prompt_tokens_total", ramp(requests * 100, count)),
        engines("tidemark_request_retries_total", zero),
        engines("tidemark_requests_rejected_total", zero, reason="queue_full"),
        *(engines("tidemark_requests_total", ramp(requests * (outcome == "stop"), count), outcome=outcome)
          for outcome in OUTCOMES),
        *_histograms(requests, count),
        made.conditions(count),
        *_told(count),
        _operator(count),
    )  # fmt: skip


def _histograms(requests: float, count: int) -> list[made.Series]:
    found = []
    for name, edges in _HISTOGRAMS.items():
        values = ramp(requests * (100 if "inter" in name else 1), count)
        found += [engines(f"{name}_bucket", values, le=edge) for edge in (*edges, "+Inf")]
        found.append(engines(f"{name}_count", values))
    return found


def _told(count: int) -> list[made.Series]:
    """Of the service, by the operator."""
    zero = flat(0, count)
    return [
        *(made.told("replicas", flat(3, count), state=state) for state in ("wanted", "ready", "updated")),
        made.told("rollbacks_total", zero),
        made.told("engine_restarts_total", zero),
        made.told("soft_limit_tightened", zero),
        made.told("evaluation_timestamp_seconds", zero),
        made.told("evaluation_passed", flat(1, count)),
        made.told("evaluation_interval_seconds", flat(7 * DAY, count)),
    ]


def _operator(count: int) -> made.Series:
    return merged(
        operators("up", flat(1, count), flat(1, count)),
        operators("tidemark_operator_leader", flat(1, count), flat(0, count)),
        operators("tidemark_operator_reconciles_total", ramp(2, count), flat(0, count), result="done"),
        operators("tidemark_operator_watch_age_seconds", flat(2, count), kind="Pod"),
        operators("tidemark_operator_reconcile_duration_seconds_bucket", ramp(2, count), le="0.1"),
        operators("tidemark_operator_reconcile_duration_seconds_bucket", ramp(2, count), le="+Inf"),
        operators("tidemark_operator_api_requests_total", ramp(2, count), verb="get", kind="Pod", code="200"),
    )
