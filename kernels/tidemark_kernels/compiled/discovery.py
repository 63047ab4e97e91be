"""Every compiled form that a launch can ask for, and the key of what its code is made from."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType

from tidemark_kernels import tuning
from tidemark_kernels.tuning import variant


def families() -> tuple[str, ...]:
    """Full names of the modules of `tuning` that have `variants()`, sorted."""
    names = sorted(f"{tuning.__name__}.{found.name}" for found in pkgutil.iter_modules(tuning.__path__))
    return tuple(name for name in names if hasattr(importlib.import_module(name), "variants"))


def variants(modules: Sequence[str] = ()) -> dict[str, variant.Variant]:
    """Name -> form, of these modules or of all families. Raises `ValueError` for a name that two forms have."""
    found: dict[str, variant.Variant] = {}
    for module in modules or families():
        for one in importlib.import_module(module).variants():
            if one.name in found:
                raise ValueError(f"{module}: two variants are named {one.name!r}, expected unique names")
            found[one.name] = one
    return found


def key(one: variant.Variant) -> str:
    """Changes when the code of a form may: with the kernel's module and those it imports, without comments, docstrings
    and line numbers, and with everything that the form fixes."""
    meta = (sorted(one.signature.items()), sorted(one.constants.items(), key=lambda item: item[0]), sorted(one.aligned))
    text = repr((one.function.__name__, *meta, one.num_warps, one.num_stages))
    return hashlib.sha256((text + _sources(_module_of(one))).encode()).hexdigest()[:16]


def kernel_name(one: variant.Variant) -> str:
    return f"{_module_of(one).__name__}.{one.function.__name__}"


def _module_of(one: variant.Variant) -> ModuleType:
    return sys.modules[one.function.fn.__module__]


@cache
def _sources(module: ModuleType) -> str:
    """The code of a module and of all modules of ours that it uses, each once."""
    seen: dict[str, str] = {}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        if current.__name__ not in seen:
            seen[current.__name__] = _bare(inspect.getsource(current))
            waiting += _ours_in(current)
    return "\n".join(seen[name] for name in sorted(seen))


def _ours_in(module: ModuleType) -> Iterator[ModuleType]:
    own = module.__name__.partition(".")[0]
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str) and name.partition(".")[0] == own and name in sys.modules:
            yield sys.modules[name]


def _bare(source: str) -> str:
    """Without comments, blank lines and texts that stand alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)
