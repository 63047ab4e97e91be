"""`tidemark bench URL`: a capacity load test of a running engine, ours or another with OpenAI's API."""

from __future__ import annotations

import asyncio
import os
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import rich.console
import rich.progress
import rich.table
import typer

from tidemark_runtime import errors
from tidemark_runtime.loadtest import knee, levels, page, results, session, tables, target

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
DEFAULT_RAMP = "1:64"
DEFAULT_TARGET_SECONDS = 2.0
_FILE_WIDTH = 200
"""Of tables that go into a file or a pipe."""
_MOST_TIMES = 10.0
"""A level lasts at most so many times as long as asked for, where requests are too few."""


class Output(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"


class Arrivals(StrEnum):
    """Of an open loop."""

    POISSON = "poisson"
    EVEN = "even"


_TOKENS_HELP = "A number, or a distribution as in a workload file: '{uniform: {min: 16, max: 256}}'"


def command(
    url: Annotated[str, typer.Argument(metavar="URL", help="http://HOST:PORT of the engine, with or without /v1.")],
    workload_file: Annotated[
        Path | None,
        typer.Option("--workload", metavar="FILE", help="A file as `tidemark simulate` reads it, run as it stands"),
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", metavar="1,2,4", help="With --workload: so many times as many requests")
    ] = None,
    users: Annotated[
        str | None, typer.Option("--users", metavar="1,2,4", help="Closed loop: users who send when they have read")
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option("--ramp", metavar="FIRST:LAST", help=f"Users doubled up to the knee (default: {DEFAULT_RAMP})"),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="1,2,4", help="Open loop: requests a second, whatever comes back")
    ] = None,
    arrivals: Annotated[Arrivals, typer.Option("--arrivals", help="Of --rate")] = Arrivals.POISSON,
    prompt_tokens: Annotated[str, typer.Option("--prompt-tokens", help=_TOKENS_HELP)] = "128",
    output_tokens: Annotated[str, typer.Option("--output-tokens", help="The same, of answers")] = "64",
    shared_prompt_tokens: Annotated[
        int, typer.Option("--shared-prompt-tokens", min=0, help="The first ones, alike in all prompts")
    ] = 0,
    duration: Annotated[
        float, typer.Option("--duration", min=0.1, help="Seconds of each level's window, at least")
    ] = 10,
    requests: Annotated[int, typer.Option("--requests", min=1, help="Ended in each window, at least")] = 20,
    warm_up: Annotated[
        float, typer.Option("--warm-up", min=0, help="Seconds of each level before its window; users begin in it")
    ] = 2,
    model: Annotated[str | None, typer.Option("--model", help="Default: the only one the server has")] = None,
    endpoint: Annotated[target.Endpoint, typer.Option("--endpoint", help="Of OpenAI's API")] = target.Endpoint.CHAT,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of moments and lengths (default: the file's, or 1)")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a request may take")] = 300,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file", metavar="FILE", help=f"A key a line (default: the variable {target.KEY_VARIABLE})"
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option("--ca-file", metavar="FILE", help="PEM; instead of the authorities of this system")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Take any certificate")] = False,
    target_ttft_p95: Annotated[
        float | None,
        typer.Option(
            "--target-ttft-p95",
            min=0.001,
            help=f"Seconds; the knee keeps it (default: --max-ttft-p95, or {DEFAULT_TARGET_SECONDS:g})",
        ),
    ] = None,
    gain: Annotated[float, typer.Option("--gain", min=0.001, help="0.1: a level must bring 10 % more tokens/s")] = 0.1,
    max_ttft_p95: Annotated[
        float | None, typer.Option("--max-ttft-p95", min=0, help="Seconds; exit code 1 where no level keeps it")
    ] = None,
    min_tokens_per_second: Annotated[
        float | None,
        typer.Option("--min-tokens-per-second", min=0, help="Of output; exit code 1 where no level has both"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare greedy answers under load with the same ones alone")
    ] = False,
    min_identical: Annotated[
        float | None, typer.Option("--min-identical", min=0, max=1, help="Share of --check; exit code 1 below it")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="table, or json for scripts")] = Output.TABLE,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE.json", help="Also write it there")] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE.html", help="A page with plots")] = None,
) -> None:
    """Load a running engine, level after level, measure what its users would feel, and find the knee.

    Latency counts from when a request was due. Exit code 1: no answer at all, or a limit is broken; 130: Ctrl-C, with
    what was found so far.
    """
    for option, file, suffix in (("--json", json_file, ".json"), ("--html", html, ".html")):
        _check_file(option, file, suffix)
    limits = results.Limits(max_ttft_p95, min_tokens_per_second, min_identical)
    if min_identical is not None and not check:
        raise errors.ConfigError([errors.Problem("--min-identical", min_identical, "--check beside it")])
    shape = levels.Shape(prompt_tokens, output_tokens, shared_prompt_tokens, str(arrivals))
    window = levels.Window(warm_up, duration, requests, _MOST_TIMES * duration)
    chosen, stops = _levels(workload_file, scale, users, ramp, rate, shape, window, seed)
    goal = target_ttft_p95 or max_ttft_p95 or DEFAULT_TARGET_SECONDS
    plan = session.Plan(
        url=target.address(url),
        endpoint=endpoint,
        model=model,
        keys=target.keys(api_key_file, os.environ),
        levels=tuple(chosen),
        stops_at_knee=stops,
        rule=knee.Rule(goal, gain),
        checks=check,
        timeout_seconds=timeout,
        seed=chosen[0].load.seed,
        salt=uuid.uuid4().hex,
        describes=_describe(workload_file, shape),
    )
    found = _run(plan, target.verification(ca_file, insecure))
    broken = [] if found.interrupted else results.over(found, limits)
    _write("--json", json_file, results.to_json(found, broken) + "\n")
    if html is not None:
        _write("--html", html, page.of_result(found, broken))
    if output is Output.JSON:
        typer.echo(results.to_json(found, broken))
    else:
        _print(found)
    _end(found, broken)


