"""`tidemark eval MODEL` and `tidemark eval sensitivity MODEL`: what quantized KV memory costs in accuracy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.console
import rich.progress
import rich.table
import typer
import typer.core

from tidemark_runtime import errors, model_store
from tidemark_runtime.evaluation import configurations, items, page, results, sensitivity, tables
from tidemark_runtime.model import sources
from tidemark_runtime.planning import page_layout

if TYPE_CHECKING:
    from tidemark_runtime.evaluation import subject as subjects

EXIT_OVER = 1
"""A limit is broken, or no map keeps within it."""
DEFAULT_RESULTS = Path("eval-results")
_FILE_WIDTH = 160
"""Characters a line where nobody looks: no cell is cut."""
_PLAN = items.Plan()
_CONFIG_MAP_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


class ModelFirst(typer.core.TyperGroup):
    """`tidemark eval MODEL` means `tidemark eval run MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="eval",
    cls=ModelFirst,
    help="Measure what quantized KV memory costs in accuracy, beside the unquantized model.",
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
ResultsOption = Annotated[Path, typer.Option("--results", metavar="FOLDER", help="Where measurements are kept")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the same run if it was stopped")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="text, or json for scripts")]
HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one page with plots")]
ThreadsOption = Annotated[int | None, typer.Option("--threads", min=1, help="(default: all usable cores)")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the made texts")]


@app.command()
def run(
    model: ModelArgument,
    kv_cache_dtype: Annotated[
        list[str] | None, typer.Option("--kv-cache-dtype", help="What to measure; may be repeated (default: int8)")
    ] = None,
    precision_map: MapOption = None,
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
    output: OutputOption = Output.TEXT,
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
    _check_file("--html", html, ".html")
    dtypes = kv_cache_dtype or ["int8"]
    configurations.check_dtypes(dtypes)
    wanted_map = None if precision_map is None else configurations.read_map(precision_map)
    other = None if compare is None else results.read(compare)
    source = sources.resolve(model, model_store.default_store(os.environ))
    own_text = None if text is None else items.read_text(text)
    from tidemark_runtime.evaluation import regression, subject  # here: torch takes seconds, wrong options none

    with _progress() as show:
        loaded = subject.load(source, threads, lambda phase, share: show(phase, round(share * 100), 100))
        wanted = regression.Run(
            subject=loaded,
            text=own_text or items.made_text(loaded.encoder, plan),
            plan=plan,
            base_dtype=_base(base_dtype, loaded),
            others=tuple(configurations.chosen(dtypes, wanted_map, loaded.target(dtypes[0]))),
        )
        found = regression.measure(wanted, results_folder, resume=resume, progress=show)
    over = results.over(found, limits)
    mapping = {**results.to_mapping(found), "over": over}
    folder = regression.run_folder(wanted, results_folder)
    changes, differences = ([], []) if other is None else results.compare(mapping, other)
    _write("--results", folder / results.RESULT_FILE, results.to_json(mapping))
    if html is not None:
        _write("--html", html, page.of_result(found, over, changes))
    if output is Output.JSON:
        typer.echo(results.to_json({**mapping, "compared": [_change(change) for change in changes]}))
    else:
        _print_result(found, folder, changes, differences)
    _end(over)


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
    output: OutputOption = Output.TEXT,
    threads: ThreadsOption = None,
) -> None:
    """Rank layers and heads, K and V apart, by what quantizing them costs, and find the smallest precision map."""
    _one_of("--method", method, sensitivity.METHODS)
    _one_of("--detail", detail, sensitivity.DETAILS)
    configurations.check_dtypes([kv_cache_dtype])
    for name, file, suffix in (("--html", html, ".html"), ("--map", map_file, ".yaml")):
        _check_file(name, file, suffix)
    if config_map is not None and not _CONFIG_MAP_NAME.fullmatch(config_map):
        raise errors.ConfigError([errors.Problem("--configmap", config_map, "a name of small letters, digits and -")])
    source = sources.resolve(model, model_store.default_store(os.environ))
    own_text = None if text is None else items.read_text(text)
    from tidemark_runtime.evaluation import losses, map_search, subject  # here, as above

    plan = items.Plan(text_tokens=tokens, window_tokens=window, seed=seed)
    with _progress() as show:
        loaded = subject.load(source, threads, lambda phase, share: show(phase, round(share * 100), 100))
        aim = loaded.target(kv_cache_dtype)
        keep = aim.keep_dtype if keep_dtype == "auto" else _one_of("--keep-dtype", keep_dtype, page_layout.KV_DTYPES)
        if keep == kv_cache_dtype:
            raise errors.ConfigError([errors.Problem("--keep-dtype", keep, "another dtype than --kv-cache-dtype")])
        words = own_text or items.made_text(loaded.encoder, plan)
        context = min(window, loaded.model.spec.max_context_tokens)
        pieces = items.windows(words, loaded.encoder, tokens, context)
        measured = losses.TextLosses(loaded.model, pieces, _base(base_dtype, loaded))
        search = map_search.prepare(loaded, measured, words, (kv_cache_dtype, keep), results_folder, resume, show)
        found = search.run(max_kl, max_extra_bytes, method, detail)
    notes = {"model": loaded.name, "kvDtype": kv_cache_dtype}
    map_text = configurations.map_text(found.segments, aim.shape, notes) if found.segments else None
    mapping = map_search.to_mapping(found, notes, map_text)
    _write("--results", search.kept.folder / results.RESULT_FILE, results.to_json(mapping))
    if html is not None:
        _write("--html", html, page.of_sensitivity(found, map_text, {**notes, "text": words.name, "method": method}))
    _write_maps(map_text, map_file, config_map)
    if output is Output.JSON:
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
        _write("--map", map_file, map_text)
    if config_map is not None:
        _write("--configmap", Path(f"{config_map}.yaml"), configurations.config_map_text(config_map, map_text))


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


def _check_limits(limits: results.Limits, plan: items.Plan) -> None:
    if limits != results.Limits() and items.TEXT not in plan.parts:
        expected = "text among them, where --max-kl or --max-perplexity-rise is given"
        raise errors.ConfigError([errors.Problem("--parts", ",".join(plan.parts), expected)])


def _one_of(option: str, value: str, known: Sequence[str] | dict[str, Any]) -> str:
    if value not in known:
        raise errors.ConfigError([errors.Problem(option, value, f"one of {', '.join(known)}")])
    return value


def _base(wanted: str, loaded: subjects.Subject) -> str:
    return loaded.dtype if wanted == "auto" else _one_of("--base-dtype", wanted, page_layout.KV_DTYPES)


def _check_file(option: str, file: Path | None, suffix: str) -> None:
    """What is wrong with the name is said before a long run."""
    if file is None:
        return
    if file.suffix != suffix:
        raise errors.ConfigError([errors.Problem(option, str(file), f"a file name that ends in {suffix}")])
    if not file.parent.is_dir():
        raise errors.ConfigError([errors.Problem(option, str(file), "a file in a folder that exists")])


def _write(option: str, file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        remedy = f"It says: {error.strerror or error}"
        raise errors.ConfigError([errors.Problem(option, str(file), "a file that can be written", remedy)]) from error


@contextmanager
def _progress() -> Iterator[Any]:
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


def _print_result(
    found: results.Result, folder: Path, changes: Sequence[results.Change], differences: Sequence[str]
) -> None:
    console = _console()
    for title, table in tables.of_result(found):
        _print_table(console, title, table)
    if differences:
        console.print("The other run measured something else:", *differences, sep="\n  ", markup=False)
    if changes:
        _print_table(console, "beside the other run", tables.of_changes(changes))
    console.print(f"Kept in {folder / results.RESULT_FILE}", markup=False)


def _print_found(found: sensitivity.Found, folder: Path, map_text: str | None) -> None:
    console = _console()
    for title, table in tables.of_sensitivity(found):
        _print_table(console, title, table)
    if found.chosen is not None and not found.segments:
        console.print(f"No map is needed: all in {found.dtype} loses {found.plain.kl:.3g} nats", markup=False)
    if map_text is not None:
        console.print(map_text, markup=False)
    console.print(f"Kept in {folder / results.RESULT_FILE}", markup=False)


def _console() -> rich.console.Console:
    console = rich.console.Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def _print_table(console: rich.console.Console, title: str, table: tables.Table) -> None:
    shown = rich.table.Table(*table.head, title=title, title_justify="left", box=None)
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)


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
