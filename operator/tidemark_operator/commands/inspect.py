"""`tidemark inspect`: looks at all services of a cluster, at one, or at an address, and says what needs a hand.

    0  nothing at or above --fail-on was found
    1  something was
    2  it could not look: wrong usage, or nobody answered, the Prometheus that was named among them

With argparse, as `tidemark status`: both speak of the same clusters in the same words.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tidemark_operator import errors
from tidemark_operator.commands import error_json
from tidemark_operator.monitoring.rules.model import Language
from tidemark_operator.monitoring.rules.thresholds import RUNBOOK_BASE_URL

EXIT_FOUND = 1
EXIT_NOT_INSPECTED = 2
_COLUMNS = 100
_MATCH = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*=.+")
_EXIT_CODES = """exit codes:
  0  nothing at or above --fail-on was found
  1  something was
  2  it could not look: wrong usage, no such service, or nobody answered; or --prometheus did not, and all that was
     seen without it is fine

examples:
  tidemark inspect                                  the `tidemark up` of this machine
  tidemark inspect --url http://127.0.0.1:8000      one engine, nothing else needed
  tidemark inspect --all-namespaces --prometheus http://prometheus.monitoring:9090
"""


class InspectCommand:
    """What `cli` calls, in the shape of a Click command."""

    def main(self, args: Sequence[str], prog_name: str) -> None:
        """Raises `SystemExit` with the code where it is not 0."""
        as_json = error_json.wanted(args)
        made = parser(prog_name, as_json=as_json)
        options = made.parse_args(args)
        _check(made, options)
        from tidemark_operator.commands import inspect_site  # here, because it takes a second to import

        try:
            document = inspect_site.inspect(options, datetime.datetime.now(datetime.UTC))
        except errors.OperatorError as error:
            sys.stderr.write(error_json.text(error) if as_json else f"tidemark: {error}\n")
            raise SystemExit(EXIT_NOT_INSPECTED) from error
        _show(document, options)
        if _is_found(document, options.fail_on):
            raise SystemExit(EXIT_FOUND)
        if document["prometheusError"]:  # who asks for history and gets none must not take the rest for all of it
            why = f"--prometheus gave no figures: {document['prometheusError']}"
            sys.stderr.write(error_json.text(why) if as_json else f"tidemark: {why}\n")
            raise SystemExit(EXIT_NOT_INSPECTED)


def _is_found(document: dict[str, Any], fail_on: str) -> bool:
    summary = document["summary"]
    return bool(summary["critical"] or (fail_on == "warning" and summary["warning"]))


def _show(document: dict[str, Any], options: argparse.Namespace) -> None:
    if options.output == "json":
        sys.stdout.write(f"{json.dumps(document, indent=2, ensure_ascii=False)}\n")
        return
    if options.output == "html":
        from tidemark_operator.commands import inspect_html  # here, because others do not need it

        sys.stdout.write(inspect_html.render(document))
        return
    import rich.console  # here, because scripts do not need it

    from tidemark_operator.commands import inspect_text

    console = rich.console.Console(highlight=False)
    # Lines that go into a pipe stay whole, for grep.
    columns = min(console.width, _COLUMNS) if console.is_terminal else None
    console.print(inspect_text.render(document, columns), soft_wrap=True)


class _Parser(argparse.ArgumentParser):
    """As argparse's, but with `--output json` wrong usage is told in JSON as well."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if self.as_json:
            self.exit(EXIT_NOT_INSPECTED, error_json.text(message))
        super().error(message)


