"""The command `tidemark`: finds the verb's module, imports only that, and turns its errors into exit codes.

    0  done
    1  the thing asked for failed; the message says why and what to do. `status`: the service is not fine; `inspect`:
       something was found; `plan`: it does not fit; `eval`: a limit is broken
    2  the command line, a setting or a manifest is wrong; `inspect`, `plan`, `eval`: there is no answer
    130  stopped with Ctrl-C

Nothing but the standard library is imported before the verb is known, so `tidemark --help` and `tidemark status`
answer quickly and never load torch.
"""

from __future__ import annotations

import codecs
import difflib
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tidemark_operator import errors as operator_errors
from tidemark_runtime import errors as runtime_errors

DISTRIBUTION = "tidemark-inference"

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

_WRONG_INPUT = (operator_errors.ManifestError, operator_errors.ManifestFileError, operator_errors.PrometheusMistaken)
"""What was typed, or a file that was named, is wrong: the same command line fails again."""

_STDOUT = 1
_CANNOT_WRITE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT})
_PLAIN = (
    {"✓": "+", "✗": "x", "█": "#", "░": ".", "×": "x", "·": ".", "…": "."} | dict.fromkeys("─━╭╮╰╯", "-") | {"│": "|"}
)


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives and what it needs."""

    target: str
    """`module:attribute`; the attribute is a typed function, a Typer app or a Click command."""
    help: str
    extras: str
    """Extras of the distribution that bring what the module imports."""
    no_answer: int = EXIT_FAILED
    """Exit code where it fails. `EXIT_USAGE` of a verb whose 1 is an answer, which a script must not mistake."""


VERBS = {
    "up": Verb(
        "tidemark_operator.commands.up:command",
        "Run an InferenceService manifest on this machine, no cluster needed.",
        "operator,runtime",
    ),
    "apply": Verb(
        "tidemark_operator.commands.apply:command",
        "Hand a changed manifest to the `tidemark up` that runs it.",
        "operator",
    ),
    "status": Verb(
        "tidemark_operator.commands.status:command",
        "Show on one screen how a service is and what to do about it.",
        "operator",
    ),
    "render": Verb(
        "tidemark_operator.commands.render:command",
        "Print the Kubernetes objects a manifest stands for.",
        "operator",
    ),
    "plan": Verb(
        "tidemark_operator.commands.plan:command",
        "Show what memory a manifest takes and how many requests fit, before anything starts.",
        "operator",
        EXIT_USAGE,
    ),
    "profile": Verb(
        "tidemark_operator.commands.profile:command",
        "Show what a running engine measured beside its plan, and what bounds it.",
        "operator",
    ),
    "report": Verb(
        "tidemark_operator.commands.report:command",
        "Report what a quarter cost and brought, from Prometheus: HTML, CSV, and a formula beside each figure.",
        "operator",
    ),
    "inspect": Verb(
        "tidemark_operator.commands.inspect:command",
        "Look at all services, or at one address, and say what needs a hand.",
        "operator",
    ),
    "operator": Verb(
        "tidemark_operator.commands.operator:command",
        "Run the operator against a Kubernetes cluster: what its pod runs.",
        "operator",
    ),
    "bundle": Verb(
        "tidemark_operator.commands.bundle:command",
        "Write everything a site without internet needs into a folder, or verify one.",
        "operator",
    ),
    "serve": Verb(
        "tidemark_runtime.commands.serve:command",
        "Serve one model over HTTP: what a pod runs.",
        "runtime",
    ),
    "simulate": Verb(
        "tidemark_runtime.commands.simulate:command",
        "Predict how a device and a model serve a workload, with the real scheduler.",
        "runtime",
    ),
    "eval": Verb(
        "tidemark_runtime.commands.eval:app",
        "Measure what quantized KV memory costs in accuracy, and find what to keep at 16 bits.",
        "runtime",
        EXIT_USAGE,
    ),
    "bench": Verb(
        "tidemark_runtime.commands.bench:command",
        "Load a running engine, measure what its users would feel, and find how many it takes at once.",
        "runtime",
    ),
    "models": Verb(
        "tidemark_runtime.commands.models:app",
        "List, fetch and verify models.",
        "runtime",
    ),
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script; always ends in `SystemExit`."""
    _accept_any_terminal()
    sys.exit(_with_output(list(sys.argv[1:] if argv is None else argv)))


def _accept_any_terminal() -> None:
    """Output that cannot show a sign gets a plain look-alike, instead of ending the command."""
    codecs.register_error("tidemark", _look_alike)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="tidemark")


def _look_alike(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(sign, "?") for sign in error.object[error.start : error.end]), error.end


