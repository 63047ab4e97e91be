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


def overview(name: str | None) -> dict[str, Any]:
    """Of the only service here, if `name` is None. Raises `NotRunning`, `Refused` or `Unavailable`."""
    root = files.root()
    chosen = name or _only_one(_running(root))
    try:
        found = control_client.overview(chosen, root)
    except NotRunning as error:
        if files.ServiceFolder(root, chosen).holder() is not None:
            raise
        raise NotRunning(f"{error}. {_ask_a_cluster(chosen)}") from error
    return {"source": {"kind": SOURCE}, **found}


def _running(root: Path) -> list[str]:
    """Raises `Refused` where the state folder cannot be read."""
    try:
        return files.running(root)
    except OSError as error:
        raise errors.Refused(
            f"{root}: {error.strerror}. `tidemark status` must run as the user of `tidemark up`, and with the same "
            "TIDEMARK_STATE"
        ) from error


def _only_one(running: Sequence[str]) -> str:
    if len(running) == 1:
        return running[0]
    known = f"{len(running)} run here: {', '.join(running)}" if running else "nothing runs here now"
    cluster = "" if running else f". {_ask_a_cluster('')}"
    raise NotRunning(f"which service? {known}. Say `tidemark status NAME`{cluster}")


def _ask_a_cluster(name: str) -> str:
    words = f"kubectl tidemark status {shlex.quote(name)}" if name else "kubectl tidemark status"
    return f"A cluster is asked with `{words}`"
