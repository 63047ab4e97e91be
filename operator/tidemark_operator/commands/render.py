"""`tidemark render FILE`: the Kubernetes objects that the operator would apply."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from tidemark_operator import api, effects, errors, plan

DEFAULT_IMAGE = "tidemark-runtime:latest"


class Output(enum.StrEnum):
    """How the objects are printed."""

    YAML = "yaml"
    JSON = "json"


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of InferenceService manifests.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="Format of the objects.")] = Output.YAML,
    image: Annotated[str, typer.Option(help="Container image of the engine.")] = DEFAULT_IMAGE,
) -> None:
    """Print the Kubernetes objects the operator would apply for FILE; warnings go to standard error."""
    try:
        services = api.load_file(file)
    except (errors.ManifestError, errors.ManifestFileError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    facts = plan.Facts(image=image)
    objects = [item for service in services for item in plan.wanted(service, facts)]
    for service in services:
        for warning in effects.unsupported(service):
            typer.echo(f"warning: {service.name}: {warning}", err=True)
    if output is Output.JSON:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False)
    else:
        text = plan.to_yaml(objects).rstrip("\n")
    typer.echo(text)
