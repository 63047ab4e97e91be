"""The draft model that a plan counts: what `--draft-model` names; the files, where they lie on this machine; the names
that are known. What could not be read is said, and not guessed."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path

from tidemark_operator import api, errors
from tidemark_operator.commands import plan_model
from tidemark_operator.plan import draft, shapes
from tidemark_runtime.contract import settings
from tidemark_runtime.planning import capacity, model_files

_OPTION = "--draft-model"


def find(service: api.InferenceService, asked: str | None, environment: Mapping[str, str]) -> draft.Draft:
    """`asked`: the option, a path or a known name. Raises `ManifestError` and `ConfigError` for a wrong one."""
    name = service.spec.speculative.draft_model
    if name is None:
        if asked is not None:
            raise _wrong(asked, "nothing: spec.speculative has no draftModel")
        return draft.Draft()
    if asked is not None:
        return draft.Draft(_asked(service, asked))
    path, place = _place(service, name, environment)
    if path is not None and path.exists():
        try:
            return draft.Draft(_read(service, path))
        except settings.ConfigError as error:
            return draft.Draft(unread=f"cannot be read: {error.problems[0]}")
    known = draft.by_name(service)
    return (
        known
        if known.shape is not None
        else draft.Draft(unread=f"is not on this machine ({place}); {_OPTION} names it")
    )


def _asked(service: api.InferenceService, asked: str) -> capacity.ModelShape:
    known = shapes.named(asked, service)
    if known is not None:
        return known
    path = Path(asked).expanduser()
    if not path.exists():
        raise _wrong(asked, f"a path on this machine, or one of {', '.join(capacity.KNOWN_SHAPES)}")
    return _read(service, path)


def _read(service: api.InferenceService, path: Path) -> capacity.ModelShape:
    """Its weights stay as the files hold them, whatever is made of the model's."""
    return plan_model.read_file(service, path, model_files.AUTO)[1]


def _place(service: api.InferenceService, name: str, environment: Mapping[str, str]) -> tuple[Path | None, str]:
    """Where it should be, and the same in words; no path where a plan cannot look."""
    source = service.spec.model.source
    if source.package is not None:
        path = plan_model.store(environment) / f"{name}.gguf"
        return path, f"no {path}"
    if source.host_path is not None:
        path = Path(posixpath.dirname(source.host_path.path.rstrip("/"))) / name
        return path, f"no {path}"
    return None, "it is in a volume of the cluster, or in a repository"


def _wrong(seen: str, expected: str) -> errors.ManifestError:
    return errors.ManifestError([errors.Problem(_OPTION, seen, expected)])
