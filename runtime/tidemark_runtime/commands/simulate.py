"""`tidemark simulate PROFILE WORKLOAD`: the real scheduler on a virtual clock, for a device one does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import rich.console
import rich.progress
import rich.table
import typer

from tidemark_runtime import errors
from tidemark_runtime.simulation import devices, models, percentiles, plot, profiles, report, running, workload

PROFILE_HELP = (
    f"DEVICE/MODEL, or a YAML or JSON file with figures of your own. Devices: {', '.join(devices.DEVICES)}. "
    f"Models: {', '.join(models.MODELS)}."
)


class Output(StrEnum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


def command(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help=PROFILE_HELP)],
    workload_file: Annotated[Path, typer.Argument(metavar="WORKLOAD", help=f"A file such as {workload.EXAMPLE}.")],
    output: Annotated[Output, typer.Option("--output", "-o", help="text, or json for scripts")] = Output.TEXT,
    plot_file: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Also draw the run.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Instead of the workload's own.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting instead of the workload's: scheduler.maxNumSeqs=64"),
    ] = None,
) -> None:
    """Predict how a device and a model serve a workload: percentiles, concurrency, preemptions, utilization.

    Nothing is computed: the real scheduler plans steps, and a formula or measured prices say how long they take.
    """
    chosen = profiles.load(profile)
    load = workload.load(workload_file, seed=seed, overrides=_overrides(set_ or []))
    _check_plot(plot_file)
    with _progress(f"{chosen.name}, {load.name}") as progress:
        result = running.run(chosen, load, progress=progress)
    if plot_file is not None:
        _write(plot_file, plot.svg(result.report, result.record))
    if output is Output.JSON:
        typer.echo(report.to_json(result.report))
    else:
        _print(result.report, rich.console.Console(soft_wrap=True, highlight=False))


def _overrides(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for item in given:
        key, separator, value = item.partition("=")
        if not separator or not key or not value:
            problem = errors.Problem("--set", item, "KEY=VALUE, such as scheduler.maxNumSeqs=64")
            raise errors.ConfigError([problem])
        found[key] = value
    return found


def _check_plot(file: Path | None) -> None:
    """What is wrong with the name is said before a long run."""
    if file is None:
        return
    if file.suffix != ".svg":
        raise errors.ConfigError([errors.Problem("--plot", str(file), "a file name that ends in .svg")])
    if not file.parent.is_dir():
        raise errors.ConfigError([errors.Problem("--plot", str(file), "a file in a folder that exists")])


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        remedy = f"It says: {error.strerror or error}"
        raise errors.ConfigError([errors.Problem("--plot", str(file), "a file that can be written", remedy)]) from error


@contextmanager
def _progress(title: str) -> Iterator[running.Progress | None]:
    """A bar on standard error where that is a terminal, and nothing else."""
    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TaskProgressColumn(),
        rich.progress.TextColumn("{task.fields[detail]}"),
    )
    with rich.progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=1.0, detail="")

        def show(share: float, steps: int, seconds: float) -> None:
            bar.update(task, completed=share, detail=f"{steps:,} steps, {seconds:,.0f} virtual seconds")

        yield show


def _print(found: report.Report, console: rich.console.Console) -> None:
    console.print(f"{found.profile}, workload {found.workload}, seed {found.seed}", markup=False)
    console.print(_facts(found))
    console.print(_requests(found))
    console.print(_times(found))
    for name, entry in found.classes.items():
        if entry.rejected_tries and name != report.ALL:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in entry.rejected_tries.items())
            console.print(f"tries of {name} that were refused: {reasons}", markup=False)


def _facts(found: report.Report) -> rich.table.Table:
    batch, pages, preempted = found.batch, found.pages, found.preemptions
    table = rich.table.Table(box=None, show_header=False)
    rows = {
        "virtual time": f"{found.seconds:,.1f} s in {found.steps:,} steps, device busy {batch.busy_share:.1%}",
        "throughput": f"{found.output_tokens_per_second:,.0f} output tokens/s, "
        f"{found.prompt_tokens_per_second:,.0f} prompt tokens/s, {found.requests_per_second:,.2f} requests/s",
        "concurrency": f"mean {batch.mean_concurrency:,.1f}, peak {batch.peak_concurrency:,}; "
        f"waiting: mean {batch.mean_waiting:,.1f}, peak {batch.peak_waiting:,}",
        "pages": f"{pages.total:,} of {pages.block_size} tokens; in use: mean {pages.mean_used_share:.1%}, "
        f"while requests wait {pages.mean_used_share_while_waiting:.1%}, peak {pages.peak_used_share:.1%}; "
        f"waste {pages.mean_waste:.1%}; prefix hits {pages.prefix_hit_share:.1%}",
        "preemptions": f"{preempted.total:,} ({preempted.swap:,} swapped, {preempted.recompute:,} recomputed), at most "
        f"{preempted.most_of_one_request} of one request; pages copied: {pages.copied_out:,} out, "
        f"{pages.copied_in:,} in",
        "above the lines": f"queue {preempted.seconds_above_queue_line:,.1f} s, "
        f"preempt {preempted.seconds_above_preempt_line:,.1f} s",
    }
    for name, words in rows.items():
        table.add_row(name, words)
    return table


def _requests(found: report.Report) -> rich.table.Table:
    table = rich.table.Table(box=None)
    table.add_column("CLASS")
    for heading in ("REQUESTS", "TRIES", "SERVED", "1ST TRY", "GAVE UP", "PREEMPTED", "TOKENS"):
        table.add_column(heading, justify="right")
    for name, entry in found.classes.items():
        counts = (
            entry.requests,
            entry.tries,
            entry.served,
            entry.served_first_try,
            entry.gave_up,
            entry.preempted_requests,
            entry.output_tokens,
        )
        table.add_row(name, *(f"{count:,}" for count in counts))
    return table


def _times(found: report.Report) -> rich.table.Table:
    table = rich.table.Table(box=None)
    table.add_column("CLASS")
    table.add_column("SECONDS")
    for heading in ("MEAN", "P50", "P90", "P95", "P99", "MAX"):
        table.add_column(heading, justify="right")
    for name, entry in found.classes.items():
        named = {
            "first token": entry.time_to_first_token,
            "between tokens": entry.between_tokens,
            "end to end": entry.end_to_end,
            "queue wait": entry.queue_wait,
        }
        for index, (kind, values) in enumerate(named.items()):
            table.add_row("" if index else name, kind, *_cells(values))
    return table


def _cells(values: percentiles.Percentiles) -> list[str]:
    if not values.num:
        return ["–"] * 6
    numbers = (values.mean, values.p50, values.p90, values.p95, values.p99, values.max)
    return [f"{number:,.1f}" if number >= 100 else f"{number:.3f}" for number in numbers]
