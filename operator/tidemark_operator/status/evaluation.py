"""What the last evaluation of a service said: `status.evaluation` and the condition `EvaluationPassed`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark_operator import api, effects
from tidemark_operator.api import cron_gap
from tidemark_operator.status import conditions, findings
from tidemark_runtime.contract import verdict

TYPE = "EvaluationPassed"
_MAX_MESSAGE = 500


def last_job(jobs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The job that ended last."""
    ended = [job for job in jobs if ended_at(job) is not None]
    return max(ended, key=lambda job: (ended_at(job) or "", job["metadata"]["name"]), default=None)


def ended_at(job: Mapping[str, Any]) -> str | None:
    """RFC 3339; None: it runs."""
    found = _end(job)
    if not found:
        return None
    times = (found.get("lastTransitionTime"), (job.get("status") or {}).get("completionTime"))
    return str(next(filter(None, times), None) or job["metadata"]["creationTimestamp"])


def is_known(status: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """Whether `status.evaluation` says what came of this job, or of one that ended after it. Not by the name alone: one
    made by hand may have the name of one that was deleted."""
    known = status.get("evaluation") or {}
    return (ended_at(job) or "", job["metadata"]["name"]) <= (known.get("time") or "", known.get("job") or "")


def read(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What came of a job that has ended. `pods`: its own, of which the last has the verdict as its last words."""
    found = {"job": str(job["metadata"]["name"]), "time": ended_at(job)}
    said = [message for pod in pods for message in _last_words(pod)]
    judged = next((one for one in map(verdict.read, reversed(said)) if one is not None), None)
    if judged is None:
        line = next((line for line in map(findings.last_line, reversed(said)) if line), "")
        words = line or str(_end(job).get("message") or "Its pod is gone and left no word.")
        return {**found, "passed": False, "message": f"The evaluation did not finish: {words}"[:_MAX_MESSAGE]}
    return {
        **found,
        "passed": judged.passed,
        "message": _message(judged)[:_MAX_MESSAGE],
        "configuration": judged.configuration,
        "restartHash": judged.restart_hash,
        **({"meanKl": judged.mean_kl} if judged.mean_kl is not None else {}),
        **({"perplexityRise": judged.perplexity_rise} if judged.perplexity_rise is not None else {}),
    }


def dump(service: api.InferenceService, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`status.evaluation`; None where no schedule acts. `last`: what `read` made, or the status of before."""
    asked = service.spec.evaluation
    if asked is None or asked.schedule is None or not effects.is_quantized(service):
        return None
    kept = {key: value for key, value in (last or {}).items() if key != "intervalSeconds"}
    if service.spec.suspend:
        return kept  # the CronJob is suspended, too: nothing is overdue
    return {**kept, "intervalSeconds": cron_gap.longest_seconds(asked.schedule)}


def condition(evaluation: Mapping[str, Any] | None, restart_hash: str | None) -> conditions.Condition | None:
    """None before the first evaluation, and where there are none. `restart_hash`: of the spec that acts now."""
    if not evaluation or "passed" not in evaluation:
        return None
    if restart_hash and evaluation.get("restartHash", restart_hash) != restart_hash:
        text = (
            f"The last evaluation was of a configuration before this one; the next one tells. {evaluation['message']}"
        )
        return conditions.Condition(TYPE, "Unknown", "ConfigurationChanged", text)
    if evaluation["passed"]:
        return conditions.Condition(TYPE, "True", "WithinLimits", str(evaluation["message"]))
    reason = "OverLimits" if "configuration" in evaluation else "NotFinished"
    return conditions.Condition(TYPE, "False", reason, str(evaluation["message"]))


def _message(judged: verdict.Verdict) -> str:
    figures = (
        f"{judged.configuration}: mean KL {_figure(judged.mean_kl, '.3g')} nats, perplexity "
        f"{_figure(judged.perplexity_rise, '+.2%')} on "
        f"{judged.tokens:,} tokens"
    )
    if judged.passed:
        return f"{figures}."
    return f"{figures}. Over the limit: {'; '.join(judged.over)}. Keep more at 16 bits, or raise spec.evaluation.maxKl."


def _figure(value: float | None, written: str) -> str:
    return "no number" if value is None else format(value, written)


def _end(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found = (job.get("status") or {}).get("conditions") or ()
    return next(
        (item for item in found if item.get("type") in ("Complete", "Failed") and item.get("status") == "True"), {}
    )


def _last_words(pod: Mapping[str, Any]) -> list[str]:
    """Of its containers that have ended, the latest pod last where `pods` are in the order of their making."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    ended = ((container.get("state") or {}).get("terminated") or {} for container in containers)
    return [str(item["message"]) for item in ended if item.get("message")]
