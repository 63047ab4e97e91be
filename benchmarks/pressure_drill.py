"""The drill under load, timed: line, alert, message, condition, event, a lower limit, and all of it back.

    python benchmarks/pressure_drill.py --clock 40 1 --write

On a Kubernetes of our own as root, with Debian's prometheus and prometheus-alertmanager; see
docs/operations/test-bed.md and docs/operations/drill.md. `--clock 1` is the rules' own time and takes 40 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import machine

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "support")]

from alerting import programs  # noqa: E402  the paths come first
from bed import layout, lifecycle, running  # noqa: E402
from drill import run as run_  # noqa: E402
from drill import site as site_  # noqa: E402

from tidemark_runtime import model_store  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "pressure_drill.md"
NAME = "pressure"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--clock", type=float, nargs="+", default=[40.0], help="how much faster the rules' time passes")
    parser.add_argument("--bed", help="one that runs, of `bed up --name`; default: one of its own")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    options = parser.parse_args()
    if missing := programs.missing():
        raise SystemExit(missing)
    model_store.fetch(site_.MODEL)
    with _bed(options.bed) as bed:
        results = {clock: _drill(bed, clock) for clock in options.clock}
    text = table(results, " ".join(f"{clock:g}" for clock in options.clock))
    print(text)
    if options.write:
        RESULT.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _bed(name: str | None) -> Iterator[running.Bed]:
    if name is not None:
        yield running.Bed(layout.Layout(name).kubeconfig, layout.Layout(name))
        return
    bed = lifecycle.up(NAME, layout.Options(size="node"), owned=True)
    try:
        yield bed
    finally:
        lifecycle.down(NAME)


def _drill(bed: running.Bed, clock: float) -> run_.Result:
    with tempfile.TemporaryDirectory() as folder, site_.prepared(bed, Path(folder), clock) as site:
        return run_.run(site)


def table(results: dict[float, run_.Result], clocks: str) -> str:
    """Markdown. Rows in the order of the first drill."""
    first = next(iter(results.values()))
    heads = [f"rules {clock:g} times faster, s" if clock != 1 else "rules as rendered, s" for clock in results]
    rows = [
        [first.line.words[key], *(f"{result.line.since_start(key):.1f}" for result in results.values())]
        for key in sorted(first.line.at, key=first.line.at.__getitem__)
    ]
    answers = "; ".join(f"{load}: {counts}" for load, counts in first.answers.items())
    return "\n".join(
        [
            "# Load over both lines, and what everybody said",
            "",
            f"Command: `python benchmarks/pressure_drill.py --clock {clocks} --write`. Machine: {machine.describe()}; "
            f"load average {os.getloadavg()[0]:.0f}.",
            "",
            f"One engine with SmolLM2-135M in a pod, `maxConcurrencySoft` {site_.SOFT_LIMIT}, "
            "`watermarks.response: tighten`; first load: "
            f"{run_.QUEUE_LOAD}; second: {first.second_load}, every other one of a lower priority. "
            f"Lowered to {first.lowered_to}. Answers, by HTTP status (streams that the end of a load cut off count): "
            f"{answers}.",
            "",
            "Seconds since the load began, each by whoever saw it: samples of Prometheus (a scrape every 15 s, divided "
            "by the factor, of two seconds at least), times of events, messages as they came. The operator looks every "
            "5 s; conditions have whole seconds. Operator and engine keep their own times in all columns.",
            "",
            f"| | {' | '.join(heads)} |",
            "|---|" + "---|" * len(heads),
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
