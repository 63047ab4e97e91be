"""What the `tidemark eval` commands share: files they write, the bar, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import rich.console
import rich.progress
import rich.table

from tidemark_runtime import errors
from tidemark_runtime.evaluation import tables

_FILE_WIDTH = 160
"""Characters a line where nobody looks: no cell is cut."""
_CONFIG_MAP_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


def one_of(option: str, value: str, known: Sequence[str] | dict[str, Any]) -> str:
    if value not in known:
        raise errors.ConfigError([errors.Problem(option, value, f"one of {', '.join(known)}")])
    return value


def check_file(option: str, file: Path | None, suffix: str) -> None:
    """What is wrong with the name is said before a long run."""
    if file is None:
        return
    if file.suffix != suffix:
        raise errors.ConfigError([errors.Problem(option, str(file), f"a file name that ends in {suffix}")])
    if not file.parent.is_dir():
        raise errors.ConfigError([errors.Problem(option, str(file), "a file in a folder that exists")])


def write(option: str, file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        remedy = f"It says: {error.strerror or error}"
        raise errors.ConfigError([errors.Problem(option, str(file), "a file that can be written", remedy)]) from error


@contextmanager
def progress() -> Iterator[Any]:
    """A bar on standard error where that is a terminal, and nothing else."""
    console = rich.console.Console(stderr=True)
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
        rich.progress.TimeRemainingColumn(),
    )
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("loading", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def check_config_map(name: str | None) -> None:
    """The name of a ConfigMap that is to be written."""
    if name is not None and not _CONFIG_MAP_NAME.fullmatch(name):
        raise errors.ConfigError([errors.Problem("--configmap", name, "a name of small letters, digits and -")])


def console() -> rich.console.Console:
    console = rich.console.Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def print_table(console: rich.console.Console, title: str, table: tables.Table) -> None:
    shown = rich.table.Table(*table.head, title=title, title_justify="left", box=None)
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
