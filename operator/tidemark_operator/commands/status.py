"""`tidemark status NAME`: one screen that answers "is it fine, and if not, what do I do?".

Who is asked is never a guess: this machine's `tidemark up`, unless an option speaks of a cluster.

With argparse, not typer: typer and pydantic take longer to import than everything else here together. For the same
reason what asks a cluster is imported only when one is asked.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tidemark_operator import errors
from tidemark_operator.commands import error_json, status_local

EXIT_NOT_FINE = 1
_LOCAL_POLL_SECONDS = 0.5
_CLUSTER_POLL_SECONDS = 2.0
_EXIT_CODES = """exit codes:
  0  Ready, and nothing is wrong; without NAME on a cluster: so are all
  1  not Ready, or Degraded, or not there, or it could not be asked
  2  the command line is wrong
"""
_COLUMNS = 100
"""Of a screen, at most: longer lines are hard to read."""

Overview = dict[str, Any]


class StatusCommand:
    """What `cli` calls, in the shape of a Click command."""

    def main(self, args: Sequence[str], prog_name: str) -> None:
        """Raises `NotRunning` or another `OperatorError`; `SystemExit` with the code where it is not 0."""
        made = parser(prog_name, as_json=error_json.wanted(args))
        options = made.parse_args(args)
        _check(made, options)
        if asks_cluster(options):
            from tidemark_operator.commands import status_cluster  # here, because it takes a second to import

            with status_cluster.opened(options) as cluster:
                look = cluster.overview if options.name else cluster.overviews
                found = _fine_in_time(look, options.wait, _CLUSTER_POLL_SECONDS)
        else:
            found = _fine_in_time(lambda: status_local.overview(options.name), options.wait, _LOCAL_POLL_SECONDS)
        _show(found, options)
        if not is_fine(found):
            raise SystemExit(EXIT_NOT_FINE)


def asks_cluster(options: argparse.Namespace) -> bool:
    """Whether the words of the command line mean a cluster."""
    return bool(options.cluster or options.all_namespaces or options.namespace or options.context or options.kubeconfig)


def is_fine(overview: Mapping[str, Any]) -> bool:
    """Ready for the spec of now, and not Degraded: some pods may answer while others crash. Of a list: all of them."""
    if "services" in overview:
        return all(is_fine(service) for service in overview["services"])
    conditions = overview["status"].get("conditions") or ()
    degraded = any(item["type"] == "Degraded" and item["status"] == "True" for item in conditions)
    return bool(overview["ready"]) and not degraded


class _Parser(argparse.ArgumentParser):
    """As argparse's, but with `--output json` wrong usage is told in JSON as well."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            self.exit(2, error_json.text(message))
        super().error(message)


def parser(prog_name: str, *, as_json: bool = False) -> argparse.ArgumentParser:
    """The options of the verb."""
    made = _Parser(
        prog=prog_name,
        description="Show on one screen how a service is and what to do.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.as_json = as_json
    made.add_argument(
        "name", nargs="?", help="of the service; not needed when only one runs here. On a cluster, without it: a table"
    )
    made.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text, or json for scripts")
    made.add_argument("--url", action="store_true", help="print the URL and nothing else")
    made.add_argument(
        "--wait", type=_seconds, default=0.0, metavar="SECONDS", help="wait for it to be fine, but no longer than this"
    )
    _add_cluster(made)
    return made


def _add_cluster(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group(
        "on a cluster",
        "Any of these asks the cluster of the kubeconfig, as `kubectl tidemark status` always does. Without them the "
        "`tidemark up` of this machine is asked.",
    )
    group.add_argument("--cluster", action="store_true", help="ask the cluster")
    group.add_argument("-n", "--namespace", metavar="NAMESPACE", help="the context's, if not given")
    group.add_argument("-A", "--all-namespaces", action="store_true", help="a table of all services")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one, if not given")
    group.add_argument("--kubeconfig", metavar="FILE", help="if not given: KUBECONFIG, else ~/.kube/config")


def _check(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Options that contradict each other are wrong usage."""
    for option in ("namespace", "context", "kubeconfig"):
        if getattr(options, option) == "":
            made.error(f"--{option}: got nothing, expected a name. Leave the option out to take the default")
    if options.all_namespaces and options.namespace:
        made.error("--all-namespaces and --namespace contradict each other; give one of them")
    if options.all_namespaces and options.name:
        made.error(f"--all-namespaces gives a table; for {options.name!r} name its namespace with --namespace")
    if options.url and not options.name and asks_cluster(options):
        made.error("--url: which service's? Give its name as well")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError
    return seconds


def _fine_in_time(look: Callable[[], Overview], wait_seconds: float, poll_seconds: float) -> Overview:
    """The first overview that is fine, or the last one in time. Raises as `look` does."""
    end = time.monotonic() + wait_seconds
    while True:
        last_try = time.monotonic() >= end
        try:
            overview = look()
        except (status_local.NotRunning, errors.NotFound, errors.Unavailable):  # it may have just been started
            if last_try:
                raise
        else:
            if last_try or is_fine(overview):
                return overview
        time.sleep(min(poll_seconds, max(0.0, end - time.monotonic())))


def _show(found: Mapping[str, Any], options: argparse.Namespace) -> None:
    if options.url:
        sys.stdout.write(f"{found['url']}\n")
        return
    if options.output == "json":
        sys.stdout.write(f"{json.dumps(found, indent=2)}\n")
        return
    if "services" in found:
        from tidemark_operator.commands import status_table  # here, because scripts do not need it

        sys.stdout.write(status_table.render(found))
        return
    import rich.console  # here, because scripts do not need it

    from tidemark_operator.commands import status_view

    console = rich.console.Console(highlight=False)
    # Lines that go into a pipe stay whole, for grep.
    columns = min(console.width, _COLUMNS) if console.is_terminal else None
    console.print(status_view.render(found, columns=columns), soft_wrap=True)


command = StatusCommand()
