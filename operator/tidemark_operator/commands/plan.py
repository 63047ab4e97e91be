"""`tidemark plan FILE`: what fits, before anything starts, by the arithmetic of `CapacityFit` and of the engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import rich.console
import typer

from tidemark_operator import api, errors
from tidemark_operator.api import quantities
from tidemark_operator.commands import outputs, plan_document, plan_draft, plan_model, plan_text, up_inputs
from tidemark_operator.plan import capacity as plan_capacity
from tidemark_runtime.planning import concurrency, known_models, weight_bytes

EXIT_DOES_NOT_FIT = 1

_MODEL_HELP = (
    "Instead of the manifest's: a known model, or a path of a .gguf file, a Hugging Face folder or a config.json. "
    f"Known: {', '.join(known_models.MODELS)}."
)
_MAP_HELP = "The precision map that kvCache.precision.mapRef names; without it the sum is without the map."
_DRAFT_HELP = "Where the draft model that speculative.draftModel names is, if not where the manifest says: as --model."
_WEIGHTS_HELP = f"Format of a known model's weights: {', '.join(weight_bytes.FORMATS)}."


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of InferenceService manifests.")],
    length: Annotated[
        list[str] | None,
        typer.Option("--length", metavar="PROMPT+OUTPUT", help="Tokens of a request, such as 2048+512; repeatable."),
    ] = None,
    users: Annotated[
        int | None, typer.Option("--users", metavar="N", min=1, help="Requests of each length that must run at once.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="SIZE", help="Memory of one device (with cpu: of the pod), such as 80Gi."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME|PATH", help=_MODEL_HELP)] = None,
    weights: Annotated[str | None, typer.Option("--weights", metavar="FORMAT", help=_WEIGHTS_HELP)] = None,
    group_size: Annotated[
        int, typer.Option("--group-size", metavar="N", help="Inputs that share a scale, with --weights awq or gptq.")
    ] = plan_model.GROUP_SIZE,
    draft_model: Annotated[str | None, typer.Option("--draft-model", metavar="NAME|PATH", help=_DRAFT_HELP)] = None,
    configmap: Annotated[list[str] | None, typer.Option("--configmap", metavar="NAME=FILE", help=_MAP_HELP)] = None,
    output: outputs.OutputOption = outputs.Output.TEXT,
) -> None:
    """Show what takes how much memory, how many requests fit, and what would make it fit.

    Exit code 0: it fits, 1: it does not, 2: there is no sum, because the file, an option or a map is wrong.
    """
    lengths = [concurrency.parse_length(text, "--length") for text in length or []]
    asked = plan_model.Asked(model=model, weights=weights, group_size=group_size)
    services = api.load_file(file)
    maps = up_inputs.maps(services, configmap or ())
    documents = [
        plan_document.build(
            service,
            plan_model.find(service, asked, plan_model.environment()),
            _limit(service, device),
            lengths,
            users,
            maps.get(up_inputs.map_name(service)),
            plan_draft.find(service, draft_model, plan_model.environment()),
        )
        for service in services
    ]
    if output is outputs.Output.JSON:
        typer.echo(json.dumps(documents[0] if len(documents) == 1 else documents, indent=2, ensure_ascii=False))
    else:
        console = rich.console.Console(highlight=False, markup=False)
        for document in documents:
            for part in plan_text.screen(document):
                console.print(part)
    if not all(document["fits"] for document in documents):
        raise typer.Exit(EXIT_DOES_NOT_FIT)


def _limit(service: api.InferenceService, device: str | None) -> int:
    """Raises `ManifestError` where neither the option nor the manifest says it."""
    if device is not None:
        try:
            size = quantities.to_bytes(device)
        except ValueError as error:
            raise errors.ManifestError(
                [errors.Problem("--device", device, "a size such as 80Gi", str(error))]
            ) from error
        if not size:
            raise errors.ManifestError([errors.Problem("--device", device, "a size such as 80Gi, above 0")])
        return size
    found = plan_capacity.device_bytes(service.spec.hardware)
    if found is None:
        problem = errors.Problem(
            "spec.hardware.memory",
            errors.Seen("nothing"),
            "the memory to plan with",
            "Set it, or give --device SIZE, such as --device 80Gi",
        )
        raise errors.ManifestError([problem], service.name)
    return found
