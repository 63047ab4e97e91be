"""`tidemark serve MODEL`: one engine and its HTTP server, in the foreground. Its flags are the engine's settings."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import rich.console
import rich.progress
import typer
import uvloop

from tidemark_runtime import config, config_parsing, errors, model_store
from tidemark_runtime.contract import documents, http, reasons
from tidemark_runtime.contract import settings as contract
from tidemark_runtime.engine import client, logs, messages
from tidemark_runtime.model import sources
from tidemark_runtime.server import app, context, lifecycle, listening, nvml
from tidemark_runtime.text import vocabulary

EXIT_FAILED = 1
EXIT_USAGE = 2

MODEL_KEY = "model.source"
_FILE = "a readable YAML file with sections such as `scheduler: {maxNumSeqs: 64}`"


def command(**values: Any) -> None:
    """Serve one model over HTTP with the OpenAI API.

    Flags win over the file given with --config. Stop with Ctrl-C or SIGTERM: running requests finish first.
    """
    console = rich.console.Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        parsed = read_settings(values.pop("config"), values.pop("model"), values)
        raise typer.Exit(_serve(parsed, console))
    except errors.ConfigError as error:
        for line in problem_lines(error, values):
            console.print(line, markup=False)
        raise typer.Exit(EXIT_USAGE) from error
    except errors.TidemarkError as error:
        console.print(reasons.write(reasons.of_error(type(error).__name__), str(error)), markup=False)
        raise typer.Exit(EXIT_FAILED) from error


def read_settings(file: Path | None, model: str | None, flags: Mapping[str, str | None]) -> config.EngineConfig:
    """The file's settings with the flags over them. Raises `ConfigError` with every problem of both."""
    mapping = {} if file is None else documents.read_file(file, "--config", _FILE)
    given = {entry.key: flags.get(_parameter(entry)) for entry in _flag_entries()}
    textual = {key for key, value in given.items() if value is not None}
    for key, value in {**given, MODEL_KEY: model}.items():
        section, _, name = key.partition(".")
        settings = mapping.setdefault(section, {})
        if value is not None and (settings is None or isinstance(settings, dict)):
            mapping[section] = {**(settings or {}), name: value}
    parsed = config_parsing.parse(mapping, textual=textual)
    if not parsed.model.source:
        remedy = "Name it: tidemark serve MODEL, or model.source in the file. `tidemark models list` shows names."
        raise errors.ConfigError([errors.Problem("MODEL", model, sources.SUPPORTED, remedy)])
    return parsed


def problem_lines(error: errors.ConfigError, flags: Mapping[str, str | None]) -> list[str]:
    """One line, or how many and then one line each; a value that came by flag is named by its flag."""
    names = {
        entry.key: f"--{entry.setting.flag}" for entry in _flag_entries() if flags.get(_parameter(entry)) is not None
    }
    count = len(error.problems)
    lines = [f"{count} problems"] if count != 1 else []
    for problem in error.problems:
        named = errors.Problem(names.get(problem.key, problem.key), problem.seen, problem.expected, problem.remedy)
        lines.append(str(named))
    return reasons.write(reasons.Reason.CONFIG_INVALID, "\n".join(lines)).splitlines()


def _serve(parsed: config.EngineConfig, console: rich.console.Console) -> int:
    """Everything that can be said to be wrong without loading is said first. Raises `TidemarkError`."""
    logs.set_up(parsed.server.log_level)
    source = sources.resolve(parsed.model.source, model_store.default_store(os.environ))
    draft: sources.ModelSource | None = None
    started = parsed
    if parsed.speculative.draft_model is not None:
        draft = sources.resolve_draft(parsed.speculative.draft_model, model_store.default_store(os.environ))
        found = dataclasses.replace(parsed.speculative, draft_model=str(draft.path))
        started = dataclasses.replace(parsed, speculative=found)  # the engine's process looks into no store
    shared = app.create_context(parsed, model_name=parsed.model.name or source.name)
    shared.cards = nvml.Cards(os.environ)
    listener = listening.bind(parsed.server.host, parsed.server.port)
    announcer = _announcer(console, listening.url(listener, contract.url_scheme(parsed)), shared)

    async def run() -> int:
        life = lifecycle.Lifecycle(
            shared, lambda: client.start(started, source), lambda: vocabulary.load(source, draft), announcer
        )
        return await life.run(listener)

    shared.cards.start()
    with listener, announcer, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(run())
        finally:
            shared.cards.stop()


