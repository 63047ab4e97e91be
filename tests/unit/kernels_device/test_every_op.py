"""No device op without its reference, its compiled forms and every kind of case."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import device_cases
import device_ops
import kernel_case

import tidemark_kernels
from tidemark_kernels.compiled import discovery


@cache
def references() -> dict[str, Callable[..., Any]]:
    """Name -> function of `reference.py` and `reference_*.py`."""
    names = [found.name for found in pkgutil.iter_modules(tidemark_kernels.__path__)]
    modules = [
        importlib.import_module(f"{tidemark_kernels.__name__}.{name}")
        for name in names
        if name == "reference" or name.startswith("reference_")
    ]
    return {
        name: function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
    }


def test_ops_are_found() -> None:
    assert "paged_attention" in device_ops.ops()


def test_every_op_has_a_reference_of_its_name() -> None:
    assert sorted(set(device_ops.ops()) - set(references())) == []


def test_every_kernel_that_an_op_launches_has_compiled_forms() -> None:
    compiled = {one.function for one in discovery.variants().values()}
    missing = {
        f"{name} launches {kernel.__name__}, of which tuning/*.py has no variant"
        for name, op in device_ops.ops().items()
        for kernel in device_ops.kernels_of(op)
        if kernel not in compiled
    }
    assert sorted(missing) == []


def test_every_op_has_every_kind_of_case_or_says_why_not() -> None:
    missing = []
    for op in sorted(device_ops.ops()):
        covered = frozenset().union(*(case.covers for case in device_cases.cases() if case.op == op))
        explained = {kind for kind, reason in device_cases.lacks().get(op, {}).items() if reason.strip()}
        missing += [f"{op}: {kind}" for kind in kernel_case.KINDS if kind not in covered | explained]
    assert missing == []


def test_cases_name_ops_and_kinds_that_exist() -> None:
    cases, lacks, ops, kinds = device_cases.cases(), device_cases.lacks(), device_ops.ops(), kernel_case.KINDS
    unknown = [f"{case}: {kind}" for case in cases for kind in sorted(case.covers - set(kinds))]
    unknown += [f"{case}: no such op" for case in cases if case.op not in ops]
    unknown += [f"LACKS {op}: no such op" for op in lacks if op not in ops]
    unknown += [f"LACKS {op}: {kind}" for op, named in lacks.items() for kind in named if kind not in kinds]
    assert unknown == []


def test_no_lack_is_explained_that_is_none() -> None:
    covered = {(case.op, kind) for case in device_cases.cases() for kind in case.covers}
    named = [(op, kind) for op, kinds in device_cases.lacks().items() for kind in kinds]
    assert [one for one in named if one in covered] == []


def test_names_of_cases_are_unique() -> None:
    names = [str(case) for case in device_cases.cases()]
    assert sorted({name for name in names if names.count(name) > 1}) == []
