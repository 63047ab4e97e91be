"""The entry point: lazy verbs, exit codes, messages instead of tracebacks."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tidemark_operator import cli
from tidemark_operator import errors as operator_errors
from tidemark_runtime import errors as runtime_errors

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def status_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Puts an object in the place of the verb `status`."""

    def put(command: object) -> None:
        module = types.ModuleType("verb_made_for_a_test")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.VERBS, "status", cli.Verb(f"{module.__name__}:command", "made for a test", "operator"))

    return put


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, verb in cli.VERBS.items():
        assert f"  {name} " in shown
        assert verb.help in shown


@pytest.mark.parametrize("name", ["plan", "eval"])
@pytest.mark.parametrize(
    "error", [runtime_errors.CapacityError("no sum"), runtime_errors.ModelNotFound("none"), ModuleNotFoundError()]
)
def test_a_verb_whose_1_is_an_answer_ends_with_2_where_it_has_none(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(error, ModuleNotFoundError):
        error.name = "torch"

    def load(_: cli.Verb) -> object:
        raise error

    monkeypatch.setattr(cli, "_load", load)
    assert cli.run([name, "x"]) == 2
    assert capsys.readouterr().err.startswith("tidemark: ")
    assert cli.run(["serve", "x"]) == 1


def test_no_argument_shows_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([]) == 0
    assert capsys.readouterr().out == cli.help_text()


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"tidemark {cli.version()}\n"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [("stauts", "Did you mean `tidemark status`?"), ("xyz", "`tidemark --help` lists them."), ("--verison", "option")],
)
def test_unknown_verb_is_named_with_the_nearest(typed: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([typed]) == 2
    shown = capsys.readouterr().err
    assert repr(typed) in shown
    assert hint in shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (runtime_errors.ModelNotFound("no model x; `tidemark models list` shows those known"), 1),
        (runtime_errors.ConfigError([runtime_errors.Problem("server.port", "x", "a whole number")]), 2),
        (operator_errors.NotFound("no service x is running here"), 1),
        (operator_errors.ManifestError([operator_errors.Problem("spec.replicas", -1, "0 or more")]), 2),
        (operator_errors.ManifestFileError("x.yaml does not exist"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_a_message_and_an_exit_code(
    error: BaseException, code: int, status_is: Callable[[object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    status_is(raising(error))
    assert cli.run(["status"]) == code
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err
    assert str(error) in shown.err
    assert shown.out == ""


def test_an_error_nobody_planned_keeps_its_traceback(status_is: Callable[[object], None]) -> None:
    status_is(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.run(["status"])


def test_a_missing_package_names_the_extra(
    status_is: Callable[[object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    status_is(raising(ModuleNotFoundError("No module named 'torch'", name="torch")))
    assert cli.run(["status"]) == 1
    shown = capsys.readouterr().err
    assert "'torch'" in shown
    assert "pip install 'tidemark-inference[operator]'" in shown


def test_a_missing_module_of_ours_is_a_bug_not_a_missing_extra(status_is: Callable[[object], None]) -> None:
    status_is(raising(ModuleNotFoundError("No module named 'tidemark_x'", name="tidemark_x")))
    with pytest.raises(ModuleNotFoundError):
        cli.run(["status"])


def test_typed_function_typer_app_and_exit_code(
    status_is: Callable[[object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def command(name: str) -> None:
        sys.stdout.write(f"hello {name}\n")
        raise typer.Exit(3)

    status_is(command)
    assert cli.run(["status", "you"]) == 3
    app = typer.Typer(add_completion=False)
    app.command("greet")(command)
    app.command("other")(command)
    status_is(app)
    assert cli.run(["status", "greet", "them"]) == 3
    assert capsys.readouterr().out == "hello you\nhello them\n"


def test_wrong_options_exit_with_two(status_is: Callable[[object], None]) -> None:
    status_is(raising(ZeroDivisionError()))
    assert cli.run(["status", "--no-such-option"]) == 2


def test_main_ends_in_system_exit() -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["no-such-verb"])
    assert ended.value.code == 2


@pytest.mark.parametrize("name", cli.VERBS)
def test_every_verb_has_its_module_and_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, attribute = cli.VERBS[name].target.partition(":")
    assert hasattr(importlib.import_module(module), attribute)
    assert cli.run([name, "--help"]) == 0
    assert f"tidemark {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["status", "--help"], ["apply", "--help"], ["serve", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """`tidemark --help` and `status` never import torch; the first one not even typer."""
    program = (
        "import sys\n"
        "from tidemark_operator import cli\n"
        f"code = cli.run({arguments!r})\n"
        "heavy = {'torch', 'triton', 'transformers', 'kopf'} & set(sys.modules)\n"
        f"if {arguments!r} == ['--help']: heavy |= {{'typer', 'pydantic', 'yaml', 'rich'}} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_dash_m_works() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidemark_operator", "stauts"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Did you mean `tidemark status`?" in done.stderr


def test_the_entry_point_imports_only_errors_at_its_head() -> None:
    tree = ast.parse((ROOT / "operator/tidemark_operator/cli.py").read_text(encoding="utf-8"))
    roots = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    ours = {name for name in roots if name.split(".")[0] not in sys.stdlib_module_names}
    assert ours == {"tidemark_operator", "tidemark_runtime"}


LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(("sign", "shown"), [("✓", "+"), ("✗", "x"), ("█░", "#."), ("é", "?")])
def test_a_terminal_that_cannot_show_a_sign_gets_a_plain_one(sign: str, shown: str) -> None:
    program = f"from tidemark_operator import cli; cli._accept_any_terminal(); print({sign!a})"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **LOCALE}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{shown}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["models", "list"], ["render", str(ROOT / "examples/smollm2.yaml")]])
def test_output_that_cannot_be_written_is_told_in_a_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tidemark_operator", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (
        1,
        ["tidemark: cannot write the output, or a file: No space left on device. Free some space and try again"],
    )
    assert "Traceback" not in done.stderr
