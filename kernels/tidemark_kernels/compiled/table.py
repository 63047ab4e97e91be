"""The table of generated code: what moved since it was written, which kernel breaks a rule, and the page.

Figures belong to one version of the compiler: with another one only the rules are checked. A form has a key of what its
code is made from, so that what did not change need not be compiled to know that it is the same.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidemark_kernels.compiled import readings

LEAST_WIDE_PERCENT = 50
"""Of the bytes that a `wide_loads` kernel loads. Page numbers and scales of four bytes beside tiles are the rest."""

MEANINGS: Mapping[str, str] = {
    "registers": "of a thread; more of them, fewer programs at a time",
    "spill_bytes": "of a thread in local memory; every access goes to the cache",
    "spill_instructions": "to and from local memory",
    "shared_bytes": "of a program; more of them, fewer programs at a time",
    "programs": "at a time on one multiprocessor",
    "limited_by": "what keeps more programs away",
    "warps_percent": "of the warps a multiprocessor can hold",
    "wide_percent": "of the bytes loaded, in pieces of 16",
    "loads": "bytes a thread:instructions, in loops",
    "matrix": "matrix instructions",
}
"""Field of a reading -> what it is, as an explanation says it."""

Table = dict[str, Any]
"""`compiler`: versions; `kernels`: name -> `rules`, `key` and `kernel` as in `readings.Listing`, and `targets`: name ->
reading."""


def of(versions: Mapping[str, str], listing: readings.Listing, read: Mapping[readings.Job, Mapping[str, Any]]) -> Table:
    """The forms of `listing` with those of their targets that were read."""
    kernels = {}
    for name, form in listing.items():
        targets = {target: dict(read[name, target]) for target in form["targets"] if (name, target) in read}
        kernels[name] = {**form, "targets": targets}
    return {"compiler": dict(versions), "kernels": kernels}


def stale(before: Table, versions: Mapping[str, str], listing: readings.Listing) -> list[readings.Job]:
    """What must be compiled because its source, its rules or its targets are not those of the table, or it is new."""
    if before["compiler"] != versions:
        return [(name, target) for name, form in listing.items() for target in form["targets"]]
    jobs = []
    for name, form in listing.items():
        known = before["kernels"].get(name, {"key": None, "targets": {}})
        jobs += [(name, one) for one in form["targets"] if known["key"] != form["key"] or one not in known["targets"]]
    return jobs


def sample(listing: readings.Listing) -> list[readings.Job]:
    """The first form of each kernel, for its last target: what is compiled although nothing says that it changed."""
    first: dict[str, readings.Job] = {}
    for name, form in listing.items():
        first.setdefault(form["kernel"], (name, sorted(form["targets"])[-1]))
    return sorted(first.values())


def text(table: Table) -> str:
    """JSON with one line a form and target, so that a diff shows what moved."""
    lines = ["{", f' "compiler": {json.dumps(table["compiler"])},', ' "kernels": {']
    last = len(table["kernels"]) - 1
    for index, (name, entry) in enumerate(table["kernels"].items()):
        head = ", ".join(f"{json.dumps(part)}: {json.dumps(entry[part])}" for part in ("kernel", "key", "rules"))
        lines += [f"  {json.dumps(name)}: {{", f"   {head},", '   "targets": {']
        targets = [f"    {json.dumps(key)}: {json.dumps(one)}" for key, one in sorted(entry["targets"].items())]
        lines += [",\n".join(targets), "   }", "  }" if index == last else "  },"]
    return "\n".join([*lines, " }", "}"]) + "\n"


def broken_rules(table: Table) -> list[str]:
    """Whatever the table said before: hot kernels do not spill, wide ones load wide, and so on."""
    return [
        f"{name} for {target}: {problem}"
        for name, entry in table["kernels"].items()
        for target, one in sorted(entry["targets"].items())
        for problem in _problems(entry["rules"], one)
    ]


def _problems(rules: Mapping[str, bool], one: Mapping[str, Any]) -> Iterator[str]:
    if one["programs"] < 1:
        yield f"cannot be launched: {one['limited_by']} are short ({one['shared_bytes']} bytes shared); smaller tiles"
    if rules["is_hot"] and (one["spill_bytes"] or one["spill_instructions"]):
        yield (
            f"spills {one['spill_bytes']} bytes a thread ({one['spill_instructions']} instructions) at "
            f"{one['registers']} registers, expected none in a hot kernel; smaller tiles or more warps"
        )
    if rules["wide_loads"] and one["wide_percent"] < LEAST_WIDE_PERCENT:
        yield (
            f"loads {one['wide_percent']} % of its bytes in pieces of 16 ({one['loads'] or 'no loads'}), expected "
            f"{LEAST_WIDE_PERCENT} %; is a pointer's alignment missing, or are neighbours in a tile not neighbours in "
            "memory?"
        )
    if rules["tensor_cores"] and not one["matrix"]:
        yield "has no matrix instruction, expected one; is a side of tl.dot below 16, or are its inputs float32?"


def moved(before: Table, now: Table) -> list[str]:
    """One line for each figure of `now` that is another one in `before`, and for forms that only one of them has.

    `now` may lack targets that were not read. Empty where the compilers differ.
    """
    if before["compiler"] != now["compiler"]:
        return []
    old, new = before["kernels"], now["kernels"]
    lines = [f"{name}: is not in the table" for name in new if name not in old]
    lines += [f"{name}: is in the table, but no kernel has such a form" for name in old if name not in new]
    for name in (name for name in new if name in old):
        if old[name]["rules"] != new[name]["rules"]:
            lines.append(f"{name}: rules {old[name]['rules']} -> {new[name]['rules']}")
        for target, one in sorted(new[name]["targets"].items()):
            lines += _moved_fields(f"{name} for {target}", old[name]["targets"].get(target, {}), one)
    return lines


def merged(before: Table, now: Table) -> Table:
    """`now`, with what was not read of its forms as it is in `before`."""
    kernels = {
        name: {**form, "targets": {**before["kernels"].get(name, form)["targets"], **form["targets"]}}
        for name, form in now["kernels"].items()
    }
    return {"compiler": now["compiler"], "kernels": kernels}


def _moved_fields(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for field, meaning in MEANINGS.items():
        old, new = before.get(field), now.get(field)
        if old != new:
            yield f"{what}: {field} {old!r} -> {new!r} ({meaning})"


PAGE = """# The code of device kernels

