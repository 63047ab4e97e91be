"""The kinds of the Prometheus operator and of Grafana's, as their own modules define them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bed import build, cluster, versions

NAMES = (
    "podmonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
    "grafanadashboards.grafana.integreatly.org",
)


def _files() -> list[Path]:
    return [file for found in versions.DEFINITIONS for file in build.definition_files(found)]


def install(where: cluster.Cluster) -> None:
    """Until the API server takes objects of them."""
    for file in _files():
        where.kubectl("apply", "--server-side", "-f", str(file))
    where.until_known(*NAMES)


def remove(where: cluster.Cluster) -> None:
    """With every object of theirs."""
    where.kubectl("delete", "--ignore-not-found", *(f"-f={file}" for file in _files()))


@contextlib.contextmanager
def absent(where: cluster.Cluster) -> Iterator[None]:
    """Not there at first, whatever a test before did, and not there afterwards."""
    remove(where)
    try:
        yield
    finally:
        remove(where)
