"""Sections of `gpu.py`: every case of every device op, run by compiled code on the card.

    python benchmarks/gpu_checks.py --op paged_attention [--tiny]

checks the cases of one op and prints a line of JSON each. Each op has a process of its own, so that one whose kernel
breaks the card's context does not take the others along, and several compile at a time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import kernel_case

from gpu_frame import Bench, Row, Section

SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "support"
AT_A_TIME = 8
TINY_OPS, TINY_CASES = 2, 2
"""Under the interpreter the tests run all cases; here a few show that the way to the device and back works."""
SECONDS_AN_OP = 120


def checks(bench: Bench) -> Iterator[Row]:
    """One row for each case that fails, and one for each op."""
    import device_cases

    ops = sorted({case.op for case in device_cases.cases()})[: TINY_OPS if bench.is_tiny else None]
    at_a_time = min(AT_A_TIME, len(os.sched_getaffinity(0)))
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        for rows in pool.map(lambda op: checked(op, bench.is_tiny), ops):
            yield from rows


def checked(op: str, is_tiny: bool) -> list[Row]:
    """Rows of one op, from a process of its own; the last is its sum."""
    command = [sys.executable, str(Path(__file__).resolve()), "--op", op, *(["--tiny"] if is_tiny else [])]
    problem = ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_AN_OP)
        out = done.stdout
        if done.returncode:
            problem = f"its process ended with {done.returncode}: {done.stderr[-600:]}"
    except subprocess.TimeoutExpired as error:
        out = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        problem = f"not ready after {SECONDS_AN_OP} s"
    results = [json.loads(line) for line in out.splitlines() if line.startswith('{"case"')]
    failed = [one for one in results if one["problem"]]
    rows: list[Row] = [{"op": op, "cases": one["case"], "ok": False, "problem": one["problem"]} for one in failed]
    problem = problem or (f"{len(failed)} failed" if failed else "")
    return [*rows, {"op": op, "cases": len(results), "ok": bool(results) and not problem, "problem": problem}]


def problem_of(case: kernel_case.Case) -> str:
    """Empty, or what is wrong: of one case, so that the others still run."""
    import kernel_case

    try:
        kernel_case.check(case)
    except Exception as error:  # noqa: BLE001  # whatever a kernel does wrong, the next one is checked, too
        return f"{type(error).__name__}: {error}"[:400]
    return ""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", required=True)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    os.environ["TRITON_INTERPRET"] = "1" if options.tiny else "0"
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    sys.path.insert(1, str(SUPPORT))
    import device_cases
    import ferry
    import torch

    device: Any = torch.device("cpu" if options.tiny else "cuda:0")
    cases = [case for case in device_cases.cases() if case.op == options.op]
    with contextlib.ExitStack() as stack:
        stack.enter_context(ferry.ferried(device))
        if options.tiny:
            import pytest
            import quick_interpreter

            quick_interpreter.install(stack.enter_context(pytest.MonkeyPatch.context()))
        for case in cases[: TINY_CASES if options.tiny else None]:
            sys.stdout.write(json.dumps({"case": case.name, "problem": problem_of(case)}) + "\n")
            sys.stdout.flush()


SECTIONS = (Section("checks", "Every case of every op, against its float64 reference", checks, 150),)

if __name__ == "__main__":
    main(sys.argv[1:])
