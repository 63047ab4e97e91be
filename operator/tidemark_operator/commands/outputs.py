"""The option `--output` of several verbs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, or json for scripts")]
