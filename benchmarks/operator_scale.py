"""The operator beside many services: memory, writes while nothing happens, time of a change, time of a start.

    python benchmarks/operator_scale.py --services 100 1000 --idle-seconds 600 --write

Against an API server of our own (etcd and kube-apiserver, no controllers, so no pods), as root; see
docs/operations/test-bed.md. For each number of services: make them, let the operator make their children, end it, start
it again over what is there, leave it alone, then change one service after the other and wait for its ConfigMap.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "support")]

import manifests  # noqa: E402  the paths come first
import operator_runs  # noqa: E402
from bed import layout, lifecycle, running  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "operator_scale.md"
NUM_CHANGES = 100
QUIET_SECONDS = 5.0
"""Settled: every service had a pass, and nothing was written for so long."""
CHUNK = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One number of services."""

    services: int
    objects: int
    first_seconds: float
    """From the start of the operator to all children made."""
    start_seconds: float
    """From its start over what is there to settled."""
    resident_mib: float
    peak_mib: float
    idle_writes: float
    changes_ms: Sequence[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--services", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--idle-seconds", type=float, default=600.0)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    options = parser.parse_args()
    rows = [measure(count, options.idle_seconds) for count in options.services]
    text = table(rows, options.idle_seconds)
    print(text)
    if options.write:
        RESULT.write_text(text, encoding="utf-8")


def measure(count: int, idle_seconds: float) -> Row:
    bed = lifecycle.up("scale", layout.Options(size="api"), owned=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(bed, count, idle_seconds, Path(folder))
    finally:
        lifecycle.down("scale")


def _measure(bed: running.Bed, count: int, idle_seconds: float, folder: Path) -> Row:
    bed.kubectl("apply", "-f", str(ROOT / "crds" / "tidemark.dev_inferenceservices.yaml"))
    bed.until_known("inferenceservices.tidemark.dev")
    for first in range(0, count, CHUNK):
        items = [_service(number) for number in range(first, min(first + CHUNK, count))]
        bed.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    arguments = ("--lease-namespace", "default")
    with operator_runs.started(bed.environment(), folder, *arguments) as operator:
        first_seconds = _settle(operator, count)
        operator.end()
    with operator_runs.started(bed.environment(), folder, *arguments) as operator:
        start_seconds = _settle(operator, count)
        process = psutil.Process(operator.process.pid)
        before = sum(operator.writes.values())
        peak = _leave_alone(process, idle_seconds)
        idle_writes = sum(operator.writes.values()) - before
        resident = process.memory_info().rss / 2**20
        changes = _change(bed, count)
        objects = int(sum(operator.samples("tidemark_operator_cached_objects").values()))
        operator.end()
    return Row(count, objects, first_seconds, start_seconds, resident, peak, idle_writes, changes)


def _service(number: int) -> dict[str, Any]:
    document = manifests.small()
    document["metadata"] = {"name": f"s{number}", "namespace": "default"}
    return document


def _settle(operator: operator_runs.Operator, count: int) -> float:
    """Seconds from now until every service had its pass; the quiet time in which that is seen is not counted."""
    began = last = time.monotonic()
    seen: tuple[float, float] = (-1.0, -1.0)
    while time.monotonic() - last < QUIET_SECONDS or seen[0] < count:
        time.sleep(1)  # each of the two answers takes the operator some hundredths of a second
        passes = sum(operator.samples("tidemark_operator_reconciles_total").values())
        now = (passes, sum(operator.writes.values()))
        if now != seen:
            seen, last = now, time.monotonic()
        if time.monotonic() - began > 1800 or operator.process.poll() is not None:
            raise SystemExit(f"the operator did not settle: {seen}\n{operator.log[-3000:]}")
    return last - began


def _leave_alone(process: psutil.Process, seconds: float) -> float:
    """Nothing happens for so long; returns the largest resident size in MiB."""
    end, peak = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        peak = max(peak, process.memory_info().rss / 2**20)
        time.sleep(1)
    return peak


def _change(bed: running.Bed, count: int) -> list[float]:
    """Milliseconds from the answer to a change of a spec until the ConfigMap is seen to have it, one by one."""
    chosen = [random.Random(0).randrange(count) for _ in range(NUM_CHANGES)]
    times = []
    with _watched(bed) as (seen, event):
        for turn, number in enumerate(chosen):
            value = 100 + turn
            patch = json.dumps({"spec": {"overload": {"maxQueuedRequests": value}}})
            bed.kubectl("patch", "inferenceservices.tidemark.dev", f"s{number}", "--type=merge", "-p", patch)
            began = time.monotonic()
            wanted = (f"s{number}", value)
            while wanted not in seen:
                event.wait(1)
                event.clear()
                if time.monotonic() - began > 60:
                    raise SystemExit(f"the change of {wanted} did not reach its ConfigMap in a minute")
            times.append(max(0.0, seen[wanted] - began) * 1000)
    return times


@contextlib.contextmanager
def _watched(bed: running.Bed) -> Iterator[tuple[dict[tuple[str, int], float], threading.Event]]:
    """(service, maxQueuedRequests) -> when a ConfigMap with it was seen."""
    seen: dict[tuple[str, int], float] = {}
    event = threading.Event()
    columns = 'jsonpath={.metadata.labels.tidemark\\.dev/service}{" "}{.data.engine\\.yaml}{"\\u0000"}'
    command = [bed.kubectl_program, "get", "configmaps", "--watch", "-l", "tidemark.dev/service", "-o", columns]
    process = subprocess.Popen(command, env=bed.environment(), stdout=subprocess.PIPE)

    def read() -> None:
        buffer = b""
        while process.stdout is not None and (chunk := process.stdout.read1(65536)):  # type: ignore[attr-defined]
            *whole, buffer = (buffer + chunk).split(b"\0")
            for text in whole:
                name, _, config = text.decode().strip().partition(" ")
                value = next((line for line in config.splitlines() if "maxQueuedRequests:" in line), "")
                if value:
                    seen[name, int(value.split(":")[1])] = time.monotonic()
            event.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield seen, event
    finally:
        process.kill()
        process.wait()
        thread.join()


def table(rows: Sequence[Row], idle_seconds: float) -> str:
    """Markdown."""
    lines = [
        "# The operator beside many services",
        "",
        f"`python {' '.join(['benchmarks/operator_scale.py', *sys.argv[1:]])}`",
        "",
        f"{machine.describe()}. kube-apiserver and etcd run on the same cores; there are no pods.",
        "",
        f"| services | objects held | children made from nothing, s | start over what is there, s | resident, MiB "
        f"| most in {idle_seconds:.0f} s, MiB | writes in {idle_seconds:.0f} s | a change reaches its ConfigMap: "
        "p50, ms | p99, ms |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        cuts = statistics.quantiles(row.changes_ms, n=100)
        lines.append(
            f"| {row.services} | {row.objects} | {row.first_seconds:.0f} | {row.start_seconds:.0f} "
            f"| {row.resident_mib:.0f} | {row.peak_mib:.0f} | {row.idle_writes:.0f} | {cuts[49]:.0f} | {cuts[98]:.0f} |"
        )
    lines += [
        "",
        "Writes are requests that create, change or delete something, the lease's renewal left out. Settled means that "
        f"every service had its pass and nothing was written for {QUIET_SECONDS:.0f} s, which are not counted. The "
        f"{NUM_CHANGES} changes come one after the other, each of a hot setting of a service chosen at random.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
