"""The table of generated code: what moved since it was written, which kernel breaks a rule, and the page.

Figures belong to one version of the compiler: with another one only the rules are checked. A form has a key of what its
code is made from, so that the table can be written anew without compiling what did not change. A check trusts no key.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Collection, Iterator, Mapping
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

FIGURES = {field.name: {"int": int, "str": str}[str(field.type)] for field in dataclasses.fields(readings.Reading)}
"""Field of a reading -> its type."""

Table = dict[str, Any]
"""`compiler`: versions; `kernels`: name -> `rules`, `key` and `kernel` as in `readings.Listing`, and `targets`: name ->
reading."""


class TableError(ValueError):
    """A text that is no table of generated code, with what is wrong where."""


def of(versions: Mapping[str, str], listing: readings.Listing, read: Mapping[readings.Job, Mapping[str, Any]]) -> Table:
    """The forms of `listing` with those of their targets that were read."""
    kernels = {}
    for name, form in listing.items():
        targets = {target: dict(read[name, target]) for target in form["targets"] if (name, target) in read}
        kernels[name] = {**form, "targets": targets}
    return {"compiler": dict(versions), "kernels": kernels}


def module(form: Mapping[str, Any]) -> str:
    """Of `jit`, in which the kernel of a form is: `attention`."""
    return str(form["kernel"]).rpartition(".")[0].rpartition(".")[2]


def modules(forms: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Of a listing, or of a table's `kernels`."""
    return {module(form) for form in forms.values()}


def of_modules(table: Table, chosen: Collection[str]) -> Table:
    """The forms of kernels in these modules; of none: all."""
    kernels = {name: form for name, form in table["kernels"].items() if not chosen or module(form) in chosen}
    return {**table, "kernels": kernels}


def known(
    before: Table, versions: Mapping[str, str], listing: readings.Listing
) -> dict[readings.Job, Mapping[str, Any]]:
    """What need not be compiled to know it: readings whose form has the table's key, of the table's compiler."""
    if before["compiler"] != versions:
        return {}
    return {
        (name, target): before["kernels"][name]["targets"][target]
        for name, form in listing.items()
        if name in before["kernels"] and before["kernels"][name]["key"] == form["key"]
        for target in form["targets"]
        if target in before["kernels"][name]["targets"]
    }


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


def parsed(text: str) -> Table:
    """A table from its text. Raises `TableError` for a text that is cut, is no JSON, or lacks a part."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise TableError(f"line {error.lineno}, column {error.colno} is not JSON ({error.msg}); is it cut?") from error
    _check_parts("the table", found, {"compiler": dict, "kernels": dict})
    _check_parts("compiler", found["compiler"], {"triton": str, "ptxas": str})
    for name, form in found["kernels"].items():
        _check_parts(name, form, {"kernel": str, "key": str, "rules": dict, "targets": dict})
        _check_parts(f"{name}, rules", form["rules"], {rule.name: bool for rule in dataclasses.fields(readings.Rules)})
        for target, one in form["targets"].items():
            _check_parts(f"{name} for {target}", one, FIGURES)
    return found  # type: ignore[no-any-return]


def _check_parts(what: str, found: object, parts: Mapping[str, type]) -> None:
    """`found` is a mapping with exactly these parts, of these types."""
    if not isinstance(found, dict):
        raise TableError(f"{what} is {found!r}, expected a mapping with {', '.join(parts)}")
    for part, kind in parts.items():
        if part not in found:
            raise TableError(f"{what} lacks {part!r}, expected {', '.join(parts)}")
        if type(found[part]) is not kind:
            raise TableError(f"{what}: {part} is {found[part]!r}, expected {kind.__name__}")
    if len(found) > len(parts):
        raise TableError(f"{what} has {sorted(set(found) - set(parts))}, expected {', '.join(parts)} alone")


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

    Empty where the compilers differ.
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
        gone = sorted(set(old[name]["targets"]) - set(new[name]["targets"]))
        lines += [f"{name} for {target}: is in the table, but the form is for no such target" for target in gone]
    return lines


def _moved_fields(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for field, meaning in MEANINGS.items():
        old, new = before.get(field), now.get(field)
        if old != new:
            yield f"{what}: {field} {old!r} -> {new!r} ({meaning})"


PAGE = """# The code of device kernels

Compiled ahead of time for A100 (sm_80), L40S and RTX 4090 (sm_89), H100 and H200 (sm_90), by Triton {triton} and
ptxas of {ptxas}, where no card is. Read from the machine code. `python scripts/kernel_code.py --check` compares it with
the code of today and says what moved; `make render-kernels` compiles what changed and writes it anew.

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
