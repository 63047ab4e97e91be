"""From what a user wrote (`model.gguf`, a folder, a name) to where the model lies. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidemark_runtime import errors
from tidemark_runtime.model import known

Kind = Literal["gguf", "huggingface"]

SUPPORTED = "a .gguf file, a Hugging Face folder (config.json beside *.safetensors), or a known name"
DRAFT_KEY = "speculative.draftModel"
_OTHER_FORMATS = frozenset({".bin", ".pth", ".pt", ".ckpt", ".onnx", ".h5", ".ggml", ".tflite", ".npz", ".pkl", ".zip"})


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that was found."""

    kind: Kind
    path: Path
    """The `.gguf` file, or the folder with `config.json`."""
    name: str
    """What it is called when nobody says otherwise: the known name, or the file's or folder's own."""


def resolve_draft(source: str, store: Path) -> ModelSource:
    """`resolve` for the draft model of speculative decoding: the message of what it raises begins with its key."""
    seen, remedy = f"{DRAFT_KEY}: got {source!r}, expected {SUPPORTED}", "or choose the method ngram"
    if not source.strip():
        raise errors.ModelNotFound(f"{seen}. Name one, {remedy}")
    try:
        return resolve(source, store)
    except errors.ModelNotFound as error:
        raise errors.ModelNotFound(f"{seen}; {error}; {remedy}") from error
    except errors.UnsupportedModel as error:
        raise errors.UnsupportedModel(f"{seen}; {error}; {remedy}") from error


def resolve(source: str, store: Path) -> ModelSource:
    """Find the model that `source` means: a path that exists wins over a name in the store.

    Raises ModelNotFound, or UnsupportedModel for a file or folder of a kind we do not read.
    """
    if not source.strip():
        raise errors.ModelNotFound(f"model.source: got {source!r}, expected {SUPPORTED}")
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder(path, path.resolve().name)
    if path.is_file():
        return _file(path, path.stem)
    if "/" not in source and not source.startswith((".", "~")):
        stored = _in_store(source, store)
        if stored is not None:
            return stored
    raise errors.ModelNotFound(_not_found(source, path, store))


def names_in(store: Path) -> tuple[str, ...]:
    """Names that `resolve` finds in the store now, sorted."""
    if not store.is_dir():
        return ()
    found = {entry.stem for entry in store.glob("*.gguf") if entry.is_file()}
    found |= {entry.parent.name for entry in store.glob("*/config.json")}
    return tuple(sorted(found))


def _in_store(name: str, store: Path) -> ModelSource | None:
    file = store / f"{name}.gguf"
    if file.is_file():
        return _file(file, name)
    folder = store / name
    return _folder(folder, name) if folder.is_dir() else None


def _file(path: Path, name: str) -> ModelSource:
    suffix = path.suffix.lower()
    if suffix == ".gguf":
        return ModelSource("gguf", path, name)
    if suffix == ".safetensors":
        raise errors.UnsupportedModel(
            f"{path}: a safetensors file alone does not say what model it is. Name its folder, with config.json"
        )
    kind = f"files of the kind {suffix} are" if suffix in _OTHER_FORMATS else "this kind of file is"
    raise errors.UnsupportedModel(f"{path}: {kind} not supported, expected {SUPPORTED}")


def _folder(path: Path, name: str) -> ModelSource:
    if (path / "config.json").is_file():
        return ModelSource("huggingface", path, name)
    ggufs = sorted(entry.name for entry in path.glob("*.gguf"))
    hint = f" It holds {_listed(ggufs)}: name the file itself" if ggufs else ""
    raise errors.UnsupportedModel(f"{path}: the folder has no config.json, expected {SUPPORTED}.{hint}")


def _not_found(source: str, path: Path, store: Path) -> str:
    message = (
        f"no model {source!r}: there is no file or folder {path.absolute()}, and no such name in the store {store}"
    )
    names = sorted({*known.KNOWN_MODELS, *names_in(store)})
    if source in known.KNOWN_MODELS:
        return f"{message}. Fetch it: tidemark models fetch {source}"
    return f"{message}. Known names: {_listed(names)}; to fetch one: tidemark models fetch NAME"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