def parser(prog_name: str, *, as_json: bool = False) -> argparse.ArgumentParser:
    """The options of the verb."""
    made = _Parser(
        prog=prog_name,
        description="Look at services, and say what needs a hand: with numbers, and what to do.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.as_json = as_json
    made.add_argument("name", nargs="?", help="one service; without it all of the namespace")
    made.add_argument("--url", action="append", default=[], metavar="URL", help="an engine's address; may be repeated")
    made.add_argument("-o", "--output", choices=("text", "json", "html"), default="text", help="default: text")
    made.add_argument("--language", choices=tuple(Language), default="en", help="of the report; default: en")
    made.add_argument(
        "--fail-on",
        choices=("warning", "critical"),
        default="critical",
        help="end with 1 from here on; default: critical",
    )
    made.add_argument("--runbook-base-url", default=RUNBOOK_BASE_URL, metavar="URL", help="default: the operator's own")
    made.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="certificates to trust, for https: of --url and --prometheus"
    )
    _add_prometheus(made)
    _add_cluster(made)
    return made


def _add_prometheus(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("history", "Without a Prometheus, what needs one is listed as not checked.")
    group.add_argument("--prometheus", metavar="URL", help="http://HOST:PORT, with its path where it has one")
    group.add_argument(
        "--prometheus-token-file", "--token-file", type=Path, metavar="FILE", help="a bearer token to send to it"
    )
    group.add_argument(
        "--prometheus-match",
        action="append",
        default=[],
        metavar="LABEL=VALUE",
        help="look only at series with this label, such as cluster=paris",
    )
    group.add_argument(
        "--prometheus-service",
        metavar="NAMESPACE/NAME",
        help="labels of the one --url's series, where its address alone does not find them",
    )


def _add_cluster(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group(
        "on a cluster",
        "Any of these asks the cluster of the kubeconfig, or of the pod that this runs in. Without them, and without "
        "--url, the `tidemark up` of this machine is asked.",
    )
    group.add_argument("--cluster", action="store_true", help="ask the cluster")
    group.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="may be repeated; else the context's",
    )
    group.add_argument("-A", "--all-namespaces", action="store_true", help="all services")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig; its current one, if not given")
    group.add_argument("--kubeconfig", metavar="FILE", help="if not given: KUBECONFIG, else ~/.kube/config")
    group.add_argument(
        "--operator-namespace",
        default="",
        metavar="NAMESPACE",
        help="where its pods are looked for; default: everywhere",
    )
    group.add_argument("--record", metavar="NAMESPACE/NAME", help="keep the result in this ConfigMap as well")


def asks_cluster(options: argparse.Namespace) -> bool:
    """Whether the words of the command line mean a cluster."""
    words = (options.cluster, options.all_namespaces, options.namespace, options.context, options.kubeconfig)
    return any(words) or bool(options.record)


def _check(made: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Options that contradict each other are wrong usage."""
    cluster = asks_cluster(options)
    for option in ("context", "kubeconfig", "prometheus", "record"):
        if getattr(options, option) == "":
            made.error(f"--{option}: got nothing, expected a value. Leave the option out to take the default")
    if "" in options.namespace:
        made.error("--namespace: got nothing, expected a name. --all-namespaces means all")
    if options.url and (cluster or options.name):
        made.error("--url is one address; it does not go with a name or a cluster. Give one of them")
    if options.all_namespaces and (options.namespace or options.name):
        made.error("--all-namespaces looks at everything; it does not go with --namespace or a name")
    if options.name and len(options.namespace) > 1:
        made.error(f"{options.name!r}: in which namespace? Give --namespace once")
    if options.prometheus_service and len(options.url) != 1:
        made.error("--prometheus-service says which labels one --url has; give exactly one --url")
    if options.prometheus_service and not all(options.prometheus_service.partition("/")):
        made.error(f"--prometheus-service: got {options.prometheus_service!r}, expected NAMESPACE/NAME")
    for text in options.prometheus_match:
        if not _MATCH.fullmatch(text):
            made.error(f"--prometheus-match: got {text!r}, expected LABEL=VALUE, such as cluster=paris")
    if not options.prometheus and (options.prometheus_match or options.prometheus_token_file):
        made.error("--prometheus-match and --prometheus-token-file say nothing without --prometheus URL")


command = InspectCommand()
