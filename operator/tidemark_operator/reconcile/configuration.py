"""Hot settings on their way into running engines: pushed to each pod, confirmed by the hash that it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemark_operator import names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface
from tidemark_runtime.contract import status as contract

Engines = Mapping[str, contract.EngineStatus | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One configuration, as every pod of the current revision should have it."""

    document: Mapping[str, Any]
    hash: str
    restart_hash: str
    token: str


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the engines run with after the push."""

    engines: Engines
    rejected: Mapping[str, str]
    """Pod -> the engine's words."""


class Configuration:
    """Pushes. Knows which pod refused which configuration, so that it is not asked again at once."""

    def __init__(self, cluster: interface.Cluster, settings: settings_.ReconcileSettings, clock: clock_.Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._refused: dict[str, tuple[str, float, str]] = {}

    async def push(self, pods: Sequence[Mapping[str, Any]], engines: Engines, wanted: Wanted) -> Pushed:
        """To every pod that differs in hot settings only; pods of another revision are replaced, not configured."""
        now_engines, rejected = dict(engines), {}
        for pod in pods:
            name, uid = str(pod["metadata"]["name"]), str(pod["metadata"].get("uid"))
            engine = engines.get(name)
            if engine is None or not _differs_hot(pod, engine, wanted):
                self._refused.pop(uid, None)
                continue
            refusal = self._recent_refusal(uid, wanted.hash)
            if refusal is None:
                answer = await self._cluster.configure_engine(dict(pod), wanted.document, wanted.token)
                if answer is None:
                    continue
                now_engines[name] = _with_hash(engine, answer.hash)
                if answer.accepted:
                    continue
                refusal = answer.message
                self._refused[uid] = (wanted.hash, self._clock.monotonic(), refusal)
            rejected[name] = refusal
        self._forget_gone(pods)
        return Pushed(now_engines, rejected)

    def _recent_refusal(self, uid: str, hash_: str) -> str | None:
        known, when, words = self._refused.get(uid, ("", 0.0, ""))
        recent = self._clock.monotonic() - when < self._settings.push_again_seconds
        return words if known == hash_ and recent else None

    def _forget_gone(self, pods: Sequence[Mapping[str, Any]]) -> None:
        """Refusals are few; those older than their time are dropped whoever they belong to."""
        alive = {str(pod["metadata"].get("uid")) for pod in pods}
        limit = self._clock.monotonic() - self._settings.push_again_seconds
        for uid in [uid for uid, (_, when, _) in self._refused.items() if uid not in alive and when < limit]:
            del self._refused[uid]


def _differs_hot(pod: Mapping[str, Any], engine: contract.EngineStatus, wanted: Wanted) -> bool:
    if engine.config.hash == wanted.hash or engine.state in (
        contract.EngineState.DRAINING,
        contract.EngineState.FAILED,
    ):
        return False
    annotations = pod["metadata"].get("annotations") or {}
    ending = bool(pod["metadata"].get("deletionTimestamp"))
    return not ending and annotations.get(names.RESTART_HASH_ANNOTATION) == wanted.restart_hash


def _with_hash(engine: contract.EngineStatus, hash_: str) -> contract.EngineStatus:
    if not hash_:
        return engine
    return msgspec.structs.replace(engine, config=msgspec.structs.replace(engine.config, hash=hash_))
