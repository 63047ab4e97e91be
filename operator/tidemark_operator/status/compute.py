"""From what was observed to the whole status: computed anew each time, never a step that others wait for."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tidemark_operator import api, errors, names
from tidemark_operator.status import conditions, evaluation, finding, findings, lossy, rollout
from tidemark_operator.status import observed as observed_
from tidemark_operator.status.conditions import Condition
from tidemark_runtime.contract.status import EngineState, EngineStatus

_LOADED = (EngineState.READY, EngineState.DRAINING, EngineState.STALLED)


def compute(service: api.InferenceService, observed: observed_.Observed, now: datetime.datetime) -> dict[str, Any]:
    """The whole `status` of `service`. Transition times in `service.status` are kept where a condition is unchanged."""
    progress = rollout.read(observed.deployment, _replicas_wanted(service, observed))
    found = findings.of(observed)
    cause = _cause(service, observed, progress, found)
    engines = [engine for engine in observed.engines.values() if engine is not None]
    lossy_kv = lossy.condition(service, engines, conditions.before(service.status, lossy.TYPE))
    wanted = [
        _ready(observed, progress, cause),
        Condition(
            "Available",
            conditions.truth(progress.ready > 0),
            "Available" if progress.ready else cause.reason,
            _replicas(progress),
        ),
        _progressing(service, progress, cause),
        _degraded(cause),
        _model_ready(engines, cause),
        _capacity_fit(observed, engines, cause),
        _config_applied(observed),
        *(
            [evaluated]
            if (evaluated := evaluation.condition(observed.evaluation, observed.restart_hash)) is not None
            else []
        ),
        *([observed.monitoring] if observed.monitoring is not None else []),
        *([observed.memory_pressure] if observed.memory_pressure is not None else []),
        *([lossy_kv] if lossy_kv is not None else []),
    ]
    generation = service.metadata.generation or 0
    dumped = conditions.dump(wanted, service.status, generation, now)
    shown = {
        "observedGeneration": generation,
        "phase": _phase(dumped[0], progress),
        "replicas": progress.total,
        "readyReplicas": progress.ready,
        "selector": ",".join(f"{key}={value}" for key, value in names.selector(service.name).items()),
        "url": observed.url,
        "model": service.model_name,
        "devices": _devices(service.spec.hardware),
        "kv": _kv(engines),
        "shape": _shape(engines) or service.status.get("shape"),
        "evaluation": observed.evaluation,
        "tightened": observed.tightened.dump() if observed.tightened is not None else None,
    }
    return {
        **{key: value for key, value in shown.items() if value is not None},
        "conditions": dumped,
        "warnings": [*observed.warnings, *findings.warnings(observed.engines)],
    }


def invalid(document: Mapping[str, Any], problems: Sequence[errors.Problem], now: datetime.datetime) -> dict[str, Any]:
    """The status of a document that `api.parse` refused: every problem in the message. What runs is left running.

    Everything else of the last status is kept, `observedGeneration` of the last spec that was acted on as well (B069).
    """
    previous = document.get("status")
    kept: dict[str, Any] = dict(previous) if isinstance(previous, Mapping) else {}
    metadata = document.get("metadata")
    generation = int(metadata.get("generation") or 0) if isinstance(metadata, Mapping) else 0
    message = "\n".join(str(problem) for problem in problems)
    condition = Condition("Ready", "False", "InvalidSpec", message)
    others = [item for item in kept.get("conditions") or () if item.get("type") != "Ready"]
    return {
        **kept,
        "phase": f"InvalidSpec: {len(problems)} to correct",
        "conditions": [*conditions.dump([condition], kept, generation, now), *others],
    }


def _cause(
    service: api.InferenceService,
    observed: observed_.Observed,
    progress: rollout.Rollout,
    found: Sequence[finding.Finding],
) -> finding.Finding:
    """The one thing to say about a service that is not Ready."""
    if observed.paused:
        return finding.Finding(
            "Paused", f"The annotation {names.PAUSED_ANNOTATION} is set: nothing is changed or repaired.", problem=False
        )
    if observed.running_revision is not None:
        return finding.Finding(
            "RolledBack",
            f"The rollout of this spec failed: {observed.failed.rstrip('.')}. The pods run revision "
            f"{observed.running_revision}, the last that served. {observed.retry}",
        )
    if service.spec.suspend:
        return finding.Finding("Suspended", "spec.suspend is true; set it to false to start the pods.", problem=False)
    if service.replicas == 0:
        return finding.Finding("ScaledToZero", "spec.replicas is 0; raise it to start pods.", problem=False)
    if observed.fits is False:
        return finding.Finding(observed.fit_reason or "DoesNotFit", observed.fit_message)
    if observed.deployment is None:
        return finding.Finding("Creating", "The objects are being created.", problem=False)
    if progress.refused:
        return finding.Finding("PodsRefused", progress.refused)
    problems = [item for item in found if item.problem]
    if problems:
        more = f" ({len(problems)} pods have a problem.)" if len(problems) > 1 else ""
        return finding.Finding(problems[0].reason, problems[0].message + more)
    if progress.stuck:
        return finding.Finding("ProgressDeadlineExceeded", progress.stuck)
    if found:
        return found[0]
    if not progress.done:
        return finding.Finding(
            "RollingOut", f"{progress.updated} of {progress.wanted} pods have the current spec.", problem=False
        )
    return finding.Finding("Starting", "The pods start.", problem=False)


def _ready(observed: observed_.Observed, progress: rollout.Rollout, cause: finding.Finding) -> Condition:
    """True only for the spec that is wanted now (B069), and only while a pod answers."""
    held_back = observed.running_revision is not None or observed.fits is False
    if progress.done and progress.ready and progress.wanted and not held_back:
        return Condition("Ready", "True", "Ready", _replicas(progress))
    return Condition("Ready", "False", cause.reason, cause.message)


def _progressing(service: api.InferenceService, progress: rollout.Rollout, cause: finding.Finding) -> Condition:
    if progress.stuck and service.replicas:
        return Condition("Progressing", "False", "ProgressDeadlineExceeded", progress.stuck)
    if progress.done and progress.ready >= progress.wanted:
        return Condition("Progressing", "False", "RolledOut", "All pods have the current spec.")
    return Condition("Progressing", "True", cause.reason, cause.message)


def _degraded(cause: finding.Finding) -> Condition:
    if cause.problem:
        return Condition("Degraded", "True", cause.reason, cause.message)
    return Condition("Degraded", "False", "AsExpected", "Nothing is wrong.")


def _model_ready(engines: Sequence[EngineStatus], cause: finding.Finding) -> Condition:
    if any(engine.state in _LOADED for engine in engines):
        return Condition("ModelReady", "True", "Loaded", "The model is loaded.")
    if engines or cause.problem:
        return Condition("ModelReady", "False", cause.reason, cause.message)
    return Condition("ModelReady", "Unknown", cause.reason, "No engine has answered yet.")


def _capacity_fit(observed: observed_.Observed, engines: Sequence[EngineStatus], cause: finding.Finding) -> Condition:
    """The plan's answer before any pod exists; what the engines found comes on top of it."""
    if observed.fits is False:
        return Condition("CapacityFit", "False", observed.fit_reason or "DoesNotFit", observed.fit_message)
    if cause.reason in ("DoesNotFit", "OutOfMemory"):
        return Condition("CapacityFit", "False", cause.reason, cause.message)
    if observed.fits:
        return Condition("CapacityFit", "True", "Fits", observed.fit_message)
    if any(engine.state in _LOADED for engine in engines):
        return Condition("CapacityFit", "True", "Loaded", "Weights and KV cache are in memory.")
    reason = observed.fit_reason or "NotKnownYet"
    return Condition("CapacityFit", "Unknown", reason, observed.fit_message or "Nothing is known yet.")


