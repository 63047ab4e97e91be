"""Finds out what the last evaluation of a service said: from its Job, and once from that Job's pod."""

from __future__ import annotations

from typing import Any

from tidemark_operator import api, names
from tidemark_operator.cluster import interface
from tidemark_operator.status import evaluation

JOB = "Job"
"""Made by the CronJob, or by hand from it (`kubectl create job --from`): watched, never written."""


async def look(
    cluster: interface.Cluster, service: api.InferenceService, document: interface.Object
) -> dict[str, Any] | None:
    """`status.evaluation`. Raises `errors.ClusterError`."""
    own, before = interface.key_of(document), document.get("status") or {}
    if evaluation.dump(service, None) is None:
        return None
    job = evaluation.last_job([job for job in await _jobs(cluster, own) if _is_evaluation(job, own.name)])
    if job is None or evaluation.is_known(before, job):
        return evaluation.dump(service, before.get("evaluation"))
    pods = await cluster.pods_of_job(interface.key_of(job))
    return evaluation.dump(service, evaluation.read(job, pods))


async def _jobs(cluster: interface.Cluster, own: interface.Key) -> list[interface.Object]:
    return await cluster.list(JOB, own.namespace, names.selector(own.name))


def _is_evaluation(job: interface.Object, service: str) -> bool:
    controller = interface.controller_of(job) or {}
    return (controller.get("kind"), controller.get("name")) == ("CronJob", names.evaluation(service))
