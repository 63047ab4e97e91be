"""Finds the ops of `tidemark_kernels.device`: the public functions there that launch a kernel, and which kernels."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from triton.runtime.jit import KernelInterface

from tidemark_kernels import device

Function = Callable[..., Any]


@cache
def ops() -> dict[str, Function]:
    """Name -> public function that launches a kernel, itself or through others there."""
    found: dict[str, Function] = {}
    for info in pkgutil.walk_packages(device.__path__, f"{device.__name__}."):
        module = importlib.import_module(info.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or function.__module__ != module.__name__ or not kernels_of(function):
                continue
            if name in found:
                raise ValueError(f"two device ops are named {name}: in {found[name].__module__} and {module.__name__}")
            found[name] = function
    return found


@cache
def kernels_of(function: Function) -> frozenset[Any]:
    """The kernels that it launches."""
    seen: set[Function] = set()
    waiting: list[Function] = [function]
    kernels: set[Any] = set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for value in _values_named_in(one):
            if isinstance(value, KernelInterface):
                kernels.add(value)
            elif inspect.isfunction(value) and value.__module__.startswith(device.__name__):
                waiting.append(value)
    return frozenset(kernels)


def _values_named_in(function: Function) -> Iterator[Any]:
    """What the names and `module.name`s in its code stand for."""
    space = function.__globals__
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Name):
            yield space.get(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            holder = space.get(node.value.id)
            if isinstance(holder, ModuleType):
                yield getattr(holder, node.attr, None)
