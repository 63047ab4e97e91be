"""One operator process: checks itself, waits until it leads, watches and reconciles, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from tidemark_operator import errors, handlers, names, permissions, plan
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import access, api, backend, connection, lease, metrics
from tidemark_operator.commands import operator_http, operator_key, operator_passes
from tidemark_operator.monitoring import operator_metrics
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL
from tidemark_operator.reconcile import loop, reconciler

LEASE_NAME = names.FIELD_MANAGER

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OPENED_POLL_SECONDS = 0.05
_UNREACHABLE_PAUSE_SECONDS = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says."""

    source: connection.Source
    key: bytes
    image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    model_store_host_path: str | None = None
    monitoring_labels: tuple[tuple[str, str], ...] = ()
    monitoring_namespaces: tuple[str, ...] = ()
    runbook_base_url: str = RUNBOOK_BASE_URL
    namespaces: tuple[str, ...] = ("",)
    """`("",)`: all."""
    lease_namespace: str | None = None
    listen: str = "0.0.0.0:8080"
    settings: settings_.KubernetesSettings = field(default_factory=settings_.KubernetesSettings)
    lease: settings_.LeaseSettings = field(default_factory=settings_.LeaseSettings)


async def run(options: Options) -> None:
    """Until a signal. Raises `errors.OperatorError` when it cannot start, and when it must not go on."""
    counted = metrics.Metrics()
    listener = operator_http.listen(options.listen)
    stop = asyncio.Event()
    with listener, _signals(stop) as install:
        observer = lambda verb, target, code: counted.requested(verb, target.kind, code)
        async with (
            connection.Connection(options.source, options.settings, (observer,)) as connected,
            connection.Connection(options.source, options.settings, (observer,)) as apart,
            httpx.AsyncClient(verify=False, trust_env=False) as http,
        ):
            await _Operator(options, connected, apart, http, counted, stop, install).run(listener)