def _config_applied(observed: observed_.Observed) -> Condition:
    """Which pods have what: a pod that differs is named."""
    engines = {name: engine for name, engine in sorted(observed.engines.items()) if engine is not None}
    wanted = observed.wanted_hash
    if not engines or wanted is None:
        return Condition("ConfigApplied", "Unknown", "NoAnswer", "No engine has answered yet.")
    others = {name: engine.config.hash for name, engine in engines.items() if engine.config.hash != wanted}
    message = f"{len(engines) - len(others)} of {len(engines)} engines run the configuration {wanted}."
    if not others:
        return Condition("ConfigApplied", "True", "Applied", message)
    refused = [
        f"{name} runs {others[name]} and refuses: {observed.rejected[name]}"
        for name in others
        if name in observed.rejected
    ]
    waiting = [f"{name} runs {others[name]}" for name in others if name not in observed.rejected]
    reason = "Rejected" if refused else "Pending"
    return Condition("ConfigApplied", "False", reason, " ".join([message, "; ".join([*refused, *waiting]) + "."]))


def _replicas(progress: rollout.Rollout) -> str:
    return f"{progress.ready} of {progress.wanted} replicas answer."


def _phase(ready: Mapping[str, Any], progress: rollout.Rollout) -> str:
    """For the eye only: a word or a short sentence."""
    if ready["status"] == "True":
        return "Ready" if progress.ready >= progress.wanted else f"Ready: {progress.ready} of {progress.wanted}"
    return f"{ready['reason']}: {ready['message'].splitlines()[0][:120]}"


def _replicas_wanted(service: api.InferenceService, observed: observed_.Observed) -> int:
    """With autoscaling on, the scaler's number, which stands on the Deployment (B071)."""
    if service.spec.autoscaling is None or service.spec.suspend or observed.deployment is None:
        return service.replicas
    return int(observed.deployment["spec"].get("replicas") or service.replicas)


def _shape(engines: Sequence[EngineStatus]) -> dict[str, Any] | None:
    """What a later plan needs to know of the model, as an engine that has loaded it says; kept when it is gone."""
    for engine in engines:
        if engine.model.shape is not None:
            kept: dict[str, Any] = msgspec.to_builtins(engine.model.shape)
            overhead_bytes = engine.memory.parts_bytes.get("overhead", 0)
            return {"source": engine.model.source, **kept, "overheadBytes": overhead_bytes}
    return None


def _devices(hardware: api.Hardware) -> str:
    if hardware.resource_name == "cpu":
        return f"{hardware.count} core{'s' if hardware.count != 1 else ''}"
    return f"{hardware.count} × {hardware.resource_name}"


def _kv(engines: Sequence[EngineStatus]) -> str | None:
    """Dtype, and use over all engines: `float32, 12 % of 2048 pages`."""
    loaded = [engine for engine in engines if engine.memory.pages_total]
    if not loaded:
        return None
    total = sum(engine.memory.pages_total for engine in loaded)
    used = sum(engine.memory.pages_used for engine in loaded)
    dtype = loaded[0].worker.get("kvDtype", "")
    return f"{dtype + ', ' if dtype else ''}{round(100 * used / total)} % of {total} pages"
