"""Compiles the forms of every device kernel, reads their code and keeps a table of it; needs no device.

    python scripts/kernel_code.py           # compiles what changed, writes benchmarks/results/kernel_code.json and .md
    python scripts/kernel_code.py --all     # the same, but compiles everything
    python scripts/kernel_code.py --check   # compiles everything, compares with the table, and explains what moved
    python scripts/kernel_code.py --check attention pages   # that, of kernels in jit/attention.py and jit/pages.py
    python scripts/kernel_code.py --only NAME   # shows forms whose name contains NAME, and their problems

A form for a target takes 0.6 s of a core, all of them five minutes; what was compiled on this machine before
comes from Triton's cache. What changed is known by a key of the source (`discovery.key`) and by the compiler's version.
Run by `make render-kernels` and, with `--check`, by tests.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tidemark_kernels.compiled import readings, table

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks/results/kernel_code.json"
PAGE = ROOT / "benchmarks/results/kernel_code.md"
SHOWN = 40
"""Lines of what moved; the table itself has the rest."""
TO_DO = """\
If that was meant (look at the kernel, and at its row in kernels/tidemark_kernels/tuning), run `{command}` and
commit benchmarks/results/kernel_code.json and .md; say in the commit why the code moved.
"""
RENDER = "make render-kernels"
RENDER_ALL = f"{RENDER} ARGS=--all"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="with --check: files of jit whose kernels are compiled")
    parser.add_argument("--check", action="store_true", help="compare with the table instead of writing it")
    parser.add_argument("--all", action="store_true", help="compile what did not change, too")
    parser.add_argument("--only", default="", help="show forms whose name contains this; write nothing")
    parser.add_argument("--processes", type=int, help="default: one a core")
    options = parser.parse_args(arguments)
    if options.modules and not options.check:
        parser.error(f"{' '.join(options.modules)}: files of jit are named with --check alone")
    versions, listing = readings.listing(ROOT)
    try:
        if options.check:
            return check(versions, listing, options.modules, options.processes)
        if options.only:
            return show(versions, listing, options.only, options.processes)
        return write(versions, listing, options.all, options.processes)
    except table.TableError as error:
        return complain([str(error)])


def check(
    versions: Mapping[str, str], listing: readings.Listing, modules: Collection[str], processes: int | None
) -> int:
    """0, or 1 with what moved, what breaks a rule and what to do on stderr. `modules` of jit; none: of all."""
    unknown = sorted(set(modules) - table.modules(listing))
    if unknown:
        return complain([f"no kernel is in {unknown}, expected some of {sorted(table.modules(listing))}"])
    whole = load()
    before = table.of_modules(whole, modules)
    listing = {name: form for name, form in listing.items() if not modules or table.module(form) in modules}
    now = table.of(versions, listing, read(jobs_of(listing), processes))
    if before["compiler"] != versions:
        sys.stdout.write(
            f"kernel code: the table is of {before['compiler']}, this is {versions}: only rules were checked; "
            f"`{RENDER}` writes the table for this compiler\n"
        )
        return complain(table.broken_rules(now))
    moved = table.moved(before, now)
    # A rendering of what changed does not compile forms whose source is the same, although they moved.
    known = table.known(before, versions, listing)
    is_same = all(now["kernels"][name]["targets"][target] == one for (name, target), one in known.items())
    if PAGE.read_text(encoding="utf-8") != table.page(whole):
        moved.append(f"{PAGE.relative_to(ROOT)} is not what {DATA.name} says")
    status = complain([*table.broken_rules(now), *moved])
    if moved:
        sys.stderr.write(TO_DO.format(command=RENDER if is_same else RENDER_ALL))
    return status


def show(versions: Mapping[str, str], listing: readings.Listing, only: str, processes: int | None) -> int:
    listing = {name: form for name, form in listing.items() if only in name}
    now = table.of(versions, listing, read(jobs_of(listing), processes))
    sys.stdout.write(table.page(now))
    return complain(table.broken_rules(now))


def write(versions: Mapping[str, str], listing: readings.Listing, is_all: bool, processes: int | None) -> int:
    """The table anew; forms of the one that is there are kept where source and compiler are the same."""
    known = {} if is_all or not DATA.exists() else table.known(load(), versions, listing)
    jobs = [job for job in jobs_of(listing) if job not in known]
    now = table.of(versions, listing, {**known, **read(jobs, processes)})
    DATA.write_text(table.text(now), encoding="utf-8")
    PAGE.write_text(table.page(now), encoding="utf-8")
    sys.stdout.write(f"wrote {DATA.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}; {len(known)} were known\n")
    return complain(table.broken_rules(now))


def load() -> table.Table:
    if not DATA.exists():
        raise table.TableError(f"{DATA.relative_to(ROOT)} is missing: run `{RENDER}`")
    try:
        return table.parsed(DATA.read_text(encoding="utf-8"))
    except table.TableError as error:
        raise table.TableError(f"{DATA.relative_to(ROOT)}: {error}; `{RENDER_ALL}` writes it anew") from error


def jobs_of(listing: readings.Listing) -> list[readings.Job]:
    return [(name, target) for name, form in listing.items() for target in form["targets"]]


def read(jobs: Sequence[readings.Job], processes: int | None) -> dict[readings.Job, dict[str, object]]:
    started = time.perf_counter()
    found = readings.of_jobs(ROOT, jobs, processes) if jobs else {}
    sys.stdout.write(f"kernel code: {len(found)} forms and targets read in {time.perf_counter() - started:.0f} s\n")
    return found


def complain(problems: Sequence[str]) -> int:
    for line in problems[:SHOWN]:
        sys.stderr.write(f"{line}\n")
    if len(problems) > SHOWN:
        sys.stderr.write(f"... and {len(problems) - SHOWN} more\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
