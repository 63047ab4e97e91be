"""Reads the ConfigMap with a service's precision map. It is not ours: its changes come as no events, so it is asked for
again once in a while, as long as the service is looked at anyway."""

from __future__ import annotations

from tidemark_operator import api, names, plan
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import clock as clock_
from tidemark_operator.cluster import interface


class Maps:
    """Knows what it last read for each service, and when."""

    def __init__(self, cluster: interface.Cluster, settings: settings_.ReconcileSettings, clock: clock_.Clock) -> None:
        self._cluster = cluster
        self._settings = settings
        self._clock = clock
        self._read: dict[interface.Key, tuple[interface.Key, interface.Object | None, float]] = {}

    async def of(self, service: api.InferenceService) -> plan.Map | None:
        """None: the service names no ConfigMap. Raises `errors.ClusterError`."""
        own, reference = _key(service), service.spec.kv_cache.precision.map_ref
        if reference is None:
            self.forget(own)
            return None
        wanted, now = interface.Key("ConfigMap", service.namespace, reference.name), self._clock.monotonic()
        key, document, when = self._read.get(own, (None, None, 0.0))
        if key != wanted or now - when >= self._settings.read_map_seconds:
            document = await self._cluster.get(wanted)
            self._read[own] = (wanted, document, now)
        return plan.read_map(service, document)

    def forget(self, own: interface.Key) -> None:
        """The service is gone, or names no map any more."""
        self._read.pop(own, None)


def _key(service: api.InferenceService) -> interface.Key:
    return interface.Key(names.KIND, service.namespace, service.name)
