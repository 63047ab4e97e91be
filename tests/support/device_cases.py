"""The cases of every device op: those that the tests beside `tests/unit/kernels_device/test_every_op.py` list."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import kernel_case

FOLDER = Path(__file__).resolve().parents[1] / "unit" / "kernels_device"


@cache
def modules() -> tuple[ModuleType, ...]:
    """The test files with CASES."""
    found = []
    for path in sorted(FOLDER.glob("test_*.py")):
        if "\nCASES" not in path.read_text(encoding="utf-8"):
            continue
        spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look there
        spec.loader.exec_module(module)
        found.append(module)
    return tuple(found)


@cache
def cases() -> tuple[kernel_case.Case, ...]:
    return tuple(case for module in modules() for case in module.CASES)


@cache
def lacks() -> dict[str, dict[str, str]]:
    """Op -> kind of case that makes no sense for it -> why."""
    found: dict[str, dict[str, str]] = {}
    for module in modules():
        for op, reasons in getattr(module, "LACKS", {}).items():
            found.setdefault(op, {}).update(reasons)
    return found
