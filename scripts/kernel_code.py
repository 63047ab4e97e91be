"""Compiles the forms of every device kernel, reads their code and keeps a table of it; needs no device.

    python scripts/kernel_code.py           # writes benchmarks/results/kernel_code.json and .md
    python scripts/kernel_code.py --check   # compares instead, and explains what moved
    python scripts/kernel_code.py --only NAME   # shows forms whose name contains NAME, and their problems

`--check` compiles what changed since the table was written, by the key of its source, and one form of each kernel
whatever its key says; `--all` compiles everything. A form takes about two seconds of a core; what did not change since
comes from caches. Run by `make render-kernels` and, with `--check`, by a test.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tidemark_kernels.compiled import readings, table

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks/results/kernel_code.json"
PAGE = ROOT / "benchmarks/results/kernel_code.md"
AT_MOST = 40
"""Forms and targets that `--check` compiles: a minute on two cores. A table that is out of date fails anyway."""
SHOWN = 40
"""Lines of what moved; the table itself has the rest."""
TO_DO = """\
If that was meant (look at the kernel, and at its row in kernels/tidemark_kernels/tuning), run `make render-kernels` and
commit benchmarks/results/kernel_code.json and .md; say in the commit why the code moved.
"""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the table instead of writing it")
    parser.add_argument("--all", action="store_true", help="with --check: compile everything")
    parser.add_argument("--only", default="", help="show forms whose name contains this; write nothing")
    parser.add_argument("--processes", type=int, help="default: one a core")
    options = parser.parse_args(arguments)
    versions, listing = readings.listing(ROOT)
    if options.only:
        listing = {name: form for name, form in listing.items() if options.only in name}
    jobs = [(name, target) for name, form in listing.items() for target in form["targets"]]
    if options.check:
        return check(versions, listing, jobs if options.all else None, options.processes)
    now = table.of(versions, listing, read(jobs, options.processes))
    if options.only:
        sys.stdout.write(table.page(now))
    else:
        DATA.write_text(table.text(now), encoding="utf-8")
        PAGE.write_text(table.page(now), encoding="utf-8")
        sys.stdout.write(f"wrote {DATA.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}\n")
    return complain(table.broken_rules(now))


def check(
    versions: dict[str, str], listing: readings.Listing, jobs: Sequence[readings.Job] | None, processes: int | None
) -> int:
    """0, or 1 with what moved, what breaks a rule and what to do on stderr. `jobs`: what to compile; None: choose."""
    if not DATA.exists():
        return complain([f"{DATA.relative_to(ROOT)} is missing: run `make render-kernels`"])
    before = json.loads(DATA.read_text(encoding="utf-8"))
    same = before["compiler"] == versions
    changed = table.stale(before, versions, listing) if same else []
    chosen = jobs or [*changed[:AT_MOST], *(job for job in table.sample(listing) if job not in changed[:AT_MOST])]
    now = table.of(versions, listing, read(chosen, processes))
    if not same:
        sys.stdout.write(
            f"kernel code: the table is of {before['compiler']}, this is {versions}: only rules were checked, of what "
            "was compiled; `make render-kernels` writes the table for this compiler\n"
        )
        return complain(table.broken_rules(now))
    moved = table.moved(before, now)
    if PAGE.read_text(encoding="utf-8") != table.page(before):
        moved.append(f"{PAGE.relative_to(ROOT)} is not what {DATA.name} says")
    if changed and not moved:
        moved.append(f"the source of {len(changed)} forms and targets changed, no figure of those compiled did")
    if len(changed) > AT_MOST and not jobs:
        moved.append(f"{len(changed) - AT_MOST} more forms and targets have another source, and were not compiled here")
    status = complain([*table.broken_rules(table.merged(before, now)), *moved])
    if moved:
        sys.stderr.write(TO_DO)
    return status


def read(jobs: Sequence[readings.Job], processes: int | None) -> dict[readings.Job, dict[str, object]]:
    started = time.perf_counter()
    found = readings.of_jobs(ROOT, jobs, processes)
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
