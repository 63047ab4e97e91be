"""What `tidemark status` shows of a cluster: the way to it, and one look at a service or at all of them."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shlex
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from kubernetes.aio import config

from tidemark_operator import errors, names
from tidemark_operator import settings as settings_
from tidemark_operator.cluster import interface
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.commands import status_overview, status_reader

Value = TypeVar("Value")

SOURCE = "cluster"
IN_POD = "(the service account of this pod)"
_DEFAULT_NAMESPACE = "default"
_SETTINGS = settings_.KubernetesSettings()


class Target:
    """One cluster, one service of it or the services of a namespace. Blocking; every method raises `ClusterError`."""

    def __init__(
        self,
        runner: asyncio.Runner,
        reader: status_reader.Reader,
        options: argparse.Namespace,
        source: Mapping[str, Any],
    ) -> None:
        self._runner = runner
        self._reader = reader
        self._source = dict(source)
        self._name: str = options.name or ""
        self._namespace: str = source["namespace"]
        self._kubectl = kubectl(options)

    def overview(self) -> dict[str, Any]:
        """The same document that a `tidemark up` gives, and more."""
        key = interface.Key(names.KIND, self._namespace, self._name)
        service, around = self._runner.run(self._look(key))
        return {"source": self._source, **status_overview.of(service, around, self._kubectl)}

    def overviews(self) -> dict[str, Any]:
        """All services of the namespace, or of the cluster."""
        found = self._runner.run(self._reader.services(self._namespace))
        return {"source": self._source, "services": [status_overview.brief(service) for service in found]}

    async def _look(self, key: interface.Key) -> tuple[interface.Object, status_reader.Around]:
        service = await self._reader.service(key)
        return service, await self._reader.around(service)


@contextmanager
def opened(options: argparse.Namespace) -> Iterator[Target]:
    """The cluster that the options mean. Raises `errors.ClusterError` when there is no way to it."""
    logging.getLogger("kubernetes").addHandler(logging.NullHandler())  # what it warns of, our errors say
    environment = dict(os.environ)
    if options.kubeconfig:
        environment["KUBECONFIG"] = options.kubeconfig
    with asyncio.Runner() as runner:
        connection, context = runner.run(connect(environment, options.context))
        try:
            namespace = options.namespace or connection.namespace or _DEFAULT_NAMESPACE
            source = {
                "kind": SOURCE,
                "context": context,
                "server": connection.server,
                "namespace": "" if options.all_namespaces else namespace,
            }
            reader = status_reader.Reader(connection, api_.Api(connection, _SETTINGS))
            yield Target(runner, reader, options, source)
        finally:
            runner.run(closed(connection.__aexit__(None, None, None)))


async def closed(closing: Coroutine[Any, Any, Value]) -> Value:
    """Connections end in the turn of the loop after they were closed."""
    result = await closing
    await asyncio.sleep(0)
    return result


async def connect(environment: Mapping[str, str], context: str | None) -> tuple[connection_.Connection, str]:
    """An open connection, and the name of the context it is to. Raises `errors.ClusterError`."""
    source = connection_.Source(environment, context)
    name = IN_POD if source.in_pod else _context(environment, context)
    connection = connection_.Connection(source, _SETTINGS)
    return await connection.__aenter__(), name


def _context(environment: Mapping[str, str], wanted: str | None) -> str:
    """The context's name. Raises `errors.Refused` when there is no such context; what else is wrong with the files is
    told by the connection."""
    paths = environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(path).expanduser().is_file() for path in paths.split(":") if path):
        return wanted or ""
    loaders: Any = config  # without types
    try:
        contexts, current = loaders.list_kube_config_contexts(config_file=paths)
    except (config.ConfigException, yaml.YAMLError, OSError, LookupError, TypeError, ValueError):
        return wanted or ""
    known = sorted(str(item["name"]) for item in contexts)
    if wanted is not None and wanted not in known:
        raise errors.Refused(f"--context: got {wanted!r}, expected one of the kubeconfig {paths}: {', '.join(known)}")
    return wanted or str(current["name"])


def kubectl(options: argparse.Namespace) -> str:
    """How kubectl is called for the same cluster."""
    words = ["kubectl"]
    if options.kubeconfig:
        words += ["--kubeconfig", options.kubeconfig]
    if options.context:
        words += ["--context", options.context]
    return shlex.join(words)
