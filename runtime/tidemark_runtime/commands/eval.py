"""`tidemark eval MODEL`, `tidemark eval sensitivity MODEL`: what quantized KV memory and weights cost in accuracy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from tidemark_runtime import errors, model_store
from tidemark_runtime.commands import eval_calibrate, eval_configuration, eval_terminal
from tidemark_runtime.evaluation import configurations, items, page, results, sensitivity, tables
from tidemark_runtime.model import identity, sources
from tidemark_runtime.planning import page_layout

if TYPE_CHECKING:
    from tidemark_runtime.evaluation import subject as subjects

EXIT_OVER = 1
"""A limit is broken, or no map keeps within it. What could not be measured at all ends with 2."""
DEFAULT_RESULTS = Path("eval-results")
_PLAN = items.Plan()


class ModelFirst(typer.core.TyperGroup):
    """`tidemark eval MODEL` means `tidemark eval run MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="eval",
    cls=ModelFirst,
    help="Measure what quantized KV memory and weights cost in accuracy, beside the unquantized model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=f"{sources.SUPPORTED}.")]
TextOption = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="Your own text (default: made, English and Chinese)")
]
BaseOption = Annotated[
    str, typer.Option("--base-dtype", help="Of K and V of the unquantized model; auto: the model's dtype")
]
MapOption = Annotated[
    Path | None,
    typer.Option("--precision-map", metavar="FILE", help="Measure every dtype also with this map, file or ConfigMap"),
]
ScalesOption = Annotated[
    Path | None,
    typer.Option(
        "--scales-file", metavar="FILE", help="Measure the dtype of this file, of `calibrate`, also with its scales"
    ),
]
QuantizationOption = Annotated[
    list[str] | None,
    typer.Option("--quantization", help="Of weights, beside the unquantized ones; may be repeated"),
]
BaselineOption = Annotated[
    str | None,
    typer.Option("--baseline", metavar="MODEL16", help="What an AWQ or GPTQ checkpoint was made from"),
]
ResultsOption = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where measurements are kept")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the same run if it was stopped")]
OutputOption = Annotated[eval_terminal.Output, typer.Option("--output", "-o", help="text, or json for scripts")]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one page with plots")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="(default: all usable cores)")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the made texts")]


@app.command()
def run(
    model: ModelArgument,
    kv_cache_dtype: Annotated[
        list[str] | None, typer.Option("--kv-cache-dtype", help="What to measure; may be repeated (default: int8)")
    ] = None,
    quantization: QuantizationOption = None,
    baseline: BaselineOption = None,
    precision_map: MapOption = None,
    scales_file: ScalesOption = None,
    base_dtype: BaseOption = "auto",
    text: TextOption = None,
    parts: Annotated[str, typer.Option("--parts", help="Which, with commas")] = ",".join(items.PARTS),
    tokens: Annotated[int, typer.Option("--tokens", min=32, help="Of text to compare")] = _PLAN.text_tokens,
    window: Annotated[int, typer.Option("--window", min=32, help="Tokens read in one go")] = _PLAN.window_tokens,
    prompts: Annotated[int, typer.Option("--prompts", min=1, help="To continue greedily")] = _PLAN.prompts,
    continuation: Annotated[
        int, typer.Option("--continuation", min=1, help="Tokens of each")
    ] = _PLAN.continuation_tokens,
    lengths: Annotated[
        str,
        typer.Option("--lengths", help="Tokens of the texts to find facts in; longer than the model's are left out"),
    ] = ",".join(map(str, _PLAN.lengths)),
    contracts: Annotated[
        int, typer.Option("--contracts", min=1, help="To extract from, of each language")
    ] = _PLAN.contracts,
    seed: SeedOption = _PLAN.seed,
    max_kl: Annotated[float | None, typer.Option("--max-kl", min=0, help="Nats; exit code 1 above it")] = None,
    max_perplexity_rise: Annotated[
        float | None, typer.Option("--max-perplexity-rise", min=0, help="0.01 is 1 %; exit code 1 above it")
    ] = None,
    results_folder: ResultsOption = DEFAULT_RESULTS,
    resume: ResumeOption = False,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="OTHER.json", help="A result of before, to stand beside")
    ] = None,
    html: HtmlOption = None,
    output: OutputOption = eval_terminal.Output.TEXT,
    threads: ThreadsOption = None,
) -> None:
    """Compare configurations with the unquantized model: KL, perplexity, same text, facts found, fields extracted."""
    plan = items.Plan(
        parts=_parts(parts),
        text_tokens=tokens,
        window_tokens=window,
        prompts=prompts,
        continuation_tokens=continuation,
        lengths=_lengths(lengths),
        contracts=contracts,
        seed=seed,
    )
    limits = results.Limits(max_kl, max_perplexity_rise)
    _check_limits(limits, plan)
    eval_terminal.check_file("--html", html, ".html")
    dtypes = kv_cache_dtype or ([] if quantization or baseline else ["int8"])
    configurations.check_dtypes(dtypes)
    configurations.check_quantizations(quantization or [])
    _check_needs_dtype(dtypes, {"--precision-map": precision_map, "--scales-file": scales_file})
    wanted_map = None if precision_map is None else configurations.read_map(precision_map)
    wanted_scales = None if scales_file is None else configurations.read_scales(scales_file)
    other = None if compare is None else results.read(compare)
    source = sources.resolve(model, model_store.default_store(os.environ))
    original = None if baseline is None else sources.resolve(baseline, model_store.default_store(os.environ))
    own_text = None if text is None else items.read_text(text)
    from tidemark_runtime.evaluation import regression, weight_subjects  # here: torch takes seconds, wrong options none

    with eval_terminal.progress() as show:
        subjects = weight_subjects.load(
            weight_subjects.Wanted(source=source, quantizations=quantization or [], baseline=original),
            threads,
            lambda phase, share: show(phase, round(share * 100), 100),
        )
        loaded = subjects.base
        base = _base(base_dtype, loaded)
        others = configurations.chosen(dtypes, wanted_map, loaded.target(base))
        if wanted_scales is not None:
            weights = identity.of(source)
            others = configurations.with_scales(others, wanted_scales, loaded.target(base), weights)
        wanted = regression.Run(
            subject=loaded,
            text=own_text or items.made_text(loaded.encoder, plan),
            plan=plan,
            base_dtype=base,
            others=(*others, *subjects.configurations(base)),
            weights=subjects.others,
        )
        found = regression.measure(wanted, results_folder, resume=resume, progress=show)
    over = results.over(found, limits)
    mapping = {**results.to_mapping(found), "over": over}
    folder = regression.run_folder(wanted, results_folder)
    changes, differences = ([], []) if other is None else results.compare(mapping, other)
    eval_terminal.write("--results", folder / results.RESULT_FILE, results.to_json(mapping))
    if html is not None:
        eval_terminal.write("--html", html, page.of_result(found, over, changes))
    if output is eval_terminal.Output.JSON:
        typer.echo(results.to_json({**mapping, "compared": [_change(change) for change in changes]}))
    else:
        _print_result(found, folder, changes, differences)
    _end(over)


app.command("calibrate")(eval_calibrate.calibrate)
app.command("configuration")(eval_configuration.evaluate)


@app.command("sensitivity")
def find_map(
    model: ModelArgument,
    kv_cache_dtype: Annotated[str, typer.Option("--kv-cache-dtype", help="Of what is not kept")] = "int8",
    keep_dtype: Annotated[
        str, typer.Option("--keep-dtype", help="Of what is kept; auto: the model's 16 bits")
    ] = "auto",
    base_dtype: BaseOption = "auto",
    text: TextOption = None,
    tokens: Annotated[int, typer.Option("--tokens", min=32, help="Of text; each is read some hundred times")] = 1024,
    window: Annotated[int, typer.Option("--window", min=32, help="Tokens read in one go")] = 512,
    seed: SeedOption = 1,
    method: Annotated[
        str, typer.Option("--method", help="quantize: only one layer or head is. keep: only one is not")
    ] = sensitivity.QUANTIZE,
    detail: Annotated[
        str, typer.Option("--detail", help="layers, heads, or auto: heads of the layers with most of the loss")
    ] = sensitivity.AUTO,
    max_kl: Annotated[
        float | None,
        typer.Option("--max-kl", min=0, help="Nats the map may lose (default: half of that without a map)"),
    ] = None,
    max_extra_bytes: Annotated[
        float | None, typer.Option("--max-extra-bytes", min=0, help="0.1: the map may take 10 % more KV bytes")
    ] = None,
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE.yaml", help="Write the map")] = None,
    config_map: Annotated[
        str | None, typer.Option("--configmap", metavar="NAME", help="Write it as this ConfigMap, into NAME.yaml")
    ] = None,
    results_folder: ResultsOption = DEFAULT_RESULTS,
    resume: ResumeOption = False,
    html: HtmlOption = None,
    output: OutputOption = eval_terminal.Output.TEXT,
    threads: ThreadsOption = None,
) -> None:
    """Rank layers and heads, K and V apart, by what quantizing them costs, and find the smallest precision map."""
    eval_terminal.one_of("--method", method, sensitivity.METHODS)
    eval_terminal.one_of("--detail", detail, sensitivity.DETAILS)
    configurations.check_dtypes([kv_cache_dtype])
    for name, file, suffix in (("--html", html, ".html"), ("--map", map_file, ".yaml")):
        eval_terminal.check_file(name, file, suffix)
    eval_terminal.check_config_map(config_map)
    source = sources.resolve(model, model_store.default_store(os.environ))
    own_text = None if text is None else items.read_text(text)
    from tidemark_runtime.evaluation import losses, map_search, subject  # here, as above

    plan = items.Plan(text_tokens=tokens, window_tokens=window, seed=seed)
    with eval_terminal.progress() as show:
        loaded = subject.load(source, threads, lambda phase, share: show(phase, round(share * 100), 100))
        aim = loaded.target(kv_cache_dtype)
        keep = (
            aim.keep_dtype
            if keep_dtype == "auto"
            else eval_terminal.one_of("--keep-dtype", keep_dtype, page_layout.KV_DTYPES)
        )
        if keep == kv_cache_dtype:
            raise errors.ConfigError([errors.Problem("--keep-dtype", keep, "another dtype than --kv-cache-dtype")])
        words = own_text or items.made_text(loaded.encoder, plan)
        context = min(window, loaded.model.spec.max_context_tokens)
        pieces = items.windows(words, loaded.encoder, tokens, context)
        measured = losses.TextLosses(loaded.model, pieces, _base(base_dtype, loaded))
        search = map_search.prepare(loaded, measured, words, (kv_cache_dtype, keep), results_folder, resume, show)
        found = search.run(max_kl, max_extra_bytes, method, detail)
    notes = {"model": loaded.name, "weights": identity.of(source), "kvDtype": kv_cache_dtype}
    map_text = configurations.map_text(found.segments, aim.shape, notes) if found.segments else None
    mapping = map_search.to_mapping(found, notes, map_text)
    eval_terminal.write("--results", search.kept.folder / results.RESULT_FILE, results.to_json(mapping))
    if html is not None:
        eval_terminal.write(
            "--html", html, page.of_sensitivity(found, map_text, {**notes, "text": words.name, "method": method})
        )
    _write_maps(map_text, map_file, config_map)
    if output is eval_terminal.Output.JSON:
        typer.echo(results.to_json(mapping))
    else:
        _print_found(found, search.kept.folder, map_text)
    _end(_without_map(found, max_extra_bytes))


def _without_map(found: sensitivity.Found, max_extra_bytes: float | None) -> list[str]:
    if found.chosen is not None:
        return []
    best = min(point.kl for point in found.points)
    room = "" if max_extra_bytes is None else f" with at most {max_extra_bytes:.0%} more KV bytes"
    return [f"no map{room} keeps within a KL of {found.limit:.3g} nats: the best has {best:.3g}. Allow more of either"]


def _write_maps(map_text: str | None, map_file: Path | None, config_map: str | None) -> None:
    if map_text is None:
        return
    if map_file is not None:
        eval_terminal.write("--map", map_file, map_text)
    if config_map is not None:
        eval_terminal.write(
            "--configmap", Path(f"{config_map}.yaml"), configurations.config_map_text(config_map, map_text)
        )


def _parts(given: str) -> tuple[str, ...]:
    wanted = [part.strip() for part in given.split(",") if part.strip()]
    unknown = [part for part in wanted if part not in items.PARTS]
    if unknown or not wanted:
        raise errors.ConfigError([errors.Problem("--parts", given, f"some of {','.join(items.PARTS)}")])
    return tuple(part for part in items.PARTS if part in wanted)


def _lengths(given: str) -> tuple[int, ...]:
    parts = [part.strip() for part in given.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise errors.ConfigError([errors.Problem("--lengths", given, "whole numbers with commas, such as 512,2048")])
    return tuple(sorted({int(part) for part in parts}))


def _check_needs_dtype(dtypes: Sequence[str], options: Mapping[str, Path | None]) -> None:
    given = [name for name, file in options.items() if file is not None]
    if given and not dtypes:
        expected = f"a dtype of K and V, which {given[0]} is for"
        raise errors.ConfigError([errors.Problem("--kv-cache-dtype", errors.Seen("none"), expected)])


def _check_limits(limits: results.Limits, plan: items.Plan) -> None:
    if limits != results.Limits() and items.TEXT not in plan.parts:
        expected = "text among them, where --max-kl or --max-perplexity-rise is given"
        raise errors.ConfigError([errors.Problem("--parts", ",".join(plan.parts), expected)])


def _base(wanted: str, loaded: subjects.Subject) -> str:
    return loaded.dtype if wanted == "auto" else eval_terminal.one_of("--base-dtype", wanted, page_layout.KV_DTYPES)


def _print_result(
    found: results.Result, folder: Path, changes: Sequence[results.Change], differences: Sequence[str]
) -> None:
    console = eval_terminal.console()
    for title, table in tables.of_result(found):
        eval_terminal.print_table(console, title, table)
    if differences:
        console.print("The other run measured something else:", *differences, sep="\n  ", markup=False)
    if changes:
        eval_terminal.print_table(console, "beside the other run", tables.of_changes(changes))
    console.print(f"Kept in {folder / results.RESULT_FILE}", markup=False)


def _print_found(found: sensitivity.Found, folder: Path, map_text: str | None) -> None:
    console = eval_terminal.console()
    for title, table in tables.of_sensitivity(found):
        eval_terminal.print_table(console, title, table)
    if found.chosen is not None and not found.segments:
        console.print(f"No map is needed: all in {found.dtype} loses {found.plain.kl:.3g} nats", markup=False)
    if map_text is not None:
        console.print(map_text, markup=False)
    console.print(f"Kept in {folder / results.RESULT_FILE}", markup=False)


def _change(change: results.Change) -> dict[str, Any]:
    return {
        "configuration": change.configuration,
        "figure": change.figure,
        "before": change.before,
        "now": change.now,
    }


def _end(reasons: Sequence[str]) -> None:
    """Exit code 1 with the reasons on standard error."""
    for reason in reasons:
        typer.echo(f"tidemark: {reason}", err=True)
    if reasons:
        raise typer.Exit(EXIT_OVER)
