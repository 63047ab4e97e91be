"""`tidemark status NAME`: one screen that answers "is it fine, and if not, what do I do?".

With argparse, not typer: typer and pydantic take longer to import than everything else here together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tidemark_operator.cluster.local import control_client, files


class StatusCommand:
    """What `cli` calls, in the shape of a Click command."""

    def main(self, args: Sequence[str], prog_name: str) -> None:
        """Raises `NotRunning` or another `OperatorError`; `SystemExit` for `--help` and wrong options."""
        options = parser(prog_name).parse_args(args)
        root = files.root()
        overview = control_client.overview(options.name or _only_one(files.running(root)), root)
        if options.url:
            sys.stdout.write(f"{overview['url']}\n")
        elif options.output == "json":
            sys.stdout.write(f"{json.dumps(overview, indent=2)}\n")
        else:
            import rich.console  # here, because scripts do not need it

            from tidemark_operator.commands import status_view

            rich.console.Console(highlight=False).print(status_view.render(overview), soft_wrap=True)


def parser(prog_name: str) -> argparse.ArgumentParser:
    """The options of the verb."""
    made = argparse.ArgumentParser(prog=prog_name, description="Show on one screen how a service is and what to do.")
    made.add_argument("name", nargs="?", help="of the service; not needed when only one runs")
    made.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text, or json for scripts")
    made.add_argument("--url", action="store_true", help="print the URL and nothing else")
    return made


def _only_one(running: Sequence[str]) -> str:
    if len(running) == 1:
        return running[0]
    known = f"{len(running)} run here: {', '.join(running)}" if running else "nothing runs here now"
    raise control_client.NotRunning(f"which service? {known}. Say `tidemark status NAME`")


command = StatusCommand()
