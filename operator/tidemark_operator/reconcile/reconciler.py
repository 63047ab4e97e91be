"""One pass over one InferenceService: wanted against present, repaired; observed, told in status.

The same code for Kubernetes and for `tidemark up`: everything that differs is behind the cluster interface. A pass
starts from what is there now, so it may be repeated, interrupted or late; what must outlive a pass stands on objects.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemark_operator import api, effects, errors, names, plan, status
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.plan import drift, history
from tidemark_operator.reconcile import (
    children,
    configuration,
    evaluations,
    news,
    precision,
    queue,
    rollout,
    verdict,
    watching,
)
from tidemark_operator.status import monitoring as status_monitoring
from tidemark_operator.status import pressure, tightening, volumes

Tokens = Callable[[str], str]
"""From the uid of a service to the token of its engines' `/admin`."""
RolledBack = Callable[[interface.Key], None]
"""Told of each service whose revision failed and was replaced by the last good one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one pass starts from."""

    document: interface.Object
    revisions: Sequence[history.Revision]
    acting: history.Acting
    facts: plan.Facts
    fit: plan.Fit
    pods: Sequence[interface.Object]
    live: interface.Object | None
    """The Deployment."""
    spec_limit: int
    """Requests that the spec lets run at once in an engine."""
    tightened: tightening.Tightened | None
    """What `acting.service` has instead."""

    @property
    def paused(self) -> bool:
        annotations = self.document["metadata"].get("annotations") or {}
        return bool(annotations.get(names.PAUSED_ANNOTATION) == "true")


