"""Where kopf comes in, and the only module that knows it: it lists and watches, and hands on what it is told.

kopf stores nothing on objects here, posts no events, adds no finalizers and runs no timers: only `on.event` is used,
and all kinds have the same handler. Its own traps are closed in `_settings` and `watch`, each with its reason.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import kopf

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster.kubernetes import backend, kinds
from tidemark_operator.cluster.kubernetes import connection as connection_

_LOGIN_PAUSE_SECONDS = 1.0
_IDENTITY: Any = names.FIELD_MANAGER
"""Its own type is not exported."""

_log = logging.getLogger(__name__)


async def watch(
    cluster: backend.KubernetesCluster,
    connection: connection_.Connection,
    namespaces: Sequence[str],
    stop: asyncio.Event,
    *,
    settings: settings_.KubernetesSettings,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Feed the cluster until `stop` is set. `namespaces`: `("",)` is all. `started` is called once kopf has put its
    own signal handlers in place of others. Raises `errors.ClusterError` when kopf gives up."""
    everywhere = tuple(namespaces) == ("",)
    tasks = await kopf.spawn_tasks(
        registry=_registry(cluster, connection),
        settings=_settings(settings),
        identity=_IDENTITY,  # kopf would ask for the user's name, and a uid of a container may have none
        standalone=True,  # peering pauses by priority and is no leader election: there is a lease for that
        clusterwide=everywhere,
        namespaces=() if everywhere else tuple(namespaces),
        stop_flag=stop,
    )
    started()
    try:
        await kopf.run_tasks(tasks, ignored=_NotOfKopf())
    except Exception as error:  # kopf lets out whatever ended it, and all of it ends the operator
        raise errors.Unavailable(f"watching the API server ended: {error!r}") from error


def _registry(cluster: backend.KubernetesCluster, connection: connection_.Connection) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def changed(*, event: kopf.RawEvent, **_: Any) -> None:
        cluster.feed(event["type"], dict(event["object"]))

    for kind in kinds.WATCHED:
        kopf.on.event(kind.group, kind.version, kind.plural, id="changed", registry=registry)(changed)

    lists: set[kinds.Target] = set()

    def observe(verb: str, target: kinds.Target, status: int) -> None:
        if status != 200 or not target.kind:
            return
        if verb == "watch":
            cluster.activity.opened(target.kind, target.namespace)
            lists.add(target)
        elif verb == "list" and target in lists:
            lists.discard(target)  # of a list in pages only the first tells that a watch began anew
            cluster.resync.relisted(target.kind)

    logins = itertools.count()

    async def login(**_: Any) -> kopf.AiohttpSession:
        if next(logins):  # refused credentials bring us here again at once
            await asyncio.sleep(_LOGIN_PAUSE_SECONDS)
        return kopf.AiohttpSession(server=connection.server, aiohttp_session=connection.watching_session(observe))

    kopf.on.login(id="login", registry=registry)(login)
    return registry


def _settings(ours: settings_.KubernetesSettings) -> kopf.OperatorSettings:
    made = kopf.OperatorSettings()
    made.posting.enabled = False  # there is a recorder that does not flood
    made.scanning.disabled = True  # needs cluster-wide list and watch of CRDs and namespaces otherwise
    made.process.ultimate_exiting_timeout = None  # it would kill this process ten minutes after a signal

    made.watching.server_timeout = ours.watch_seconds
    made.watching.client_timeout = ours.watch_seconds + ours.watch_inactivity_seconds
    made.watching.connect_timeout = ours.connect_seconds
    made.watching.inactivity_timeout = ours.watch_inactivity_seconds
    made.watching.chunk_size = ours.list_page
    for kind in kinds.WATCHED:
        if kind.selector:
            made.watching.label_selectors[kind.group, kind.version, kind.plural] = kind.selector

    made.networking.connect_timeout = ours.connect_seconds
    made.networking.request_timeout = ours.list_seconds
    made.networking.error_backoffs = _Backoffs()
    # No limit of workers: one has done its few microseconds of work before the next begins, and with a limit those that
    # are idle keep back others, whose objects wait in memory meanwhile.
    made.queueing.idle_timeout = 0.05

    made.persistence.finalizer = f"kopf.{names.GROUP}/never-set"  # not kopf's own name, which others may use
    made.persistence.progress_storage = _NoProgress()
    made.persistence.diffbase_storage = _NoDiffBase()
    return made


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf keeps no last state anywhere, and makes no deep copies of every object to compare with one."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """There is no progress: a handler that is told an event has done all it will ever do about it."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class _Backoffs:
    """Seconds between the tries of one request, without end: kopf ends the operator when they are used up, and an API
    server may be away for an hour. It is the age of the watches that tells when to give up."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.5, 1.0, 2.0, 4.0), itertools.repeat(8.0))


class _NotOfKopf(Collection["asyncio.Task[Any]"]):
    """Tasks that are none of kopf's business. At its end it cancels every task of the event loop that it is not told to
    ignore, also those that began after it: running passes, the renewal of the lease."""

    _FOLDER = f"{Path(kopf.__file__).parent}{os.sep}"

    def __contains__(self, task: object) -> bool:
        code = getattr(task.get_coro(), "cr_code", None) if isinstance(task, asyncio.Task) else None
        return code is None or not code.co_filename.startswith(self._FOLDER)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return (task for task in asyncio.all_tasks() if task in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
