"""`tidemark render FILE`: the Kubernetes objects that the operator would apply."""

from __future__ import annotations

import base64
import enum
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark_operator import api, effects, plan

DEFAULT_IMAGE = "tidemark-runtime:latest"
TOKEN_PLACEHOLDER = "# The operator makes the token. Apply the InferenceService, not these objects."
"""A comment in a file of tokens: should somebody apply it after all, it opens nothing."""


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
    services = api.load_file(file)
    facts = plan.Facts(image=image, admin_token=TOKEN_PLACEHOLDER)
    objects = [_readable(item) for service in services for item in plan.wanted(service, facts)]
    for service in services:
        for warning in effects.warnings(service):
            typer.echo(f"warning: {service.name}: {warning}", err=True)
    if output is Output.JSON:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False)
    else:
        text = plan.to_yaml(objects).rstrip("\n")
    typer.echo(text)


def _readable(manifest: dict[str, Any]) -> dict[str, Any]:
    """A Secret with its texts instead of their base64."""
    if manifest["kind"] != "Secret":
        return manifest
    texts = {key: base64.b64decode(value).decode() for key, value in manifest["data"].items()}
    return {**{key: value for key, value in manifest.items() if key != "data"}, "stringData": texts}
