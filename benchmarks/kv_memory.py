"""Quantized KV memory, shown: accuracy, concurrency at equal memory and speed beside each other, on the real engine.

    python benchmarks/kv_memory.py                    everything: about an hour on two cores
    python benchmarks/kv_memory.py concurrency        one section; the others stay as they are in the file

SmolLM2-135M on the processor. Accuracy is `tidemark eval` in this process, and goes on where it was stopped. Sections
are written into benchmarks/results/kv_memory.md one by one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import kv_accuracy
import kv_bytes
import kv_concurrency
import kv_speed
import machine
import sections

from tidemark_runtime.evaluation import subject

RESULTS = Path(__file__).resolve().parent / "results/kv_memory.md"

HEAD = """# Quantized KV memory, measured

Command: `make bench-kv`, or `python benchmarks/kv_memory.py SECTION`. Every figure is of the real engine and the real
small model on a processor. Ratios and counts can be compared from machine to machine, seconds cannot.
"""

TITLES = {
    "accuracy": "Accuracy",
    "retrieval": "Facts in a text of 8k tokens",
    "concurrency": "Concurrency at equal KV memory",
    "speed": "Decode speed",
    "bytes": "KV bytes a token",
    "map": "The maps",
}
"""In the order of the page."""
ORDER = ("map", "accuracy", "retrieval", "bytes", "concurrency", "speed")
"""In which they are measured: the others need the map."""
KEPT = ("map", "accuracy", "retrieval")
"""Sections that go on where they were stopped."""


def write(name: str, met: bool, lines: Sequence[str]) -> None:
    """Put a section into the file, and show it."""
    print(f"\n{sections.Results(RESULTS, HEAD, TITLES).write(name, met, lines)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(ORDER)}")
    parser.add_argument("--threads", type=int, default=None, help="default: all cores")
    arguments = parser.parse_args()
    names = arguments.sections or ORDER
    unknown = [name for name in names if name not in TITLES]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(ORDER)}")

    @cache
    def tested() -> subject.Subject:
        return kv_accuracy.load(arguments.threads)

    measured: dict[str, Callable[[], tuple[bool, list[str]]]] = {
        "map": lambda: kv_accuracy.find_maps(tested()),
        "accuracy": lambda: kv_accuracy.accuracy(tested()),
        "retrieval": lambda: kv_accuracy.retrieval(tested()),
        "bytes": kv_bytes.bytes_of_shapes,
        "concurrency": lambda: kv_concurrency.concurrency(tested()),
        "speed": lambda: kv_speed.speed(tested()),
    }
    all_met = True
    for name in (one for one in ORDER if one in names):
        started = time.perf_counter()
        met, lines = measured[name]()
        all_met = all_met and met
        seconds = time.perf_counter() - started
        kept = ", with what .bench/kv_memory had of a run before" if name in KEPT else ""
        made = f"`python benchmarks/kv_memory.py {name}`, {seconds:,.0f} s{kept}, on {machine.describe()}."
        write(name, met, [*lines, "", made])
    raise SystemExit(0 if all_met else 1)


if __name__ == "__main__":
    main()
