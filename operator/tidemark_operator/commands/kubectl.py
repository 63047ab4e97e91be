"""`kubectl tidemark`: the executable `kubectl-tidemark`, which kubectl finds on PATH.

`kubectl tidemark status` is `tidemark status --cluster`, and so for `inspect`; it becomes that process, so both have
the same options, messages and exit codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

_EXIT_USAGE = 2
_HELP = """\
Usage: kubectl tidemark VERB [OPTIONS] [ARGUMENTS]

Verbs:
  status   One screen about an InferenceService of the cluster: what runs, why not, and what to do.
           Without a name: a table of those in the namespace; -A: in all namespaces.
  inspect  Look at all services of the namespace, with -A of the cluster, and say what needs a hand.
  render   Print the Kubernetes objects that a manifest stands for; asks no cluster.

Examples:
  kubectl tidemark status
  kubectl tidemark status NAME -n NAMESPACE
  kubectl tidemark status NAME --wait 300 && echo ready
  kubectl tidemark inspect -A

`kubectl tidemark VERB --help` explains one verb. kubectl takes options after the verb only.
What else there is needs no cluster: `tidemark --help`.
"""
_WORDS = {"status": ("status", "--cluster"), "inspect": ("inspect", "--cluster"), "render": ("render",)}
"""Verb -> the words of `tidemark` that it stands for."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_HELP)
        sys.exit(0)
    verb, *rest = words
    if verb not in _WORDS:
        sys.stderr.write(
            f"kubectl tidemark: verb {verb!r} is not known, expected one of {', '.join(_WORDS)}. "
            "`kubectl tidemark` explains them.\n"
        )
        sys.exit(_EXIT_USAGE)
    sys.stdout.flush()
    # -P: a folder of the same name where the user stands must not be taken for our package.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "tidemark_operator", *_WORDS[verb], *rest])
