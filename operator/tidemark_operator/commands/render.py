"""`tidemark render FILE`: the Kubernetes objects that the operator would apply; or `--monitoring`, the rules."""

from __future__ import annotations

import base64
import enum
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark_operator import api, effects, errors, plan
from tidemark_operator.commands import plan_model, render_monitoring, up_inputs

DEFAULT_IMAGE = "tidemark-runtime:latest"
TOKEN_PLACEHOLDER = "# The operator makes the token. Apply the InferenceService, not these objects."
"""A comment in a file of tokens: should somebody apply it after all, it opens nothing."""


class Output(enum.StrEnum):
    """How the objects are printed."""

    YAML = "yaml"
    JSON = "json"


def command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A file of InferenceService manifests.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format of the objects.")] = Output.YAML,
    image: Annotated[str, typer.Option(help="Container image of the engine.")] = DEFAULT_IMAGE,
    configmap: Annotated[
        list[str] | None,
        typer.Option(
            "--configmap",
            metavar="NAME=FILE",
            help="The precision map that kvCache.precision.mapRef names: it is checked, and counted.",
        ),
    ] = None,
    monitoring: Annotated[
        bool, typer.Option("--monitoring", help="Instead: the rules for a plain Prometheus.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --monitoring: a folder for rules, examples, runbooks, dashboards.")
    ] = None,
    runbook_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="With --monitoring: where alerts find their runbooks.")
    ] = None,
    operator: Annotated[
        bool | None, typer.Option(help="With --monitoring: whether there is an operator to watch; there is by default.")
    ] = None,
) -> None:
    """Print the Kubernetes objects the operator would apply for FILE; warnings go to standard error."""
    if monitoring:
        _refuse("FILE", file, "nothing: --monitoring is about all services")
        _refuse("--configmap", configmap, "nothing with --monitoring")
        render_monitoring.run(out, runbook_base_url, with_operator=operator is not False)
        return
    _refuse("--out", out, "nothing without --monitoring")
    _refuse("--runbook-base-url", runbook_base_url, "nothing without --monitoring")
    _refuse("--operator", operator, "nothing without --monitoring")
    if file is None:
        raise errors.ManifestFileError(
            "FILE: got nothing, expected a file of InferenceService manifests; or --monitoring for the rules"
        )
    services = api.load_file(file)
    maps = up_inputs.maps(services, configmap or ())
    facts = plan.Facts(image=image, admin_token=TOKEN_PLACEHOLDER)
    objects = [_readable(item) for service in services for item in _objects(service, facts)]
    for service in services:
        for warning in effects.warnings(service):
            typer.echo(f"warning: {service.name}: {warning}", err=True)
        fit = plan.fit(service, {}, maps.get(up_inputs.map_name(service)))
        if fit.reason:  # as the other mistakes in a map that is given
            raise errors.ManifestFileError(f"{service.name}: {fit.message}")
        if fit.refused:
            typer.echo(f"warning: {service.name}: CapacityFit would be False: {fit.message}", err=True)
        cut = plan_model.cut_groups(service, plan_model.environment())
        if cut:
            typer.echo(f"warning: {service.name}: the engine refuses to start: {cut}", err=True)
    if output is Output.JSON:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=2, ensure_ascii=False)
    else:
        text = plan.to_yaml(objects).rstrip("\n")
    typer.echo(text)


def _objects(service: api.InferenceService, facts: plan.Facts) -> list[dict[str, Any]]:
    """As on a cluster that has every kind."""
    return [*plan.wanted(service, facts), *plan.monitoring(service, facts)]


def _refuse(option: str, value: object, expected: str) -> None:
    if value is not None:
        raise errors.ManifestFileError(f"{option}: got {str(value)!r}, expected {expected}")


def _readable(manifest: dict[str, Any]) -> dict[str, Any]:
    """A Secret with its texts instead of their base64."""
    if manifest["kind"] != "Secret":
        return manifest
    texts = {key: base64.b64decode(value).decode() for key, value in manifest["data"].items()}
    return {**{key: value for key, value in manifest.items() if key != "data"}, "stringData": texts}
