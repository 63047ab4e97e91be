"""`GET /status`: everything a person or the operator wants to know of this engine, as `contract.status` says."""

from __future__ import annotations

from importlib import metadata

from starlette import requests
from starlette import responses as starlette_responses

from tidemark_runtime.contract import reasons, status
from tidemark_runtime.engine import messages
from tidemark_runtime.server import context, kernels, responses


def state_of(shared: context.Context) -> tuple[status.EngineState, str]:
    """One word, and a sentence that says what to do when something is wrong."""
    if shared.failure is not None:
        return status.EngineState.FAILED, f"The engine has ended: {shared.failure}"
    if shared.stalled and shared.engine is not None:
        age = shared.engine.progress_age_seconds
        text = f"No step was finished for {age:.0f} seconds although there is work. Restart this engine."
        return status.EngineState.STALLED, text
    if shared.draining:
        return status.EngineState.DRAINING, "Shutting down: what has arrived is served; send nothing new here."
    if shared.ready is None:
        return status.EngineState.LOADING, _loading_text(shared)
    if shared.file_problem is not None:
        return status.EngineState.READY, shared.file_problem[1]
    if shared.unknown_keys:
        names = ", ".join(shared.unknown_keys)
        text = f"Serving. overload.degrade names {names}, and the key file has no key of such a name: check both."
        return status.EngineState.READY, text
    return status.EngineState.READY, kernels.warning(shared.ready.kernel_paths) or "Serving."


def build(shared: context.Context, version: str) -> status.EngineStatus:
    """The document, from what is known now; parts that come with the loaded model are empty before."""
    shared.refresh_files()
    state, message = state_of(shared)
    ready = shared.engine.ready if shared.engine is not None else None
    limit = shared.context_limit
    return status.EngineStatus(
        version=version,
        state=state,
        message=message,
        model=status.ModelStatus(
            shared.model_name,
            shared.config.model.source,
            limit.num_tokens if limit else 0,
            limit.num_request_tokens if limit else 0,
            ready.shape if ready else None,
        ),
        config=status.ConfigStatus(shared.config_hash, shared.generation, shared.restart_hash),
        reason=_reason(shared, state),
        worker=ready.worker if ready else {},
        kernel_paths=ready.kernel_paths if ready else [],
        load=_load(shared),
        memory=_memory(shared),
        lines=_lines(shared),
        queue=_queue(shared),
        speculative=_speculative(shared),
        step_prices=shared.engine.stats.step_prices if ready and shared.engine is not None else {},
        out_of_memory_total=shared.out_of_memory_total,
        devices=_devices(shared),
        certificate_expires=shared.certificate.ends_at if shared.certificate is not None else None,
        keys_expire=shared.keys.ends if shared.keys is not None else {},
        uptime_seconds=shared.clock() - shared.started_at,
        last_progress_age_seconds=shared.engine.progress_age_seconds if shared.engine is not None else 0.0,
    )


def _reason(shared: context.Context, state: status.EngineState) -> str:
    match state:
        case status.EngineState.FAILED:
            return shared.failure_reason
        case status.EngineState.STALLED:
            return reasons.Reason.STALLED
        case status.EngineState.READY if shared.file_problem is not None:
            return shared.file_problem[0]
        case status.EngineState.READY if shared.ready is not None and kernels.warning(shared.ready.kernel_paths):
            return reasons.Reason.KERNEL_PATH
        case _:
            return ""


class Status:
    """The route."""

    def __init__(self, shared: context.Context) -> None:
        self._shared = shared
        self._version = version()

    async def get(self, _: requests.Request) -> starlette_responses.Response:
        return responses.json(build(self._shared, self._version))


def version() -> str:
    """Of this package."""
    try:
        return metadata.version("tidemark-inference")
    except metadata.PackageNotFoundError:
        return "0+source"


def _load(shared: context.Context) -> status.LoadStatus | None:
    progress = shared.engine.progress if shared.engine is not None else None
    if shared.ready is not None or progress is None:
        return None
    return status.LoadStatus(progress.phase, progress.fraction)


def _loading_text(shared: context.Context) -> str:
    load = _load(shared)
    return "Loading." if load is None else f"Loading: {load.phase}, {load.fraction:.0%}."


def _memory(shared: context.Context) -> status.MemoryStatus:
    if shared.engine is None or shared.engine.ready is None:
        return status.MemoryStatus()
    ready, stats = shared.engine.ready, shared.engine.stats
    return status.MemoryStatus(
        parts_bytes=ready.memory_bytes,
        planned_bytes=ready.planned_bytes,
        limit_bytes=ready.memory_limit_bytes,
        kv_bytes={dtype: ready.num_pages * size for dtype, size in ready.page_bytes_by_dtype.items()},
        page_bytes=ready.page_bytes,
        block_size=ready.block_size,
        pages_total=ready.num_pages,
        pages_used=stats.pages_used,
        usage_ratio=stats.pages_used / ready.num_pages if ready.num_pages else 0.0,
        pages_cached=stats.pages_cached,
        pages_swapped=stats.pages_swapped,
        swap_pages_total=stats.swap_pages_total,
    )


def _lines(shared: context.Context) -> dict[str, status.LineStatus]:
    stats = shared.engine.stats if shared.engine is not None else messages.EngineStats()
    levels = shared.config.scheduler
    return {
        "queue": status.LineStatus(
            levels.queue_watermark, stats.above_queue_line, stats.seconds_above_queue_line_total
        ),
        "preempt": status.LineStatus(
            levels.preempt_watermark, stats.above_preempt_line, stats.seconds_above_preempt_line_total
        ),
    }


def _queue(shared: context.Context) -> status.QueueStatus:
    settings = shared.config.scheduler
    if shared.engine is None:
        return status.QueueStatus()
    stats = shared.engine.stats
    return status.QueueStatus(
        stats.requests_running,
        stats.requests_waiting,
        stats.oldest_wait_seconds,
        stats.preemptions_total,
        {"express": stats.requests_waiting - stats.requests_waiting_slow, "slow": stats.requests_waiting_slow},
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
    )


def _speculative(shared: context.Context) -> status.SpeculativeStatus:
    settings = shared.config.speculative
    if settings.method == "none":
        return status.SpeculativeStatus()
    stats = shared.engine.stats if shared.engine is not None else messages.EngineStats()
    proposed, accepted = stats.guesses_proposed_total, stats.guesses_accepted_total
    return status.SpeculativeStatus(
        method=settings.method,
        tokens=settings.tokens,
        proposed_total=proposed,
        accepted_total=accepted,
        acceptance_ratio=accepted / proposed if proposed else 0.0,
        active_ratio=stats.guessing_ratio,
        gain=stats.guessing_gain,
    )


def _devices(shared: context.Context) -> list[status.DeviceStatus]:
    return [
        status.DeviceStatus(
            str(card.index),
            card.uuid,
            card.name,
            card.figures.get("utilization"),
            card.figures.get("memory_used"),
            card.figures.get("memory_total"),
            card.figures.get("temperature"),
            card.figures.get("power"),
            None if card.xid_errors is None else {xid: count for xid, count in card.xid_errors.items() if count},
            card.problem,
        )
        for card in (shared.cards.now if shared.cards is not None else ())
    ]