def _levels(
    workload_file: Path | None,
    scale: str | None,
    users: str | None,
    ramp: str | None,
    rate: str | None,
    shape: levels.Shape,
    window: levels.Window,
    seed: int | None,
) -> tuple[list[levels.Level], bool]:
    """The levels, and whether those past the knee are left out. Raises `ConfigError`."""
    ways = {"--workload": workload_file, "--users": users, "--ramp": ramp, "--rate": rate}
    given = [option for option, value in ways.items() if value is not None]
    if len(given) > 1:
        seen = errors.Seen(f"{given[0]} beside it")
        remedy = "One of them says what load is put on; --scale makes levels of a workload file."
        raise errors.ConfigError([errors.Problem(given[1], seen, f"one of {', '.join(ways)}", remedy)])
    if scale is not None and workload_file is None:
        raise errors.ConfigError([errors.Problem("--scale", scale, "--workload beside it")])
    if workload_file is not None:
        scales = levels.numbers("--scale", scale or "1", whole=False, most=1e6)
        return levels.of_file(workload_file, scales, seed), False
    number = 1 if seed is None else seed
    if rate is not None:
        rates = levels.numbers("--rate", rate, whole=False, most=1e6)
        return [levels.of_rate(value, shape, window, number) for value in rates], False
    if users is not None:
        amounts = levels.numbers("--users", users, whole=True, most=levels.USERS_MOST)
    else:
        amounts = levels.ramp("--ramp", ramp or DEFAULT_RAMP)
    return [levels.of_users(int(value), shape, window, number) for value in amounts], users is None


def _describe(workload_file: Path | None, shape: levels.Shape) -> str:
    if workload_file is not None:
        return workload_file.name
    shared = f", the first {shape.shared_prompt_tokens} alike" if shape.shared_prompt_tokens else ""
    return f"prompts of {shape.prompt_tokens} tokens{shared}, answers of {shape.output_tokens}"


def _run(plan: session.Plan, verify: ssl.SSLContext) -> results.Result:
    """All levels, or those until Ctrl-C. Raises `NoAnswer`, `ConfigError`."""
    with _progress(len(plan.levels)) as show:
        kept: list[session.Session] = []

        async def run() -> None:
            async with target.open_http(plan.url, verify, plan.timeout_seconds) as http:
                kept.append(session.Session(plan, http, show))
                await kept[0].run()

        try:
            asyncio.run(run())
        except KeyboardInterrupt:
            if not kept:
                raise
            kept[0].interrupted = True
    return kept[0].result()


@contextmanager
def _progress(num_levels: int) -> Iterator[session.Progress]:
    """A line on standard error: moving on a terminal, else one for each thing that begins."""
    console = rich.console.Console(stderr=True, highlight=False)
    columns = (rich.progress.SpinnerColumn(), rich.progress.TextColumn("{task.description}"))
    seen: list[str] = []
    with rich.progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, seconds: float, answers: int) -> None:
            if what not in seen:
                seen.append(what)
                if not console.is_terminal:
                    console.print(f"{what} ...", markup=False)
            bar.update(task, description=f"{what}: {seconds:,.0f} s, {answers:,} answers")

        yield show


def _check_file(option: str, file: Path | None, suffix: str) -> None:
    """What is wrong with the name is said before a long run."""
    if file is None:
        return
    if file.suffix != suffix:
        raise errors.ConfigError([errors.Problem(option, str(file), f"a file name that ends in {suffix}")])
    if not file.parent.is_dir():
        raise errors.ConfigError([errors.Problem(option, str(file), "a file in a folder that exists")])


def _write(option: str, file: Path | None, text: str) -> None:
    if file is None:
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        remedy = f"It says: {error.strerror or error}"
        raise errors.ConfigError([errors.Problem(option, str(file), "a file that can be written", remedy)]) from error


def _print(found: results.Result) -> None:
    console = rich.console.Console(soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    about = found.about
    version = f" (tidemark {about.server_version})" if about.server_version else ""
    console.print(f"{about.model} at {about.url}{version}: {about.workload}, seed {about.seed}", markup=False)
    for table in tables.of_result(found):
        shown = rich.table.Table(*table.head, title=table.title, title_justify="left", box=None)
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    for sentence in tables.sentences(found):
        console.print(sentence, markup=False)


def _end(found: results.Result, broken: list[str]) -> None:
    if found.interrupted:
        typer.echo("tidemark: stopped before the end; this is what there was so far", err=True)
        raise typer.Exit(EXIT_INTERRUPTED)
    reason = results.no_answer(found)
    reasons = [reason] if reason else broken
    for sentence in reasons:
        typer.echo(f"tidemark: {sentence}", err=True)
    if reasons:
        raise typer.Exit(EXIT_FAILED)
