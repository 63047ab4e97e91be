"""One list is the architecture: docs, import contract and code agree, and a broken import is named."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("operator/tidemark_operator", "runtime/tidemark_runtime", "kernels/tidemark_kernels")


def contracts() -> list[dict[str, Any]]:
    loaded = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(loaded["tool"]["importlinter"]["contracts"])


def layers_of(package: str) -> list[str]:
    """The contract's layers, top first, without the brackets of a layer that need not exist yet."""
    for contract in contracts():
        if contract.get("containers") == [package]:
            return [re.sub(r"[()]", "", layer) for layer in contract["layers"]]
    raise AssertionError(f"pyproject.toml has no layers contract for {package}")


def documented_layers(package: str) -> list[str]:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- layers: {package} -->\n```\n(.*?)```", page, re.DOTALL)
    assert found, f"docs/architecture.md has no list for {package}"
    return [re.split(r"\s{2,}", line)[0] for line in found[1].splitlines()]


@pytest.mark.parametrize("package", ["tidemark_operator", "tidemark_runtime", "tidemark_kernels"])
def test_the_docs_list_is_the_contract(package: str) -> None:
    assert documented_layers(package) == layers_of(package)


@pytest.mark.parametrize("package", ["tidemark_operator", "tidemark_runtime", "tidemark_kernels"])
def test_the_picture_is_the_contract(package: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = re.search(rf"subgraph {package}\n(.*?)\n    end", page[page.index("The same as a picture") :], re.DOTALL)
    assert found
    assert re.findall(r'\["(.*?)"\]', found[1]) == layers_of(package)


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""


@pytest.mark.parametrize("layer", ["core", "planning"])
def test_deciding_and_planning_import_the_standard_library_only(layer: str) -> None:
    foreign = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / "runtime/tidemark_runtime" / layer).rglob("*.py"))
        for line, name in imports_of(path)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "tidemark_runtime"}
    ]
    assert foreign == []


def test_operator_folder_does_not_shadow_the_standard_library() -> None:
    assert [str(path) for path in ROOT.glob("*/__init__.py")] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_label_domain_is_spelled_in_one_file() -> None:
    spelled = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "operator").rglob("*.py")
        if "tidemark.dev" in "".join(constants_of(path))
    }
    assert spelled == {"operator/tidemark_operator/names.py"}


def constants_of(path: Path) -> Iterator[str]:
    """String constants that are code, not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


@pytest.fixture
def copy_of_the_packages(tmp_path: Path) -> Path:
    copy = tmp_path / "tree"
    copy.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over a copy of the packages: found through PYTHONPATH, before the installed ones."""
    program = (
        "import sys; sys.path[:0] = ['operator', 'runtime', 'kernels']\n"
        "from importlinter import cli; sys.exit(cli.lint_imports(no_cache=True))"
    )
    return subprocess.run([sys.executable, "-c", program], cwd=tree, capture_output=True, text=True, check=False)


def test_the_tree_keeps_every_contract(copy_of_the_packages: Path) -> None:
    done = lint(copy_of_the_packages)
    assert done.returncode == 0, done.stdout
    assert "Contracts: 8 kept, 0 broken." in done.stdout


BROKEN = {
    "runtime/tidemark_runtime/core/step_plan.py": (
        "from tidemark_runtime.engine import messages",
        "tidemark_runtime.core.step_plan -> tidemark_runtime.engine.messages",
    ),
    "runtime/tidemark_runtime/server/__init__.py": ("import torch", "tidemark_runtime.server -> torch"),
    "operator/tidemark_operator/api/__init__.py": (
        "from tidemark_runtime import config",
        "tidemark_operator.api -> tidemark_runtime.config",
    ),
    "kernels/tidemark_kernels/jit/numbers.py": (
        "from tidemark_kernels.tuning import variant",
        "tidemark_kernels.jit.numbers -> tidemark_kernels.tuning.variant",
    ),
    "kernels/tidemark_kernels/__init__.py": (
        "import tidemark_runtime.errors",
        "tidemark_kernels -> tidemark_runtime.errors",
    ),
}
"""File of the copy -> a line that must not stand there, and how the linter names it."""


def test_broken_imports_are_named_with_their_lines(copy_of_the_packages: Path) -> None:
    expected = []
    for file, (line, named) in BROKEN.items():
        path = copy_of_the_packages / file
        text = path.read_text(encoding="utf-8") + f"\n{line}\n"
        path.write_text(text, encoding="utf-8")
        expected.append(f"{named} (l.{text.count(chr(10))})")
    done = lint(copy_of_the_packages)
    assert done.returncode == 1
    assert [words for words in expected if words not in done.stdout] == []
    assert "Contracts: 3 kept, 5 broken." in done.stdout