class Announcer:
    """Says on standard error what happens; a bar while loading where that is a terminal, else a line a quarter."""

    def __init__(self, console: rich.console.Console, url: str, shared: context.Context) -> None:
        self._console = console
        self._url = url
        self._shared = shared
        self._quarter = -1
        self._bar = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.TaskProgressColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> Announcer:
        self._bar.start()
        self._task = self._bar.add_task(f"loading {self._shared.model_name}", total=1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def loading(self, progress: messages.LoadProgress) -> None:
        if self._console.is_terminal and self._task is not None:
            self._bar.update(self._task, description=progress.phase, completed=progress.fraction)
        elif int(progress.fraction * 4) != self._quarter:
            self._quarter = int(progress.fraction * 4)
            self._say(f"loading {self._shared.model_name}: {progress.fraction:.0%}, {progress.phase}")

    def ready(self) -> None:
        self._bar.stop()
        key = " -H 'Authorization: Bearer KEY'" if self._shared.keys is not None else ""
        body = f'{{"model":"{self._shared.model_name}","messages":[{{"role":"user","content":"Hello"}}]}}'
        self._say(f"ready: {self._shared.model_name} at {self._url}/v1")
        self._say(f"watch: {self._url}{http.CONSOLE_PATH} in a browser")
        self._say(f"try: curl {self._url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'")

    def draining(self, num_requests: int, seconds: float) -> None:
        self._bar.stop()
        self._say(f"stopping: {num_requests} requests may finish within {seconds:g} s (Ctrl-C again ends now)")

    def failed(self, reason: reasons.Reason, message: str) -> None:
        self._bar.stop()
        self._say(reasons.write(reason, message))

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


def _announcer(console: rich.console.Console, url: str, shared: context.Context) -> Announcer:
    return Announcer(console, url, shared)


def _flag_entries() -> list[config_parsing.Entry]:
    return [entry for entry in config_parsing.entries() if entry.setting.flag is not None]


def _parameter(entry: config_parsing.Entry) -> str:
    """`--max-num-seqs` arrives as `max_num_seqs`."""
    return (entry.setting.flag or "").replace("-", "_")


def _signature() -> inspect.Signature:
    """MODEL, --config, and one text option a setting, so that every wrong value is reported by the one parser."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    model = Annotated[str | None, typer.Argument(help=f"{sources.SUPPORTED}.", metavar="MODEL")]
    file = Annotated[Path | None, typer.Option("--config", help="YAML file with any of the settings below.")]
    parameters = [
        inspect.Parameter("model", keyword, default=None, annotation=model),
        inspect.Parameter("config", keyword, default=None, annotation=file),
    ]
    for entry in _flag_entries():
        default = "" if entry.default is None else f" [default: {entry.default}]"
        text = f"{entry.key}: {config_parsing.describe(entry)}{default}"
        option = Annotated[
            str | None, typer.Option(f"--{entry.setting.flag}", help=text, metavar="VALUE", show_default=False)
        ]
        parameters.append(inspect.Parameter(_parameter(entry), keyword, default=None, annotation=option))
    return inspect.Signature(parameters, return_annotation=None)


command.__signature__ = _signature()  # type: ignore[attr-defined]
command.__annotations__ = {name: each.annotation for name, each in _signature().parameters.items()}
