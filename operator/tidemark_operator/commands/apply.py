"""`tidemark apply FILE`: hand a manifest to the `tidemark up` that runs the service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import rich.console
import typer

from tidemark_operator import api
from tidemark_operator.cluster.local import control_client, files
from tidemark_operator.commands import documents, outputs, up_view

_TIMEOUT_SECONDS = 3600.0
"""A changed model may have to be fetched first."""


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Manifest with one or more InferenceServices")],
    output: outputs.OutputOption = outputs.Output.TEXT,
) -> None:
    """Hand a changed manifest to the `tidemark up` that runs it."""
    console = rich.console.Console(soft_wrap=True, highlight=False, markup=False)
    answers = {}
    for service in api.load_file(file):
        document = documents.document_of(service)
        answer = control_client.submit(service.name, files.root(), document, _TIMEOUT_SECONDS)
        answers[service.name] = answer
        if output is outputs.Output.TEXT:
            console.print(f"{service.name}: {answer['result']}")
            for change in answer["changes"]:
                console.print(f"  {up_view.change_line(change)}")
            for warning in answer["warnings"]:
                console.print(f"  warning: {warning}", style="yellow")
    if output is outputs.Output.JSON:
        console.print(json.dumps(answers, indent=2))