class Reconciler:
    """`run` is the work of a `queue.WorkQueue` whose keys name InferenceServices."""

    def __init__(
        self,
        cluster: interface.Cluster,
        facts: plan.Facts,
        *,
        tokens: Tokens,
        settings: settings_.ReconcileSettings,
        clock: clock_.Clock,
        local: bool = False,
        rolled_back: RolledBack = lambda _: None,
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._tokens = tokens
        self._settings = settings
        self._clock = clock
        self._local = local
        self._rolled_back = rolled_back
        self._children = children.Children(cluster, settings, clock)
        self._watching = watching.Watching(cluster, self._children)
        self._configuration = configuration.Configuration(cluster, settings, clock)
        self._maps = precision.Maps(cluster, settings, clock)
        self._felt: dict[interface.Key, datetime.datetime] = {}
        """When a pass last saw memory pressure."""

    async def run(self, key: interface.Key) -> float | None:
        """One pass. Raises `ClusterError` when a child could not be brought in order; all others were tried (B067)."""
        document = await self._cluster.get(key)
        if document is None or "deletionTimestamp" in document["metadata"]:
            self._children.forget(key)
            self._watching.forget(key)
            self._maps.forget(key)
            self._felt.pop(key, None)
            return queue.GONE
        try:
            service = api.parse(document)
        except errors.ManifestError as error:  # what runs goes on: the last good children are left as they are
            await self._tell(document, status.invalid(document, error.problems, self._clock.now()))
            return None
        seen = await self._look(service, document)
        watched = await self._be_watched(seen)
        outcome = await self._bring_in_order(seen, watched)
        computed = await self._observe(seen, outcome, watched)
        await self._tell(document, computed)
        if failures := (*outcome.failures, *watched.failures):
            raise failures[0]
        return self._next_look(computed, seen)

    async def _look(self, service: api.InferenceService, document: interface.Object) -> _Seen:
        own, selector = interface.key_of(document), names.selector(service.name)
        stored = await self._cluster.list("ControllerRevision", own.namespace, selector)
        revisions = history.read(item for item in stored if children.is_ours(item, document))
        acting = history.choose(service, revisions)
        live = await self._cluster.get(interface.Key("Deployment", own.namespace, names.deployment(service.name)))
        pods = await self._cluster.list("Pod", own.namespace, selector)
        facts = dataclasses.replace(self._facts, admin_token=self._tokens(str(document["metadata"]["uid"])))
        facts = await rollout.facts_for(self._cluster, acting.service, facts, live, pods)
        fit = plan.fit(acting.service, service.status, await self._maps.of(acting.service))
        spec_limit = plan.soft_limit(acting.service)
        tightened = tightening.read(acting.service, spec_limit)
        if tightened is not None:
            acting = dataclasses.replace(acting, service=tightening.applied(acting.service, tightened.limit))
        return _Seen(
            document=document,
            revisions=revisions,
            acting=acting,
            facts=facts,
            fit=fit,
            pods=pods,
            live=live,
            spec_limit=spec_limit,
            tightened=tightened,
        )

    async def _be_watched(self, seen: _Seen) -> watching.Watched:
        """On this machine nobody would see the objects."""
        if self._local:
            return watching.Watched()
        if seen.paused:
            before = news.condition(seen.document.get("status") or {}, status_monitoring.TYPE)
            return watching.Watched(condition=status_monitoring.kept(before))
        return await self._watching.bring_in_order(seen.document, seen.acting.service, seen.facts)

    async def _bring_in_order(self, seen: _Seen, watched: watching.Watched) -> children.Outcome:
        """What does not fit gets no pods: those that run go on, with the configuration that they have."""
        if seen.paused:
            return children.Outcome(seen.live, ())
        wanted = plan.wanted(seen.acting.service, seen.facts)
        keep = _in_use(seen) | watched.keys
        if seen.fit.refused:
            wanted = [child for child in wanted if child["kind"] not in ("Deployment", "ConfigMap")]
        kept = _revisions_to_keep(seen)
        wanted = [*wanted, *(history.build(seen.acting.service, revision) for revision in kept)]
        outcome = await self._children.bring_in_order(seen.document, wanted, keep)
        return outcome if not seen.fit.refused else dataclasses.replace(outcome, deployment=seen.live)

    async def _observe(self, seen: _Seen, outcome: children.Outcome, watched: watching.Watched) -> dict[str, Any]:
        service, own = seen.acting.service, interface.key_of(seen.document)
        pods = await self._cluster.list("Pod", own.namespace, names.selector(own.name))
        answers = await asyncio.gather(*(self._cluster.engine_status(pod) for pod in pods))
        engines = {pod["metadata"]["name"]: answer for pod, answer in zip(pods, answers, strict=True)}
        pushed = configuration.Pushed(engines, {})
        if not seen.paused and not seen.fit.refused:
            pushed = await self._configuration.push(pods, engines, self._wanted_configuration(seen))
        judged = await self._judge(seen, outcome, pods)
        complaints = await self._complaints(pods)
        felt, tightened = self._answer_pressure(seen, pushed.engines)
        ignored = effects.warnings(service, local=self._local, model_store_host_path=self._facts.model_store_host_path)
        observed = status.Observed(
            deployment=outcome.deployment,
            pods=pods,
            engines=pushed.engines,
            complaints=complaints,
            wanted_hash=plan.config_hash(service),
            restart_hash=plan.restart_hash(service),
            rejected=pushed.rejected,
            url=await self._cluster.endpoint(own.namespace, names.service(own.name)),
            warnings=[*ignored, *(str(failure) for failure in (*outcome.failures, *watched.failures))],
            evaluation=await evaluations.look(self._cluster, service, seen.document),
            monitoring=watched.condition,
            fits=seen.fit.fits,
            fit_message=seen.fit.message,
            fit_reason=seen.fit.reason,
            paused=seen.paused,
            failed=(seen.acting.instead_of or judged).failed,
            running_revision=seen.acting.revision.number if seen.acting.instead_of else None,
            retry=_how_to_retry(seen),
            memory_pressure=felt,
            tightened=tightened,
        )
        return status.compute(service, observed, self._clock.now())

    async def _complaints(self, pods: Sequence[interface.Object]) -> dict[str, Sequence[interface.Complaint]]:
        """About pods that wait for their volumes for longer than a mount takes."""
        stuck = [pod for pod in pods if volumes.is_waiting(pod) and self._waits_long(pod)]
        found = await asyncio.gather(*(self._cluster.complaints(pod) for pod in stuck))
        return {pod["metadata"]["name"]: said for pod, said in zip(stuck, found, strict=True)}

    def _waits_long(self, pod: interface.Object) -> bool:
        since = volumes.scheduled_at(pod)
        if since is None:
            return False
        waited = self._clock.now() - datetime.datetime.fromisoformat(since.replace("Z", "+00:00"))
        return waited.total_seconds() >= self._settings.volume_patience_seconds

    def _answer_pressure(
        self, seen: _Seen, engines: configuration.Engines
    ) -> tuple[status.Condition, tightening.Tightened | None]:
        """`MemoryPressure`, and the soft limit from the next pass on."""
        own, now = interface.key_of(seen.document), self._clock.now()
        before = news.condition(seen.document.get("status") or {}, pressure.TYPE)
        looked = pressure.of(engines)
        if looked.is_felt or (before.get("status") == "True" and own not in self._felt):
            self._felt[own] = now  # one that an operator before this one saw has its full time
        since = self._felt.get(own)
        condition = pressure.condition(looked, before, (now - since).total_seconds() if since is not None else None)
        if condition.status == "False":
            self._felt.pop(own, None)
        if seen.acting.service.spec.watermarks.response != "tighten":
            return condition, None
        if seen.paused:
            return condition, seen.tightened
        return condition, tightening.next_state(
            seen.tightened, seen.spec_limit, looked, condition.status == "True", now
        )

    def _wanted_configuration(self, seen: _Seen) -> configuration.Wanted:
        service = seen.acting.service
        return configuration.Wanted(
            document=plan.engine_document(service),
            hash=plan.config_hash(service),
            restart_hash=plan.restart_hash(service),
            token=seen.facts.admin_token,
        )

    async def _judge(
        self, seen: _Seen, outcome: children.Outcome, pods: Sequence[interface.Object]
    ) -> history.Revision:
        """Write down what became of the revision, once; the pass that this wakes acts on it."""
        revision, service = seen.acting.revision, seen.acting.service
        if seen.paused or outcome.deployment is None or seen.fit.refused:
            return revision
        wanted = next(child for child in plan.wanted(service, seen.facts) if child["kind"] == "Deployment")
        progress = status.rollout(outcome.deployment, service.replicas)
        template = {key: wanted["spec"]["template"][key] for key in ("metadata", "spec")}
        judged = verdict.judge(revision, progress, pods, template, status.timestamp(self._clock.now()))
        if judged == revision:
            return revision
        await self._cluster.apply(drift.sealed(history.build(service, judged)))
        back = history.last_good([item for item in seen.revisions if item.hash != judged.hash])
        if judged.failed and back is not None and service.spec.rollout.auto_rollback:
            message = f"The pods get the last spec that served (revision {back.number}). {judged.failed}"
            await self._cluster.record_event(seen.document, "Warning", "RolledBack", message)
            self._rolled_back(interface.key_of(seen.document))
        return judged

    async def _tell(self, document: interface.Object, computed: dict[str, Any]) -> None:
        """Write the status when it says something new, and the events that it is worth."""
        before = document.get("status") or {}
        if computed == before:
            return
        await self._cluster.patch_status(interface.key_of(document), computed)
        for event in news.of(before, computed):
            await self._cluster.record_event(document, event.type, event.reason, event.message)

    def _next_look(self, computed: Mapping[str, Any], seen: _Seen) -> float:
        """Events tell everything but what the engines say of themselves."""
        ready, limits = news.condition(computed, "Ready"), self._settings
        if not seen.pods:
            is_waiting = news.condition(computed, status_monitoring.TYPE).get("status", "True") != "True"
            is_waiting |= bool(seen.fit.reason)  # a map that is corrected comes as no event
            return limits.max_unready_seconds if is_waiting else limits.rewrite_secrets_seconds
        if computed.get("tightened") != (seen.tightened.dump() if seen.tightened else None):
            return limits.unready_seconds  # the engines do not have it yet
        if ready.get("status") == "True":
            return limits.ready_seconds
        since = datetime.datetime.fromisoformat(str(ready["lastTransitionTime"]).replace("Z", "+00:00"))
        waited = (self._clock.now() - since).total_seconds()
        return min(max(limits.unready_seconds, waited * limits.patience_ratio), limits.max_unready_seconds)


def _revisions_to_keep(seen: _Seen) -> list[history.Revision]:
    """Those known, the user's own among them as it is now, less the surplus."""
    own = seen.acting.instead_of or seen.acting.revision
    known = [*(revision for revision in seen.revisions if revision.hash != own.hash), own]
    good = history.last_good(known)
    forgotten = history.surplus(known, [own, seen.acting.revision, *([good] if good else [])])
    return [revision for revision in known if revision not in forgotten]


def _how_to_retry(seen: _Seen) -> str:
    failed = seen.acting.instead_of
    if failed is None:
        return ""
    name = names.revision(seen.acting.service.name, failed.hash)
    return f"Change the spec, or have the same tried again with `kubectl delete controllerrevision {name}`."


def _in_use(seen: _Seen) -> set[interface.Key]:
    """ConfigMaps of the pods there are, whatever their revision, and of the Deployment as it is."""
    namespace = seen.document["metadata"].get("namespace", "default")
    specs = [pod["spec"] for pod in seen.pods]
    if seen.live is not None:
        specs.append(seen.live["spec"]["template"]["spec"])
    maps = [
        volume["configMap"]["name"] for spec in specs for volume in spec.get("volumes") or () if "configMap" in volume
    ]
    return {interface.Key("ConfigMap", namespace, name) for name in maps}