Compiled ahead of time for A100 (sm_80), L40S and RTX 4090 (sm_89), H100 and H200 (sm_90), by Triton {triton} and
ptxas of {ptxas}, where no card is. Read from the machine code. `python scripts/kernel_code.py --check` compares it with
the code of today and says what moved; `make render-kernels` writes it anew.

A cell: registers of a thread · KiB of shared memory of a program · programs at a time on one multiprocessor
(share of the warps that it can hold) · share of loaded bytes that come in pieces of 16 · matrix instructions. Rules,
whatever the table says: a kernel that runs in every layer of every step (hot) does not spill; one marked *wide* loads
at least {least} % of its bytes in pieces of 16; one marked *matrix* multiplies with tensor cores.

{count} forms.
"""


def page(table: Table) -> str:
    """Markdown, a table for each family (the name up to its bracket)."""
    kernels = table["kernels"]
    lines = [PAGE.format(**table["compiler"], least=LEAST_WIDE_PERCENT, count=len(kernels))]
    targets = sorted({target for entry in kernels.values() for target in entry["targets"]})
    for family, names in itertools.groupby(kernels, key=lambda name: name.partition("[")[0]):
        lines += [
            f"## {family}",
            "",
            f"| form | planned | {' | '.join(targets)} |",
            "|---|---|" + "---|" * len(targets),
        ]
        lines += [_row(name, kernels[name], targets) for name in names]
        lines.append("")
    return "\n".join(lines)


def _row(name: str, entry: Mapping[str, Any], targets: list[str]) -> str:
    rules = entry["rules"]
    planned = {"hot": rules["is_hot"], "wide": rules["wide_loads"], "matrix": rules["tensor_cores"]}
    form = name.partition("[")[2].removesuffix("]") or name
    cells = [_cell(entry["targets"][target]) if target in entry["targets"] else "–" for target in targets]
    return f"| {form} | {', '.join(word for word, holds in planned.items() if holds) or '–'} | {' | '.join(cells)} |"


def _cell(one: Mapping[str, Any]) -> str:
    warps = f"{one['programs']} programs ({one['warps_percent']} %)"
    parts = [f"{one['registers']} r", f"{one['shared_bytes'] / 1024:.3g} KiB", warps, f"{one['wide_percent']} % wide"]
    spills = [f"**spills {one['spill_bytes']} B**"] if one["spill_bytes"] else []
    return " · ".join([*parts, *spills, *([one["matrix"]] if one["matrix"] else [])])
