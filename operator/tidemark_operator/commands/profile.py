"""`tidemark profile URL`: what a running engine measured beside its plan, what bounds it, and what would buy most."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import rich.console
import typer

from tidemark_operator.commands import outputs, profile_document, profile_reader, profile_text


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="Of one engine, such as http://127.0.0.1:8000.")],
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="N", min=0.0, max=3600.0, help="Look for so long; 0: since the engine began."
        ),
    ] = 0.0,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust, for https.")
    ] = None,
    output: outputs.OutputOption = outputs.Output.TEXT,
) -> None:
    """Show measured memory beside the plan, the bottleneck, and which change would buy most."""
    engine = profile_reader.Engine(url, ca_file)
    try:
        look = engine.look()
        samples, period = look.samples, look.status.uptime_seconds
        if seconds:
            time.sleep(seconds)
            before, look = look, engine.look()
            samples = look.samples.since(before.samples)
            period = look.status.uptime_seconds - before.status.uptime_seconds
    finally:
        engine.close()
    document = profile_document.build(look, samples, period)
    if output is outputs.Output.JSON:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console = rich.console.Console(highlight=False, markup=False)
    for part in profile_text.screen(document):
        console.print(part)
