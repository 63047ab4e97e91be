"""One inspection of a cluster: the way to it, what is read there, and where the result is kept."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import logging
import os
import ssl
from collections.abc import Sequence
from typing import Any

import httpx

from tidemark_operator import prometheus
from tidemark_operator import settings as settings_
from tidemark_operator.cluster.kubernetes import api as api_
from tidemark_operator.cluster.kubernetes import connection as connection_
from tidemark_operator.commands import inspect_cluster, inspect_record, inspect_site, status_cluster
from tidemark_operator.inspection import facts

_DEFAULT_NAMESPACE = "default"


def inspect(
    options: argparse.Namespace, now: datetime.datetime, source: prometheus.Prometheus | None
) -> dict[str, Any]:
    """The document. Raises `errors.OperatorError` where nothing can be looked at, or the result cannot be kept."""
    target = inspect_record.parse(options.record) if options.record else None
    return asyncio.run(_cluster(options, now, source, target))


async def _cluster(
    options: argparse.Namespace,
    now: datetime.datetime,
    source: prometheus.Prometheus | None,
    target: tuple[str, str] | None,
) -> dict[str, Any]:
    logging.getLogger("kubernetes").addHandler(logging.NullHandler())  # what it warns of, our errors say
    environment = dict(os.environ)
    if options.kubeconfig:
        environment["KUBECONFIG"] = options.kubeconfig
    connection, context = await status_cluster.connect(environment, options.context)
    try:
        namespaces: Sequence[str] = options.namespace or [connection.namespace or _DEFAULT_NAMESPACE]
        if options.all_namespaces:
            namespaces = [""]
        read = await _read(options, connection, namespaces, in_pod=context == status_cluster.IN_POD)
        found = facts.Facts(
            now=now,
            services=read.services,
            everything=options.all_namespaces,
            operators=read.operators,
            why_no_operators=read.why_no_operators,
        )
        found = await asyncio.to_thread(inspect_site.with_history, found, options, source)
        asked = {
            "kind": status_cluster.SOURCE,
            "context": context,
            "server": connection.server,
            "namespace": ", ".join(namespaces),
        }
        document = inspect_site.document(found, [asked], options)
        if target is not None:
            await inspect_record.write(connection, *target, inspect_record.entries(document))
        return document
    finally:
        await status_cluster.closed(connection.__aexit__(None, None, None))


async def _read(
    options: argparse.Namespace, connection: connection_.Connection, namespaces: Sequence[str], *, in_pod: bool
) -> inspect_cluster.Found:
    api = api_.Api(connection, settings_.KubernetesSettings())
    kubectl = status_cluster.kubectl(options)
    if not in_pod:
        reader = inspect_cluster.Reader(connection, api, kubectl, None)
        return await reader.read(namespaces, options.name or "", options.operator_namespace)
    async with httpx.AsyncClient(verify=_unverified(), trust_env=False, follow_redirects=False) as client:
        reader = inspect_cluster.Reader(connection, api, kubectl, client)
        return await reader.read(namespaces, options.name or "", options.operator_namespace)


def _unverified() -> ssl.SSLContext:
    """For pods, which are addressed by an IP that no certificate names. Nothing secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
