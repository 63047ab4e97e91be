"""What the generated code of every form says, for every target; compiled in processes of their own, on all cores.

    echo '[["rope_and_write[bf16]", "sm_90"]]' | python -m tidemark_kernels.compiled.readings

is one such process: it compiles what it is told and writes a line of JSON for each. What was read of a binary is kept
under `build/kernel_code`, beside Triton's own cache of binaries: a change of one kernel costs what that kernel costs.

A form for a target costs about 0.6 s of a core, from nothing: two fifths are passes over Triton's own representation, a
third LLVM, a tenth ptxas, a tenth Python, 0.02 s the disassembly of BATCH binaries at a time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemark_kernels.compiled import compiling

CACHE = Path("build") / "kernel_code"
PREFIX = "sm_"
"""Of the name of a target, before its compute capability times ten."""
READERS = ("disassembly.py", "machine_code.py", "occupancy.py", "readings.py")
"""What is kept of a binary is forgotten when one of these changes."""
BATCH = 32
"""Binaries that are disassembled together."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One form for one target."""

    registers: int
    """Of a thread."""
    spill_bytes: int
    """Of local memory a thread uses for what found no register."""
    spill_instructions: int
    shared_bytes: int
    programs: int
    """At a time on one multiprocessor."""
    limited_by: str
    warps_percent: int
    """Of the warps that a multiprocessor can hold."""
    wide_percent: int
    """Of the bytes loaded, in pieces of 16 bytes a thread."""
    loads: str
    """Instructions by width in the working code: `16:8 4:2`; `bulk:2`."""
    matrix: str
    """`HGMMA:8`; empty: none."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a form was planned to be (`tuning.variant.Variant`)."""

    is_hot: bool
    wide_loads: bool
    tensor_cores: bool


Listing = dict[str, dict[str, Any]]
"""Name of a form -> `rules` (Rules as plain data), `key` (`discovery.key`), `kernel`, `targets` (`["sm_80", ...]`)."""
Job = tuple[str, str]
"""Name of a form and a target."""


def listing(root: Path, modules: Sequence[str] = ()) -> tuple[dict[str, str], Listing]:
    """Versions of the compiler and every form, sorted by name; nothing is compiled.

    `modules` are those with `variants()`, by default all of `tuning`. Raises `RuntimeError` with the output of a
    process that fails.
    """
    ((versions, *rows),) = _processes(root, ["--list", *modules], [[]])
    return versions, {row.pop("name"): row for row in sorted(rows, key=lambda row: str(row["name"]))}


def of_jobs(
    root: Path, jobs: Sequence[Job], processes: int | None = None, modules: Sequence[str] = ()
) -> dict[Job, dict[str, Any]]:
    """What was read of each form for each target (`Reading` as plain data); what is kept lies under `root`."""
    count = max(1, min(len(jobs), processes or len(os.sched_getaffinity(0))))
    answers = _processes(root, list(modules), [jobs[index::count] for index in range(count)])
    return {(row["name"], row["target"]): row["reading"] for rows in answers for row in rows}


def _processes(root: Path, arguments: list[str], shares: Sequence[Sequence[Job]]) -> list[list[dict[str, Any]]]:
    """One process a share of the jobs, all at a time; the lines of each."""
    # The kernels' modules are made for a device there, whatever this process is for.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", __name__, "--cache", str(root / CACHE), *arguments]

    def answer(share: Sequence[Job]) -> list[dict[str, Any]]:
        done = subprocess.run(
            command, input=json.dumps(share), env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    with concurrent.futures.ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(answer, shares))


def read(binaries: Sequence[compiling.Binary], target: int) -> list[Reading]:
    """Disassemble binaries for one target, together."""
    from tidemark_kernels.compiled import disassembly

    texts = disassembly.texts([one.cubin for one in binaries], target)
    return [_read_one(one, text, target) for one, text in zip(binaries, texts, strict=True)]


def _read_one(binary: compiling.Binary, text: str, target: int) -> Reading:
    from tidemark_kernels.compiled import compiling, machine_code, occupancy

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.cubin)
        file.flush()
        registers, spill_bytes = machine_code.usage(compiling.tool("cuobjdump", "-res-usage", file.name))
    code = machine_code.read(text)
    held = occupancy.of(target, binary.num_warps, registers, binary.shared_bytes)
    loads = [f"{width}:{count}" for width, count in code.loads.items()]
    bulk = [f"bulk:{code.num_bulk_loads}"] if code.num_bulk_loads else []
    return Reading(
        registers=registers,
        spill_bytes=spill_bytes,
        spill_instructions=code.num_spill_instructions,
        shared_bytes=binary.shared_bytes,
        programs=held.programs,
        limited_by=held.limit,
        warps_percent=round(100 * held.warps_share),
        wide_percent=round(100 * code.wide_share),
        loads=" ".join([*bulk, *loads]),
        matrix=" ".join(f"{opcode}:{count}" for opcode, count in code.matrix.items()),
    )


def _read_once(cache: Path, binaries: Sequence[compiling.Binary], target: int) -> list[dict[str, Any]]:
    """As `read`, or what was kept of the same binaries."""
    readers = b"".join((Path(__file__).parent / name).read_bytes() for name in READERS)
    files = []
    for one in binaries:
        key = f"{target} {one.shared_bytes} {one.num_warps} ".encode() + one.cubin + readers
        files.append(cache / f"{hashlib.sha256(key).hexdigest()}.json")
    missing = {file: one for file, one in zip(files, binaries, strict=True) if not file.exists()}
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        for file, reading in zip(missing, read(list(missing.values()), target), strict=True):
            partial = file.with_suffix(f".{os.getpid()}")
            partial.write_text(json.dumps(dataclasses.asdict(reading)), encoding="utf-8")
            partial.replace(file)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def main(arguments: list[str]) -> None:
    from tidemark_kernels.compiled import compiling, discovery

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="modules with variants(); default: all of tuning")
    parser.add_argument("--list", action="store_true", help="say what there is, compile nothing")
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args(arguments)
    variants = discovery.variants(options.modules)
    if options.list:
        _say(compiling.versions())
        for one in variants.values():
            rules = dataclasses.asdict(Rules(one.is_hot, one.wide_loads, one.tensor_cores))
            targets = [f"{PREFIX}{target}" for target in one.targets]
            kernel = discovery.kernel_name(one)
            _say({"name": one.name, "rules": rules, "key": discovery.key(one), "kernel": kernel, "targets": targets})
        return
    for target, batch in _batches(json.load(sys.stdin)):
        capability = int(target.removeprefix(PREFIX))
        binaries = [compiling.compiled(variants[name], capability) for name in batch]
        for name, reading in zip(batch, _read_once(options.cache, binaries, capability), strict=True):
            _say({"name": name, "target": target, "reading": reading})


def _batches(jobs: Sequence[Job]) -> Iterator[tuple[str, list[str]]]:
    """Target and names of at most BATCH forms."""
    for target, group in itertools.groupby(sorted(jobs, key=lambda job: job[1]), key=lambda job: job[1]):
        names = [name for name, _ in group]
        for start in range(0, len(names), BATCH):
            yield target, names[start : start + BATCH]


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
