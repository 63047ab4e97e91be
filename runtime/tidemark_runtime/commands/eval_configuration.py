"""`tidemark eval configuration FILE`: what an engine's configuration quantizes, against limits, as a verdict."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tidemark_runtime import config, errors, model_store
from tidemark_runtime.commands import eval_terminal, serve
from tidemark_runtime.contract import settings as contract
from tidemark_runtime.contract import verdict
from tidemark_runtime.evaluation import configured, items, results, tables
from tidemark_runtime.model import identity, sources

EXIT_OVER = 1
"""What could not be evaluated at all ends with 2 (`tidemark_operator.cli`)."""
_PLAN = items.Plan(parts=(items.TEXT,))


def evaluate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The engine's configuration, as `tidemark serve` reads it")
    ],
    max_kl: Annotated[float, typer.Option("--max-kl", min=0, help="Nats, of the mean; exit code 1 above it")],
    max_perplexity_rise: Annotated[
        float, typer.Option("--max-perplexity-rise", min=0, help="0.01 is 1 %; exit code 1 above it")
    ],
    text: Annotated[
        Path | None, typer.Option("--text", metavar="FILE", help="Your own text (default: made, English and Chinese)")
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", min=32, help="Of text to compare")] = _PLAN.text_tokens,
    window: Annotated[int, typer.Option("--window", min=32, help="Tokens read in one go")] = _PLAN.window_tokens,
    seed: Annotated[int, typer.Option("--seed", help="Of the made texts")] = _PLAN.seed,
    verdict_file: Annotated[
        Path | None, typer.Option("--verdict-file", metavar="FILE", help="Also write the verdict, as JSON in one line")
    ] = None,
    results_folder: Annotated[
        Path, typer.Option("--results", metavar="FOLDER", help="Where measurements are kept")
    ] = Path("eval-results"),
) -> None:
    """Compare what an engine's configuration quantizes with the unquantized model, on text.

    Exit code 0: within the limits, 1: over one, 2: nothing was compared, and the message says why.
    """
    settings = serve.read_settings(file, None, {})
    configured.check(settings)
    plan = items.Plan(parts=(items.TEXT,), text_tokens=tokens, window_tokens=window, seed=seed)
    own_text = None if text is None else items.read_text(text)
    source = sources.resolve(settings.model.source, model_store.default_store(os.environ))
    limits = results.Limits(max_kl, max_perplexity_rise)
    found = _measure(settings, source, own_text, plan, results_folder)
    over = results.over(found, limits)
    (entry,) = found.configurations
    if entry.text is None:  # pragma: no cover - the plan has no other part
        raise errors.ConfigError([errors.Problem("--text", str(text), "text to compare")])
    judged = verdict.Verdict(
        configuration=entry.name,
        restart_hash=contract.restart_hash(settings),
        passed=not over,
        mean_kl=entry.text.mean_kl,
        perplexity_rise=entry.text.perplexity_rise,
        tokens=entry.text.tokens,
        over=over,
    )
    console = eval_terminal.console()
    for title, table in tables.of_result(found):
        eval_terminal.print_table(console, title, table)
    if verdict_file is not None:
        eval_terminal.write("--verdict-file", verdict_file, verdict.write(judged))
    for sentence in over:
        typer.echo(f"tidemark: {sentence}", err=True)
    if over:
        raise typer.Exit(EXIT_OVER)


def _measure(
    settings: config.EngineConfig,
    source: sources.ModelSource,
    own_text: items.Text | None,
    plan: items.Plan,
    folder: Path,
) -> results.Result:
    from tidemark_runtime.evaluation import regression, weight_subjects  # here: torch takes seconds, wrong options none

    quantization = settings.model.quantization
    quantizations = [quantization] if quantization in configured.QUANTIZED_AT_LOAD else []
    with eval_terminal.progress() as show:
        subjects = weight_subjects.load(
            weight_subjects.Wanted(source=source, quantizations=quantizations),
            settings.hardware.threads,
            lambda phase, share: show(phase, round(share * 100), 100),
        )
        loaded = subjects.base
        wanted = configured.of(settings, loaded.target(loaded.dtype), identity.of(source))
        run = regression.Run(
            subject=loaded,
            text=own_text or items.made_text(loaded.encoder, plan),
            plan=plan,
            base_dtype=loaded.dtype,
            others=(wanted,),
            weights={} if wanted.weights is None else {wanted.name: subjects.others[f"weights {wanted.weights}"]},
        )
        return regression.measure(run, folder, resume=False, progress=show)
