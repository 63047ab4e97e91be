"""One script for the hour in which a card is at hand: checks first, then times; under ten minutes.

    python benchmarks/gpu.py [--only NAME ...] [--output FOLDER] [--seconds 540]
    python benchmarks/gpu.py --tiny      # every line of it on a processor, under Triton's interpreter

Writes gpu.json and gpu.md into `--output` (default: $OUT, else benchmarks/results) after every section. Ends with 1 if
a check failed, a section raised or there was no time for one; a missed goal is in the table and no failure.
`make test-gpu` runs it.

Sections run in a process of their own (`gpu_child.py`). One that crashes, hangs or breaks the card's context takes its
own rows with it; the others run in a new process.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpu_report

HERE = Path(__file__).resolve().parent


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="on the processor, with the smallest shapes")
    parser.add_argument("--only", nargs="*", default=[], help="names of sections; `copy` always runs")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("OUT") or HERE / "results"))
    parser.add_argument("--seconds", type=float, default=540, help="no section begins later than this")
    options = parser.parse_args(arguments)
    command = f"python benchmarks/gpu.py {shlex.join(arguments)}".strip()
    report = gpu_report.Report(options.output, {"command": command})
    if options.tiny:
        report.head["note"] = "the smallest shapes under Triton's interpreter: it shows that every line runs, no speed"
    run = Run(options, report)
    run.until_all_have_an_outcome()
    if run.refusal:
        sys.stderr.write(f"gpu.py: {run.refusal}\n")
        return 2
    sys.stdout.write(f"{options.output / 'gpu.md'}: ")
    sys.stdout.write(f"FAILED: {', '.join(report.failed)}\n" if report.failed else "every section ran\n")
    if report.skipped:
        sys.stdout.write(f"no time was left for {', '.join(report.skipped)}\n")
    return 1 if report.failed or report.skipped else 0


class Run:
    """Processes of sections, one after the other, and what they say."""

    def __init__(self, options: argparse.Namespace, report: gpu_report.Report) -> None:
        self.refusal = ""
        """Why nothing can run here."""
        self._options = options
        self._report = report
        self._waiting: list[str] | None = None
        """Sections without an outcome; None until a process has named them."""
        self._current = ""
        self._copy_bytes_a_second = 0.0
        self._started = time.perf_counter()

    def until_all_have_an_outcome(self) -> None:
        while not self.refusal and (self._waiting is None or self._waiting):
            for message in messages(self._arguments()):
                self._hear(message)
        self._report.write()

    def _arguments(self) -> list[str]:
        left = self._options.seconds - (time.perf_counter() - self._started)
        sections = self._options.only if self._waiting is None else self._waiting
        tiny = ["--tiny"] if self._options.tiny else []
        return [*tiny, "--seconds", str(left), "--copy", str(self._copy_bytes_a_second), *sections]

    def _hear(self, message: dict[str, Any]) -> None:
        kind = message.pop("kind")
        if kind == "refusal":
            self.refusal = message["text"]
        elif kind == "sections":
            self._report.head["machine"] = message["machine"]
            self._waiting = message["names"] if self._waiting is None else self._waiting
        elif kind == "begin":
            self._current = message["name"]
        elif kind == "skip":
            self._report.skipped.append(message["name"])
            self._is_over(message["name"])
        elif kind == "outcome":
            self._copy_bytes_a_second = message.pop("copy_bytes_a_second")
            self._add(message)
        elif kind == "end" and not self.refusal:
            self._hear_the_end(message)

    def _hear_the_end(self, message: dict[str, Any]) -> None:
        """A process that ended in a section, or before one, or after one that broke the card's context."""
        if self._waiting is None:
            self.refusal = f"the process of the sections ended with {message['status']} before the first one"
        elif self._current:
            error = f"its process ended with {message['status']}\n{message['words']}"
            name = self._current
            self._add({"name": name, "title": name, "seconds": 0.0, "rows": [], "error": error, "note": ""})

    def _add(self, outcome: gpu_report.Outcome) -> None:
        self._report.add(outcome)
        state = "FAILED" if gpu_report.is_failed(outcome) else "done"
        sys.stdout.write(f"{outcome['name']}: {state}, {len(outcome['rows'])} rows, {outcome['seconds']:.1f} s\n")
        sys.stdout.write(outcome["error"])
        sys.stdout.flush()
        self._is_over(outcome["name"])

    def _is_over(self, name: str) -> None:
        self._current = ""
        self._waiting = [one for one in self._waiting or [] if one != name]


def messages(arguments: list[str]) -> Iterator[dict[str, Any]]:
    """What one process of sections says; last, how it ended."""
    with tempfile.TemporaryFile(mode="w+") as words:
        command = [sys.executable, str(HERE / "gpu_child.py"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            # What a library prints is not ours.
            if line.startswith('{"kind"'):
                yield json.loads(line)
        process.wait()
        words.seek(0)
        text = words.read()
        sys.stderr.write(text)
        yield {"kind": "end", "status": process.returncode, "words": text[-4000:]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
