"""One inspection from the command line's options to its document: who is asked, what Prometheus adds, what is kept."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from tidemark_operator import errors, prometheus
from tidemark_operator.commands import inspect as inspect_options
from tidemark_operator.commands import (
    inspect_document,
    inspect_engines,
    inspect_history,
    profile_reader,
    status_local,
)
from tidemark_operator.inspection import facts, registry, run
from tidemark_operator.inspection.text import Text
from tidemark_operator.monitoring.rules import promql
from tidemark_operator.monitoring.rules.model import Language

_DISTRIBUTION = "tidemark-inference"
_NO_CLUSTER = Text("no cluster is asked, so none looks after it", "未询问集群，没有 operator")


def inspect(options: argparse.Namespace, now: datetime.datetime) -> dict[str, Any]:
    """The document. Raises `errors.OperatorError` where nothing can be looked at."""
    source = _prometheus(options)
    try:
        if inspect_options.asks_cluster(options):
            from tidemark_operator.commands import inspect_site_cluster  # here, because it takes a second to import

            return inspect_site_cluster.inspect(options, now, source)
        services, asked = _addresses(options) if options.url else _local(options)
        found = facts.Facts(now=now, services=services, why_no_operators=_NO_CLUSTER)
        return document(with_history(found, options, source), asked, options)
    finally:
        if source is not None:
            source.close()


def _prometheus(options: argparse.Namespace) -> prometheus.Prometheus | None:
    """Raises `errors.PrometheusUnreachable` for what is no address, and for files that cannot be read."""
    if not options.prometheus:
        return None
    return prometheus.Prometheus(
        options.prometheus, options.prometheus_token_file, options.ca_file, timeout=inspect_history.TIMEOUT_SECONDS
    )


def _addresses(options: argparse.Namespace) -> tuple[list[facts.Service], list[str]]:
    """Raises `errors.Unavailable` where none of them answers: then nothing was inspected."""
    once = {profile_reader.shown(url): url for url in options.url}
    services = [inspect_engines.of_url(url, options.ca_file) for url in once.values()]
    engines = [engine for service in services for engine in service.engines]
    if all(engine.status is None for engine in engines):
        raise errors.Unavailable("\n".join(engine.why_not for engine in engines))
    return services, list(once)


def _local(options: argparse.Namespace) -> tuple[list[facts.Service], list[Mapping[str, Any]]]:
    try:
        overview = status_local.overview(options.name, "inspect")
    except status_local.NotRunning as error:
        raise errors.NotFound(f"{error}, an engine by its address with `tidemark inspect --url URL`") from error
    return [inspect_engines.of_local(overview, options.ca_file)], [overview["source"]]


def with_history(found: facts.Facts, options: argparse.Namespace, source: prometheus.Prometheus | None) -> facts.Facts:
    if source is None:
        return found
    scope = promql.Scope(
        tuple((key, value) for key, _, value in (text.partition("=") for text in options.prometheus_match))
    )
    services = [_labelled(service, options, source, scope, found.now) for service in found.services]
    known = {service.labels for service in services if service.labels is not None}
    history = inspect_history.read(source, registry.queries(), scope, found.now, known)
    return dataclasses.replace(found, services=services, history=history)


def _labelled(
    service: facts.Service,
    options: argparse.Namespace,
    source: prometheus.Prometheus,
    scope: promql.Scope,
    now: datetime.datetime,
) -> facts.Service:
    """With the labels of its series: of an address they are looked up, or given."""
    if service.origin is facts.Origin.CLUSTER:
        return service
    if options.prometheus_service:
        namespace, _, name = options.prometheus_service.partition("/")
        return dataclasses.replace(service, labels=(namespace, name))
    labels = inspect_history.labels_of(source, service.url, scope, now) if service.url else None
    return dataclasses.replace(service, labels=labels or service.labels)


def document(
    found: facts.Facts, asked: Sequence[str | Mapping[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    report = run.inspect(found)
    return inspect_document.build(
        report,
        {"asked": list(asked)},
        Language(options.language),
        options.runbook_base_url,
        metadata.version(_DISTRIBUTION),
    )
