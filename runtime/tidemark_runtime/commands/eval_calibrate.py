"""`tidemark eval calibrate MODEL --text FILE`: one scale for all tokens of a head, from a site's own text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemark_runtime import errors, model_store
from tidemark_runtime.commands import eval_terminal
from tidemark_runtime.evaluation import configurations, items, results, tables
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import fixed_scales

if TYPE_CHECKING:
    from tidemark_runtime.evaluation import calibration

_WORST = 5
"""Heads that are shown: those of which most is clipped."""
FORMAT = "tidemark.eval.calibration/1"


def calibrate(
    model: Annotated[str, typer.Argument(help=f"{sources.SUPPORTED} (`tidemark models list`)")],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="Your own text, of what your users send")],
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", help=f"One of {', '.join(fixed_scales.fixable())}")
    ] = "int8",
    scales: Annotated[Path | None, typer.Option("--scales", metavar="FILE.yaml", help="Write the scales")] = None,
    config_map: Annotated[
        str | None, typer.Option("--configmap", metavar="NAME", help="Write them as this ConfigMap, into NAME.yaml")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=32, help="Of the text, at most")] = 8192,
    window: Annotated[int, typer.Option("--window", min=32, help="Tokens read in one go")] = 512,
    percentile: Annotated[
        float,
        typer.Option(min=50, max=100, help="Of the tokens' largest numbers in a head: what is kept without clipping"),
    ] = 100.0,
    headroom: Annotated[float, typer.Option(min=1, max=16, help="Times that")] = 1.0,
    output: Annotated[
        eval_terminal.Output, typer.Option("--output", "-o", help="text, or json for scripts")
    ] = eval_terminal.Output.TEXT,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="(default: all usable cores)")] = None,
) -> None:
    """Find one scale for all tokens of a head on one half of a text, and count on the other half what it clips."""
    eval_terminal.one_of("--kv-cache-dtype", kv_cache_dtype, fixed_scales.fixable())
    eval_terminal.check_file("--scales", scales, ".yaml")
    eval_terminal.check_config_map(config_map)
    if scales is None and config_map is None:
        expected = "a file to write, here or by --configmap"
        raise errors.ConfigError([errors.Problem("--scales", None, expected)])
    source = sources.resolve(model, model_store.default_store(os.environ))
    words = items.read_text(text)
    from tidemark_runtime.evaluation import calibration, subject  # here: torch takes seconds, wrong options none

    wish = calibration.Wish(kv_cache_dtype, percentile, headroom)
    with eval_terminal.progress() as show:
        loaded = subject.load(source, threads, lambda phase, share: show(phase, round(share * 100), 100))
        spec = loaded.model.spec
        pieces = items.windows(words, loaded.encoder, tokens, min(window, spec.max_context_tokens))
        fit, held = calibration.halves(words, pieces)
        found = calibration.find(loaded.model, fit, held, wish, show)
    weights = identity.of(source)
    file = calibration.written(found, loaded.name, weights, kv_cache_dtype, spec.kv_shape)
    content = configurations.scales_text(file)
    if scales is not None:
        eval_terminal.write("--scales", scales, content)
    if config_map is not None:
        manifest = configurations.config_map_text(config_map, content, fixed_scales.CONFIG_MAP_KEY)
        eval_terminal.write("--configmap", Path(f"{config_map}.yaml"), manifest)
    if output is eval_terminal.Output.JSON:
        typer.echo(results.to_json(_mapping(found, file)))
    else:
        _print(found, file, [str(path) for path in (scales, config_map and f"{config_map}.yaml") if path])


def _mapping(found: calibration.Found, file: fixed_scales.FixedScales) -> dict[str, Any]:
    clipping = found.clipping
    worst = [
        {"layer": layer, "head": head, "kind": kind, "clipped": share}
        for (layer, head, kind), share in clipping.worst(_WORST)
    ]
    return {
        "format": FORMAT,
        "heldOutTokens": clipping.tokens,
        "clippedShare": clipping.share,
        "worst": worst,
        **fixed_scales.to_mapping(file),
    }


def _print(found: calibration.Found, file: fixed_scales.FixedScales, written: list[str]) -> None:
    clipping, console = found.clipping, eval_terminal.console()
    console.print(
        f"{len(found.scales)} scales for {file.dtype}, found on {found.fit_tokens:,} tokens. Of the other "
        f"{clipping.tokens:,} tokens they clip {clipping.share:.6%} of all elements.",
        markup=False,
    )
    rows = tuple(
        (f"layer {layer}, head {head}, {kind}", f"{share:.4%}") for (layer, head, kind), share in clipping.worst(_WORST)
    )
    if rows:
        eval_terminal.print_table(console, "most clipped", tables.Table(("HEAD", "CLIPPED"), rows))
    console.print(f"Written: {', '.join(written)}", markup=False)
    console.print(
        "Use: kvCache.scalesFile, --scales-file. Compare first: tidemark eval MODEL --scales-file", markup=False
    )
