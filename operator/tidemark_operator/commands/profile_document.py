"""The answer of `tidemark profile`: plain values, as JSON prints them. Pure."""

from __future__ import annotations

from typing import Any

from tidemark_operator.commands import profile_advice, profile_reader
from tidemark_runtime.contract import metrics, status
from tidemark_runtime.planning import footprint


def build(look: profile_reader.Look, samples: profile_reader.Samples, seconds: float) -> dict[str, Any]:
    """`samples`: over the `seconds` that the figures are of."""
    engine = look.status
    seen = _seen(samples, seconds)
    which, because = profile_advice.bottleneck(engine, seen)
    changes = profile_advice.changes(engine, seen, which)
    return {
        "model": {"name": engine.model.name, "source": engine.model.source, "state": str(engine.state)},
        "worker": dict(engine.worker),
        "limitBytes": engine.memory.limit_bytes,
        "parts": _parts(engine.memory),
        "freeBytes": _free(engine.memory),
        "misses": footprint.misses(engine.memory.planned_bytes, engine.memory.parts_bytes),
        "kv": _kv(engine.memory),
        "load": _load(engine, seen, samples),
        "bottleneck": {"name": str(which), "because": because},
        "changes": [{"setting": each.setting, "what": each.what, "gain": round(each.gain, 3)} for each in changes],
    }


def _parts(memory: status.MemoryStatus) -> list[dict[str, Any]]:
    """All that is planned or measured; None: not measured, or not planned."""
    known = [part for part in footprint.PARTS if part in memory.planned_bytes or part in memory.parts_bytes]
    return [
        {"part": part, "plannedBytes": memory.planned_bytes.get(part), "measuredBytes": memory.parts_bytes.get(part)}
        for part in known
        if memory.planned_bytes.get(part) or memory.parts_bytes.get(part)
    ]


def _free(memory: status.MemoryStatus) -> int | None:
    if not memory.limit_bytes:
        return None
    return max(0, memory.limit_bytes - sum({**memory.planned_bytes, **memory.parts_bytes}.values()))


def _kv(memory: status.MemoryStatus) -> dict[str, Any]:
    return {
        "bytesByDtype": dict(memory.kv_bytes),
        "pageBytes": memory.page_bytes,
        "blockSize": memory.block_size,
        "tokenBytes": memory.page_bytes / memory.block_size,
        "pages": memory.pages_total,
        "pagesUsed": memory.pages_used,
        "pagesCached": memory.pages_cached,
        "tokens": memory.pages_total * memory.block_size,
    }


def _seen(samples: profile_reader.Samples, seconds: float) -> profile_advice.Seen:
    return profile_advice.Seen(
        seconds=seconds,
        line_seconds=samples.total(metrics.WATERMARK_SECONDS.name, level="queue"),
        preemptions=samples.total(metrics.PREEMPTIONS.name),
        rejected=sum(samples.by(metrics.REJECTED.name, "reason").values()),
        mean_wait_seconds=samples.mean(metrics.QUEUE_WAIT.name) or 0.0,
        mean_step_seconds=samples.mean(metrics.STEP_DURATION.name, phase="execute"),
        mean_batch=samples.mean(metrics.BATCH_SIZE.name),
    )


def _load(engine: status.EngineStatus, seen: profile_advice.Seen, samples: profile_reader.Samples) -> dict[str, Any]:
    return {
        "seconds": seen.seconds,
        "running": engine.queue.running,
        "waiting": engine.queue.waiting,
        "places": engine.queue.places,
        "meanBatch": seen.mean_batch,
        "meanStepSeconds": seen.mean_step_seconds,
        "meanWaitSeconds": seen.mean_wait_seconds,
        "preemptions": seen.preemptions,
        "generatedTokens": samples.total(metrics.GENERATED_TOKENS.name),
        "rejectedByReason": samples.by(metrics.REJECTED.name, "reason"),
    }