class _Operator:
    """Before, during and after leadership."""

    def __init__(
        self,
        options: Options,
        connected: connection.Connection,
        apart: connection.Connection,
        http: httpx.AsyncClient,
        counted: metrics.Metrics,
        stop: asyncio.Event,
        install_signals: Callable[[], None],
    ) -> None:
        """`apart` is for the lease alone, so that its renewal never waits for connections that passes have taken."""
        self._options = options
        self._connection = connected
        self._http = http
        self._metrics = counted
        self._stop = stop
        self._install_signals = install_signals
        self._clock = clock_.SystemClock()
        self._identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self._namespace = options.lease_namespace or connected.namespace or "default"
        self._api = api.Api(connected, options.settings)
        self._lease_api = api.Api(apart, options.settings)
        self._cluster: backend.KubernetesCluster | None = None
        self._synced = False

    async def run(self, listener: socket.socket) -> None:
        probes = operator_http.Probes(self._live, self._ready, self._metrics.exposition)
        serving = asyncio.create_task(operator_http.serve(listener, operator_http.application(probes)))
        try:
            if not await self._unless_stopped(self._check()):
                return
            held = lease.Lease(
                self._lease_api,
                interface.Key("Lease", self._namespace, LEASE_NAME),
                self._identity,
                settings=self._options.lease,
                clock=self._clock,
            )
            if await self._unless_stopped(held.acquire()):
                try:
                    await self._lead(held)
                finally:
                    self._metrics.leader.set(0)
                    await held.release()
        finally:
            await _cancel(serving)

    async def _check(self) -> None:
        """Everything that would make the start a failure later. Raises `errors.ClusterError`. A pod waits for an API
        server that is away: restarting it ever more slowly would only make the wait longer."""
        while True:
            try:
                return await self._check_once()
            except errors.Unavailable as error:
                if not self._options.source.in_pod:
                    raise
                _log.warning("waiting for the API server: %s", error)
                await self._clock.sleep(_UNREACHABLE_PAUSE_SECONDS)

    async def _check_once(self) -> None:
        if not await self._api.exists(f"/apis/{names.API_VERSION}"):
            raise errors.NotFound(
                f"{self._connection.server} does not know the kind {names.KIND} of {names.API_VERSION}. Install it: "
                f"`kubectl apply -f crds/`, or with the chart: `helm install tidemark charts/tidemark`"
            )
        asked = permissions.questions(self._options.namespaces, self._namespace)
        missing = access.check(await access.denied(self._api, asked))
        if missing:
            _log.warning("some permissions are missing; this will not work:\n  %s", "\n  ".join(missing))

    async def _lead(self, held: lease.Lease) -> None:
        cluster = self._cluster = self._make_cluster()
        self._metrics.leader.set(1)
        work = reconciler.Reconciler(
            cluster,
            self._facts(),
            tokens=functools.partial(operator_key.token, self._options.key),
            settings=settings_.ReconcileSettings(),
            clock=self._clock,
            rolled_back=cluster.counts.rolled_back,
        )
        passes = operator_passes.Passes(work.run, self._metrics.reconciled)
        stop_watching = asyncio.Event()
        watching = handlers.watch(
            cluster,
            self._connection,
            self._options.namespaces,
            stop_watching,
            settings=self._options.settings,
            started=self._install_signals,
        )
        tasks = [
            asyncio.create_task(work, name=name)
            for name, work in (
                ("watching", watching),
                ("lease", held.hold()),
                ("events", cluster.recorder.run()),
                ("reconciling", self._reconcile(cluster, passes)),
            )
        ]
        try:
            await self._until_stopped(tasks)
            _log.info("stopping: running passes may take %.0f seconds more", self._options.settings.drain_seconds)
            await passes.drain(self._options.settings.drain_seconds)
        finally:
            stop_watching.set()
            await _finish(tasks)

    async def _reconcile(self, cluster: backend.KubernetesCluster, passes: operator_passes.Passes) -> None:
        """Nothing is reconciled on half of the facts: first all watches stand, and a list has proved the cache."""
        while cluster.activity.missing:
            await self._clock.sleep(_OPENED_POLL_SECONDS)
        while not self._synced:
            try:
                await cluster.resync.compare()
                await cluster.optional.look()
                self._synced = True
            except errors.Unavailable as error:
                _log.warning("listing failed, trying again: %s", error)
                await self._clock.sleep(self._options.settings.relist_delay_seconds)
        _log.info("watching and reconciling: objects=%d", len(cluster.cache))
        namespace = self._options.namespaces[0] if len(self._options.namespaces) == 1 else ""
        work = loop.Loop(
            cluster,
            passes,
            namespace,
            settings=settings_.QueueSettings(),
            clock=self._clock,
        )
        self._metrics.read_at_scrape(operator_metrics.QUEUE_DEPTH, lambda: [((), float(len(work.queue)))])
        async with asyncio.TaskGroup() as group:
            group.create_task(cluster.resync.run())
            group.create_task(cluster.optional.run())
            group.create_task(work.run())

    def _make_cluster(self) -> backend.KubernetesCluster:
        return backend.KubernetesCluster(
            self._api,
            self._http,
            self._identity,
            self._options.namespaces,
            settings=self._options.settings,
            engine_settings=settings_.EngineSettings(),
            recorder_settings=settings_.RecorderSettings(),
            clock=self._clock,
            metrics_=self._metrics,
        )

    def _facts(self) -> plan.Facts:
        return plan.Facts(
            image=self._options.image,
            image_pull_policy=self._options.image_pull_policy,
            image_pull_secrets=self._options.image_pull_secrets,
            operator_namespace=self._namespace if self._options.source.in_pod else None,
            model_store_host_path=self._options.model_store_host_path,
            monitoring_labels=self._options.monitoring_labels,
            monitoring_namespaces=self._options.monitoring_namespaces,
            runbook_base_url=self._options.runbook_base_url,
        )

    def _live(self) -> operator_http.Verdict:
        if self._cluster is None:
            return operator_http.Verdict(True, "not leading")
        kind, age = self._cluster.activity.oldest()
        limit = self._options.settings.watch_age_limit_seconds
        words = f"the watch of {kind} last worked {age:.0f} seconds ago; the limit is {limit:.0f}"
        return operator_http.Verdict(age <= limit, words)

    def _ready(self) -> operator_http.Verdict:
        if self._cluster is None:
            return operator_http.Verdict(True, "waiting to lead")
        return operator_http.Verdict(self._synced, "leading" if self._synced else "reading what is there")

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether the work was done before a signal came."""
        task = asyncio.create_task(work)
        await self._until_stopped([task])
        done = task.done()
        await _finish([task])
        return done

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> None:
        """Return at a signal, or when one of the tasks has ended; raise what it ended with."""
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        for task in tasks:
            if task.done():
                task.result()


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM set `stop`. Gives a function that makes it so again, after others took them."""
    running = asyncio.get_running_loop()

    def install() -> None:
        for number in _SIGNALS:
            running.add_signal_handler(number, stop.set)

    install()
    try:
        yield install
    finally:
        for number in _SIGNALS:
            running.remove_signal_handler(number)


async def _finish(tasks: list[asyncio.Task[None]]) -> None:
    """The watch ends by its own flag; everything else is cancelled. What they fail with then is told by nobody."""
    for task in tasks:
        if task.get_name() != "watching":
            task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and task.exception() is not None:
            _log.debug("ended: task=%s", task.get_name(), exc_info=task.exception())


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
