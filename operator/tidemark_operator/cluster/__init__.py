"""The only package that talks to a cluster: the interface here, the local backend in `local`."""

from __future__ import annotations

from tidemark_operator.cluster.interface import Cluster, Key, Object, WatchEvent

__all__ = ["Cluster", "Key", "Object", "WatchEvent"]
