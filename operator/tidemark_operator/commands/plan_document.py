"""The answer of `tidemark plan` for one service: plain values, as JSON prints them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tidemark_operator import api, effects, errors
from tidemark_operator import plan as plan_api
from tidemark_operator.commands import plan_model
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_operator.plan import draft, engine_config
from tidemark_runtime.planning import capacity, concurrency, footprint, page_layout, pool_size, rule_of_thumb

Length = concurrency.Length
USUAL_LENGTHS = (Length(512, 256), Length(2048, 512), Length(8192, 1024), Length(30_720, 2048))
"""Shown where none is asked for, as far as the context allows: chat, documents, long documents, 32k."""
_DTYPES = ("bfloat16", "int8", "fp8_e4m3")
"""Beside the manifest's own; of equal size, the one that changes answers less comes first."""
MIX = "mix"


def build(
    service: api.InferenceService,
    basis: plan_model.Basis,
    limit_bytes: int,
    lengths: Sequence[Length],
    users: int | None,
    mapped: plan_api.Map | None = None,
    guesser: draft.Draft | None = None,
) -> dict[str, Any]:
    """`limit_bytes`: of one device; on a processor of the pod. `mapped`: the precision map that `service` names, where
    it was given. Raises `CapacityError` where there is no sum at all, `ManifestFileError` for a map that is of another
    model."""
    guesser = guesser or draft.by_name(service)
    wanted = plan_capacity.wanted(service, limit_bytes, basis.overhead_bytes, mapped, guesser)
    unfit = plan_capacity.compared(mapped, basis.shape, wanted)
    if unfit is not None:
        raise errors.ManifestFileError(unfit.message)
    plan = footprint.of(basis.shape, wanted)
    chosen = list(lengths) or _usual(plan.context_tokens)
    goals = [_goal(plan, length, users) for length in chosen] if users is not None else []
    rows = _concurrency(service, plan, chosen)
    must_run = lengths or chosen[:1]  # of the usual ones only the shortest: nobody asked for the others
    none = [_goal(plan, length, 1) for length, row in zip(must_run, rows, strict=False) if not row["requests"]]
    missed = [goal for goal in [*goals, *none] if not goal["met"]]
    refusals = effects.refusals(service)
    return {
        "service": service.name,
        "model": {"name": basis.name, "weights": basis.weights, "maxContextTokens": plan.context_tokens},
        "device": _device(service, wanted),
        "kv": _kv(plan),
        "speculation": {"method": service.spec.speculative.method},
        "partsBytes": dict(plan.parts_bytes),
        "totalBytes": plan.total_bytes,
        "freeBytes": max(0, plan.free_bytes),
        "reserveBytes": plan.reserve_bytes,
        "undivided": list(capacity.UNDIVIDED) if wanted.num_devices > 1 else [],
        "refusals": [str(refusal) for refusal in refusals],
        "assumptions": [*_assumptions(service, basis, wanted, mapped), *draft.sentences(service, guesser)],
        "concurrency": rows,
        "goals": goals,
        "fits": plan.fits and not missed and not any(row["tooLong"] for row in rows),
        "verdict": "".join([_verdict(plan, rows, goals, missed), _beside_memory(refusals)]),
    }


