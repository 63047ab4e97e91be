"""One process of `gpu.py`: runs sections and says what came of them, a line of JSON each.

`{"kind": "sections"}` first, then for each `begin` and `outcome`, or `skip` where the time is up; `refusal` where
nothing can run. It ends early when a section has broken the card's context, with everything after it unsaid: another
process continues.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "support"
MODULES = ("gpu_checks", "gpu_memory", "gpu_attention", "gpu_products", "gpu_worker")
"""Each has SECTIONS, in the order in which they run."""
ALWAYS = "copy"
"""Measures what the others are compared with."""
HANGING = 2.0
"""A section that takes so many times its budget hangs: its stack is shown and the process ends."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--copy", type=float, default=0.0, help="bytes a second, if measured already")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    # Before Triton is imported: kernels are made for the interpreter or for a device when they are decorated.
    os.environ["TRITON_INTERPRET"] = "1" if options.tiny else "0"
    # As Triton 3.9 does without it, but then with a warning of a default that will change.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    sys.path.insert(1, str(SUPPORT))
    if not options.tiny:
        run(options)
        return
    import pytest
    import quick_interpreter

    with pytest.MonkeyPatch.context() as patch:
        quick_interpreter.install(patch)
        run(options)


def run(options: argparse.Namespace) -> None:
    import gpu_frame
    import torch

    if not options.tiny and not torch.cuda.is_available():
        say("refusal", text="no card is here (torch.cuda.is_available() is False); --tiny runs without one")
        return
    sections = {one.name: one for name in MODULES for one in sections_of(name)}
    unknown = sorted(set(options.names) - set(sections))
    if unknown:
        say("refusal", text=f"no section is named {', '.join(unknown)}; expected some of {', '.join(sections)}")
        return
    always = set() if options.copy else {ALWAYS}
    wanted = [one for one in sections.values() if not options.names or one.name in {*options.names, *always}]
    device = torch.device("cpu" if options.tiny else "cuda:0")
    bench = gpu_frame.Bench(device, options.tiny, options.copy)
    say("sections", names=[one.name for one in wanted], machine=machine(device))
    started = time.perf_counter()
    for section in wanted:
        if time.perf_counter() - started > options.seconds:
            say("skip", name=section.name)
            continue
        say("begin", name=section.name)
        if not options.tiny:
            faulthandler.dump_traceback_later(HANGING * section.budget_seconds, exit=True)
        outcome = gpu_frame.run_section(bench, section)
        faulthandler.cancel_dump_traceback_later()
        say("outcome", **outcome, copy_bytes_a_second=bench.copy_bytes_a_second)
        if outcome["error"] and not is_usable(device):
            return


def sections_of(name: str) -> Sequence[Any]:
    """Of a module; where it cannot be imported, one that says so, so that the others still run."""
    import gpu_frame

    try:
        return tuple(importlib.import_module(name).SECTIONS)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it stands in the report
        reason = error

    def failing(_: Any) -> Any:
        raise reason

    return (gpu_frame.Section(name, f"{name}.py", failing, 1),)


def is_usable(device: Any) -> bool:
    """Whether the device still computes: an access to memory that is not there ends a context for good."""
    import torch

    try:
        torch.cuda.empty_cache()
        return torch.ones(2, device=device).sum().item() == 2
    except RuntimeError:
        return False


def machine(device: Any) -> str:
    """The card with its driver, or the processor, and the versions that matter."""
    import torch
    import triton

    versions = f"torch {torch.__version__}, Triton {triton.__version__}, Python {platform.python_version()}"
    if device.type != "cuda":
        import machine as processor

        return f"{processor.describe()}; {versions}"
    import pynvml

    pynvml.nvmlInit()
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
    finally:
        pynvml.nvmlShutdown()
    card = torch.cuda.get_device_properties(device)
    return (
        f"{card.name}, sm_{card.major}{card.minor}, {card.total_memory / 2**30:.0f} GiB, "
        f"{card.multi_processor_count} multiprocessors, driver {driver}, CUDA {torch.version.cuda}; {versions}"
    )


def say(kind: str, **content: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **content}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