def _with_output(argv: Sequence[str]) -> int:
    """`run`, and standard output written out: a reader who went away (`| head`) is no news, a full disk is."""
    try:
        code = run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        # What could not be written is still in the buffer, and would be tried again, and told, at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        if error.errno == errno.EPIPE:
            return EXIT_FAILED
        where = error.filename or "the output, or a file"
        return _fail(f"cannot write {where}: {error.strerror}. Free some space and try again", EXIT_FAILED, argv)
    return code


def run(argv: Sequence[str]) -> int:
    """Carry out one command line and return the exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return 0
    if argv[0] == "--version":
        sys.stdout.write(f"tidemark {version()}\n")
        return 0
    name, *rest = argv
    if name not in VERBS:
        return _fail(unknown_verb(name), EXIT_USAGE, argv)
    verb = VERBS[name]
    try:
        return _invoke(_load(verb), name, rest)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("tidemark_"):
            raise
        return _fail(missing_package(name, error.name), verb.no_answer, argv)
    except (runtime_errors.ConfigError, *_WRONG_INPUT) as error:
        return _fail(error, EXIT_USAGE, argv)
    except (runtime_errors.TidemarkError, operator_errors.OperatorError) as error:
        return _fail(error, verb.no_answer, argv)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def version() -> str:
    """Of the installed distribution."""
    from importlib import metadata  # here, because it costs more than all the rest of `tidemark --help`

    return metadata.version(DISTRIBUTION)


def help_text() -> str:
    """What `tidemark --help` prints: one line a verb."""
    width = max(map(len, VERBS))
    lines = [f"  {name:<{width}}  {verb.help}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "Usage: tidemark VERB [OPTIONS] [ARGUMENTS]",
            "",
            "Private LLM appliances: an operator and an engine with planned, visible KV memory.",
            "",
            "Verbs:",
            *lines,
            "",
            "`tidemark VERB --help` explains one verb, `tidemark --version` names the version.",
            "",
        ]
    )


def unknown_verb(name: str) -> str:
    """The message for a verb that is not in the table, with the nearest one that is."""
    kind = "option" if name.startswith("-") else "verb"
    near = difflib.get_close_matches(name, VERBS, n=1)
    hint = f"Did you mean `tidemark {near[0]}`?" if near else "`tidemark --help` lists them."
    return f"{kind} {name!r} is not known, expected one of {', '.join(VERBS)}. {hint}"


def missing_package(verb: str, package: str) -> str:
    """The message when the verb's own dependencies are not installed."""
    return (
        f"`tidemark {verb}` needs the Python package {package!r}, which is not installed here. "
        f"Install it with: pip install '{DISTRIBUTION}[{VERBS[verb].extras}]'"
    )


def _load(verb: Verb) -> Any:
    module, _, attribute = verb.target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _invoke(target: Any, name: str, arguments: Sequence[str]) -> int:
    """Run a Typer app, a typed function or anything with a `main` like Click's; wrong usage exits with 2."""
    if not hasattr(target, "main"):
        return _run_typer(_typer_command(target, name), name, arguments)
    try:
        target.main(args=list(arguments), prog_name=f"tidemark {name}")
    except SystemExit as exit_:
        return _exit_code(exit_.code)
    return 0


def _run_typer(command: Any, name: str, arguments: Sequence[str]) -> int:
    import typer  # here, so that `tidemark --help` does not pay for it

    as_json = _wants_json(arguments)
    try:
        # Not standalone: what is wrong with the arguments is raised instead of drawn.
        code = command.main(args=list(arguments), prog_name=f"tidemark {name}", standalone_mode=not as_json)
    except typer.TyperException as error:
        return _fail(error.format_message(), error.exit_code, (name, *arguments))
    except SystemExit as exit_:
        return _exit_code(exit_.code)
    return _exit_code(code)


def _exit_code(code: object) -> int:
    return code if isinstance(code, int) else int(code is not None)


def _typer_command(target: Callable[..., Any] | Any, name: str) -> Any:
    import typer  # here, so that `tidemark --help` does not pay for it

    if isinstance(target, typer.Typer):
        return typer.main.get_command(target)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name=name)(target)
    return typer.main.get_command(app)


def _wants_json(arguments: Sequence[str]) -> bool:
    from tidemark_operator.commands import error_json  # here, so that `tidemark --help` does not pay for it

    return error_json.wanted(arguments)


def _fail(error: Exception | str, code: int, argv: Sequence[str]) -> int:
    if _wants_json(argv):
        from tidemark_operator.commands import error_json  # as above

        sys.stderr.write(error_json.text(error))
    else:
        sys.stderr.write(f"tidemark: {error}\n")
    return code