def _usual(context_tokens: int) -> list[Length]:
    fitting = [length for length in USUAL_LENGTHS if length.num_tokens <= context_tokens]
    return fitting or [Length(max(1, context_tokens * 3 // 4), max(1, context_tokens // 4))]


def _device(service: api.InferenceService, wanted: capacity.Wanted) -> dict[str, Any]:
    hardware = service.spec.hardware
    return {
        "resourceName": hardware.resource_name,
        "count": hardware.count,
        "bytes": wanted.limit_bytes,
        "memoryUtilization": wanted.memory_utilization,
    }


def _kv(plan: footprint.Footprint) -> dict[str, Any]:
    return {
        "dtype": plan.wanted.kv_dtype,
        "blockSize": plan.wanted.block_size,
        "pageBytes": plan.layout.page_bytes,
        "tokenBytes": plan.layout.token_bytes,
        "pages": plan.num_pages,
        "tokens": plan.num_pages * plan.wanted.block_size,
        "decidedBy": plan.decided_by,
    }


def _assumptions(
    service: api.InferenceService, basis: plan_model.Basis, wanted: capacity.Wanted, mapped: plan_api.Map | None
) -> list[str]:
    found = list(plan_capacity.map_sentences(service, basis.shape, wanted, mapped, basis.name))
    on_device = service.spec.hardware.resource_name != plan_capacity.CPU
    if on_device:
        found.append("Graphs, workspace and overhead of a device are assumptions: no engine has measured them on one.")
    elif basis.overhead_bytes is None:
        found.append(
            "Overhead is what our own measurement machine needed; `status.shape` has yours after the first start."
        )
    if not on_device:
        found.append(
            "Weights are counted in one form. Where a second one is much faster for large steps, the engine "
            "holds both, at most a quarter of the memory more. Its log and `tidemark profile` say so."
        )
    return found


def _concurrency(
    service: api.InferenceService, plan: footprint.Footprint, lengths: Sequence[Length]
) -> list[dict[str, Any]]:
    line = engine_config.parse(service).scheduler.queue_watermark
    room = concurrency.Room(
        num_pages=plan.num_pages,
        block_size=plan.wanted.block_size,
        max_num_seqs=plan.wanted.max_num_seqs,
        max_context_tokens=plan.context_tokens,
        queue_watermark=line,
    )
    rows = [_row(plan, str(length), concurrency.of_length(room, length)) for length in lengths]
    if len(lengths) > 1:
        short = [length for length in lengths if length.num_tokens <= plan.context_tokens]
        rows += [_row(plan, MIX, concurrency.of_mix(room, short))] if len(short) > 1 else []
    return rows


def _row(plan: footprint.Footprint, name: str, found: concurrency.Concurrency) -> dict[str, Any]:
    own = capacity.divided(plan.shape, plan.wanted.num_devices)
    promised = rule_of_thumb.promise(own, plan.wanted.kv_dtype, plan.wanted.limit_bytes, found.num_tokens)
    return {
        "length": name,
        "tokens": found.num_tokens,
        "pages": found.pages,
        "byMemory": found.by_memory,
        "byPlaces": found.by_places,
        "beforeLine": found.before_line,
        "requests": found.num_requests,
        "boundBy": found.bound_by,
        "tooLong": found.too_long,
        "ruleOfThumb": promised.num_requests,
        "ruleOfThumbMost": promised.num_requests_most,
        "ruleVerdict": rule_of_thumb.verdict(promised.num_requests, found.num_requests, found.bound_by),
    }


def _goal(plan: footprint.Footprint, length: Length, users: int) -> dict[str, Any]:
    dtypes = list(dict.fromkeys([plan.wanted.kv_dtype, *_DTYPES]))
    needs = concurrency.needs(plan.shape, plan.wanted, users, length, dtypes)
    own = capacity.divided(plan.shape, plan.wanted.num_devices)
    promised = rule_of_thumb.promise(own, plan.wanted.kv_dtype, plan.wanted.limit_bytes, length.num_tokens)
    return {
        "users": users,
        "length": str(length),
        "met": needs[0].fits and users <= plan.wanted.max_num_seqs and length.num_tokens <= plan.context_tokens,
        "ruleOfThumbBytes": promised.needed_bytes(own.weights_bytes, users),
        "needs": [
            {"kvDtype": need.kv_dtype, "kvBytes": need.kv_bytes, "deviceBytes": need.limit_bytes, "fits": need.fits}
            for need in needs
        ],
    }


def _verdict(
    plan: footprint.Footprint,
    rows: Sequence[dict[str, Any]],
    goals: Sequence[dict[str, Any]],
    missed: Sequence[dict[str, Any]],
) -> str:
    """One line: fits or not, and what would make it fit. `missed`: goals, and lengths of which not one runs."""
    if not plan.fits:
        return f"does not fit: {plan.refusal.removeprefix('the model does not fit: ')}"
    long = next((row for row in rows if row["tooLong"]), None)
    if long is not None:
        longest = f"model.maxContextTokens allows {plan.context_tokens:,}"
        return f"does not fit: requests of {long['length']} are refused, {longest}. Raise it as far as the model goes"
    if missed:
        return f"does not fit: {_remedy(plan, missed[0])}"
    if goals:
        return f"fits: {goals[0]['users']} users of {', '.join(goal['length'] for goal in goals)}, all at full length"
    first = rows[0]
    return f"fits: {first['requests']} requests of {first['length']} at once, bound by {first['boundBy']}"


def _beside_memory(refusals: Sequence[effects.Refusal]) -> str:
    """What comes behind a verdict, which is about memory alone."""
    paths = ", ".join(refusal.path for refusal in refusals)
    return f". That is memory alone: the engine refuses to start because of {paths}, see above" if paths else ""


def _remedy(plan: footprint.Footprint, goal: dict[str, Any]) -> str:
    own, *others = goal["needs"]
    users, size = goal["users"], _at_least
    who = f"{users} users of {goal['length']} need" if users > 1 else f"one request of {goal['length']} needs"
    text = f"{who} {size(own['deviceBytes'])} with {own['kvDtype']}"
    if own["fits"]:
        return f"{text}, which there is, but not the places. Set scheduler.maxNumSeqs to at least {users}"
    fitting = [need["kvDtype"] for need in others if need["fits"] and _smaller(need["kvDtype"], own["kvDtype"])]
    places = f" and scheduler.maxNumSeqs to at least {users}" if users > plan.wanted.max_num_seqs else ""
    if fitting:
        return f"{text}. Set kvCache.dtype to {' or '.join(fitting)}{places}, or give {size(own['deviceBytes'])}"
    least = min(goal["needs"], key=lambda need: int(need["deviceBytes"]))
    return (
        f"{text}. No KV dtype makes it fit: give {size(least['deviceBytes'])} with {least['kvDtype']}{places}, "
        "or plan more replicas"
    )


def _at_least(num_bytes: int) -> str:
    """As `--device` and a manifest take it, rounded up: what is given by this word is enough."""
    return f"{math.ceil(num_bytes / pool_size.MIB_BYTES)}Mi"


def _smaller(dtype: str, than: str) -> bool:
    return page_layout.KV_DTYPES[dtype].item_bits < page_layout.KV_DTYPES[than].item_bits
