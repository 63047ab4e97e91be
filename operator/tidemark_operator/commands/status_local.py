"""What `tidemark status` shows of this machine: the `tidemark up` of a name, asked through its state folder."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidemark_operator import errors
from tidemark_operator.cluster.local import control_client, files

NotRunning = control_client.NotRunning
SOURCE = "local"
_CLUSTER = {"status": "kubectl {}", "inspect": "{} --cluster"}
"""Verb -> how the same command line asks a cluster."""


def overview(name: str | None, verb: str = "status") -> dict[str, Any]:
    """Of the only service here, if `name` is None. `verb`: what asks, for messages. Raises `NotRunning`, `Refused` or
    `Unavailable`."""
    root = files.root()
    chosen = name or _only_one(_running(root, verb), verb)
    try:
        found = control_client.overview(chosen, root)
    except NotRunning as error:
        if files.ServiceFolder(root, chosen).holder() is not None:
            raise
        raise NotRunning(f"{error}. {_ask_a_cluster(chosen, verb)}") from error
    return {"source": {"kind": SOURCE}, **found}


def _running(root: Path, verb: str) -> list[str]:
    """Raises `Refused` where the state folder cannot be read."""
    try:
        return files.running(root)
    except OSError as error:
        raise errors.Refused(
            f"{root}: {error.strerror}. `tidemark {verb}` must run as the user of `tidemark up`, and with the same "
            "TIDEMARK_STATE"
        ) from error


def _only_one(running: Sequence[str], verb: str) -> str:
    if len(running) == 1:
        return running[0]
    if not running:
        raise NotRunning(f"nothing runs here now: `tidemark up` starts a service. {_ask_a_cluster('', verb)}")
    raise NotRunning(
        f"which service? {len(running)} run here: {', '.join(running)}. Say `tidemark {verb} NAME`, such as `tidemark "
        f"{verb} {running[0]}`"
    )


def _ask_a_cluster(name: str, verb: str) -> str:
    named = f"tidemark {verb} {shlex.quote(name)}" if name else f"tidemark {verb}"
    return f"A cluster is asked with `{_CLUSTER[verb].format(named)}`"
