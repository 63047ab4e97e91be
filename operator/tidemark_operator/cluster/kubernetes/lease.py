"""Who leads, when there are two operators: a Lease, taken and renewed as Kubernetes' own controllers do it.

Only the holder watches and writes. Clocks of two machines need not agree: a holder counts as gone when its lease was
seen unchanged for its whole duration on our own clock.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from typing import Any

import msgspec

from tidemark_operator import errors
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import kinds

_decode = msgspec.json.Decoder(dict[str, Any]).decode

_log = logging.getLogger(__name__)


class Lease:
    """`acquire`, then `hold` beside the work, then `release`."""

    def __init__(
        self,
        api: api_.Api,
        key: interface.Key,
        identity: str,
        *,
        settings: settings_.LeaseSettings,
        clock: clock_.Clock,
    ) -> None:
        self._api = api
        self._key = key
        self._kind = kinds.TABLE["Lease"]
        self._identity = identity
        self._settings = settings
        self._clock = clock
        self._seen: tuple[str, float] = ("", 0.0)
        self._renewed = float("-inf")
        self._latest: dict[str, Any] | None = None
        """As the API server gave it back when it was taken or renewed last."""

    async def acquire(self) -> None:
        """Return once this operator leads. Says whom it waits for. Raises `errors.Refused` when it is not allowed to
        look; other failures are told and tried again."""
        waiting_for = None
        while True:
            try:
                holder = await self._try_to_take()
            except (errors.Conflict, errors.Unavailable) as error:
                _log.warning("taking the lease failed, trying again: %s", error)
            else:
                if holder is None:
                    _log.info("leading: lease=%s identity=%s", self._key, self._identity)
                    return
                if holder != waiting_for:
                    _log.info("waiting: %s leads, this operator takes over when it ends", holder)
                    waiting_for = holder
            await self._clock.sleep(self._settings.retry_seconds)

    async def hold(self) -> None:
        """Renew until cancelled. Raises `errors.Conflict` when somebody else has the lease, and `errors.Unavailable`
        when it could not be renewed for `deadline_seconds`: this operator must end then, whatever it is doing."""
        while True:
            await self._clock.sleep(self._settings.renew_seconds)
            started = self._clock.monotonic()
            while not await self._renew():
                now = self._clock.monotonic()
                started = max(now, started + self._settings.retry_seconds)
                if started >= self._deadline():
                    raise errors.Unavailable(
                        f"{self._key} could not be renewed for {self._settings.deadline_seconds:.0f} seconds; this "
                        "operator ends so that another may lead"
                    )
                await self._clock.sleep(started - now)

    async def release(self) -> None:
        """Let somebody else take over at once. Failing to is no harm: they wait for the lease to run out."""
        try:
            document = await self._read()
            if document is not None and _holder(document) == self._identity:
                document["spec"].update(holderIdentity="", leaseDurationSeconds=1, renewTime=self._now())
                await self._api.replace(self._kind, self._key.namespace, self._key.name, document)
        except errors.ClusterError as error:
            _log.warning("the lease could not be released: %s", error)

    async def _try_to_take(self) -> str | None:
        """None: it is ours now. Otherwise the name of the holder."""
        document = await self._read()
        started = self._clock.monotonic()
        if document is None:
            body = {
                "apiVersion": self._kind.api_version,
                "kind": "Lease",
                "metadata": {"name": self._key.name, "namespace": self._key.namespace},
                "spec": self._spec(0),
            }
            self._latest = _decode(await self._api.create(self._kind, self._key.namespace, body))
            self._renewed = started
            return None
        holder = _holder(document)
        if holder not in ("", self._identity) and not self._ran_out(document):
            return holder
        transitions = int(document["spec"].get("leaseTransitions") or 0)
        document["spec"] = self._spec(transitions + (holder != self._identity))
        await self._replace(document)
        self._renewed = started
        return None

    async def _renew(self) -> bool:
        """Whether it worked. Raises `errors.Conflict` when somebody else has it. A change by anybody else in between
        (a label, say) is no loss."""
        started = self._clock.monotonic()
        limit = min(self._settings.try_seconds, self._deadline() - started)
        try:
            holder = await clock_.within(self._clock, self._renew_once(), limit)
        except (errors.ClusterError, TimeoutError) as error:
            _log.warning("renewing the lease failed, trying again: %s", str(error) or f"no answer in {limit:.0f} s")
            return False
        if holder != self._identity:
            raise errors.Conflict(f"{self._key} was lost: {holder or 'nobody'} holds it now; this operator ends")
        self._renewed = started
        return True

    async def _renew_once(self) -> str:
        """The holder; ourselves: it was renewed. Reads only when the last try failed, because a renewal that took long
        may have worked, and when somebody else has written: if that was another operator, this one ends at once."""
        latest, self._latest = self._latest, None
        if latest is not None:
            with contextlib.suppress(errors.Conflict, errors.NotFound):
                return await self._renew_from(latest)
        return await self._renew_from(await self._read())

    async def _renew_from(self, document: dict[str, Any] | None) -> str:
        holder = _holder(document) if document is not None else "nobody"
        if document is not None and holder == self._identity:
            document["spec"]["renewTime"] = self._now()
            await self._replace(document)
        return holder

    async def _replace(self, document: dict[str, Any]) -> None:
        body = await self._api.replace(self._kind, self._key.namespace, self._key.name, document)
        self._latest = _decode(body)

    async def _read(self) -> dict[str, Any] | None:
        body = await self._api.get(self._key)
        return _decode(body) if body is not None else None

    def _ran_out(self, document: dict[str, Any]) -> bool:
        version, now = document["metadata"]["resourceVersion"], self._clock.monotonic()
        if version != self._seen[0]:
            self._seen = (version, now)
        duration = float(document["spec"].get("leaseDurationSeconds") or self._settings.duration_seconds)
        return now - self._seen[1] >= duration

    def _deadline(self) -> float:
        return self._renewed + self._settings.deadline_seconds

    def _spec(self, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._settings.duration_seconds,
            "acquireTime": self._now(),
            "renewTime": self._now(),
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        return self._clock.now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _holder(document: dict[str, Any]) -> str:
    return str((document.get("spec") or {}).get("holderIdentity") or "")
