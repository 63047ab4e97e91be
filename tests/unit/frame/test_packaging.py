"""Dependencies are explained, pinned with hashes, and nothing checked in speaks of one machine or one index."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])


def name_of(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found
    return found[0]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def tracked_files() -> list[Path]:
    """Files git knows or would add; in an unpacked archive without git, everything outside the usual build folders."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    ignored = {
        ".venv",
        ".git",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "build",
        "dist",
    }
    return [path for path in ROOT.rglob("*") if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)]


def test_every_dependency_is_explained_with_its_extra() -> None:
    page = (ROOT / "docs/decisions/0004-libraries.md").read_text(encoding="utf-8")
    rows = (line.split("|") for line in page.splitlines() if line.startswith("| ") and not line.startswith("| package"))
    explained = {cells[1].strip(): cells[2].strip() for cells in rows}
    extras: dict[str, list[str]] = {name_of(item): [] for item in project()["dependencies"]}
    for extra, items in project()["optional-dependencies"].items():
        for item in items:
            extras.setdefault(name_of(item), []).append(extra)
    assert explained == {name: ", ".join(where) or "–" for name, where in extras.items()}


def test_every_dependency_is_pinned_with_hashes() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    stanzas = re.split(r"\n(?=[a-zA-Z0-9])", text.strip())
    for stanza in stanzas:
        assert re.match(r"[a-zA-Z0-9._-]+==[^ ]+ ", stanza), stanza[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", stanza), f"no hash: {stanza[:80]}"
    pinned = {canonical(name_of(stanza)) for stanza in stanzas}
    optional = project()["optional-dependencies"]
    wanted = {canonical(name_of(item)) for items in [project()["dependencies"], *optional.values()] for item in items}
    assert wanted - pinned == set()


def test_constraints_hold_no_address() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|-e|--index|--extra|--find|--trusted)", text, re.MULTILINE)


FORBIDDEN = {
    "an address of a package index": re.compile(
        r"https?://[\w.-]*(?:pypi|pythonhosted|anaconda|aliyun|tsinghua)[\w./-]*"
    ),
    "a folder of somebody's machine": re.compile(r"(?<![\w.}/])/(?:work|home|Users)/[\w.-]+|(?<![\w.}])/root/\."),
    "credentials": re.compile(r"https?://[^\s/\"'<>{}]+:[^\s/\"'<>{}]+@"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_checked_in_speaks_of_one_machine(what: str) -> None:
    found = []
    for path in tracked_files():
        if path == Path(__file__) or path.name == "LICENSE":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in FORBIDDEN[what].finditer(text)]
    assert found == []


def test_no_file_is_larger_than_a_source_file_should_be() -> None:
    assert [str(path) for path in tracked_files() if path.stat().st_size > 1_000_000] == []


def test_license_is_apache() -> None:
    assert project()["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")[:200]
