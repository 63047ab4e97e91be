"""What the pages name exists: files, links, make targets, verbs and flags."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tidemark_operator import cli
from tidemark_runtime import config_parsing

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
TOP = "operator|runtime|kernels|docs|examples|benchmarks|scripts|tests|crds|charts|dashboards|.ci"
FILE = re.compile(rf"(?<![\w/.-])(?:{TOP})/[\w./-]*[\w/]")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
IDS = {"ids": lambda path: str(path.relative_to(ROOT))}


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text_of(ROOT / "Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_every_file_a_page_names_exists(page: Path) -> None:
    missing = [name for name in FILE.findall(text_of(page)) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(text_of(page)) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("life", ["docs/life-of-a-request.md", "docs/life-of-a-resource.md"])
def test_a_life_has_numbered_hops_with_files(life: str) -> None:
    hops = re.findall(r"^(\d+)\. .*?(?=^\d+\. |^## |\Z)", text_of(ROOT / life), re.MULTILINE | re.DOTALL)
    assert [int(number) for number in hops] == list(range(1, len(hops) + 1))
    bodies = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^## |\Z)", text_of(ROOT / life), re.MULTILINE | re.DOTALL)
    assert [body[:60] for body in bodies if not FILE.search(body)] == []


@pytest.mark.parametrize("life", ["docs/life-of-a-request.md", "docs/life-of-a-resource.md"])
def test_every_function_a_life_names_is_in_a_file_it_names(life: str) -> None:
    text = text_of(ROOT / life)
    code = "\n".join(text_of(ROOT / name) for name in FILE.findall(text) if name.endswith(".py"))
    named = set(re.findall(r"`(\w+)\(\)`", text))
    assert [name for name in sorted(named) if not re.search(rf"^ *(?:async )?def {name}\(", code, re.MULTILINE)] == []


def texts_of(tree: ast.AST) -> list[str]:
    """String constants, the fixed parts of f-strings included."""
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_the_troubleshooting_table_quotes_real_messages() -> None:
    """Each quoted text, cut at `...`, occurs in the program."""
    sources = [path for top in ("operator", "runtime", "kernels") for path in (ROOT / top).rglob("*.py")]
    said = "\n".join(text for path in sources for text in texts_of(ast.parse(text_of(path))))
    said += text_of(ROOT / "scripts/setup.sh") + "No such option"  # the last one is Click's
    table = text_of(ROOT / "docs/operations/README.md").partition("## When something goes wrong")[2]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    quoted = [quote for cell in cells for _, quote in re.findall(r"(`+)(.+?)\1(?!`)", cell)]
    assert len(quoted) > 20
    pieces = {piece.strip(" '") for quote in quoted for piece in quote.split("...")}
    assert [piece for piece in sorted(pieces) if piece not in said] == []


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_every_command_a_page_names_exists(page: Path) -> None:
    code = "\n".join(code_of(page))
    targets = set(re.findall(r"(?:^|\s|`)make ([a-z][a-z0-9-]*)", code))
    assert targets - make_targets() == set()
    verbs = set(re.findall(r"(?:^|\s|/)tidemark ([a-z][a-z-]*)", code))
    assert verbs - set(cli.VERBS) == set()


def code_of(page: Path) -> list[str]:
    """The code blocks and code words of a page."""
    text = text_of(page)
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return [*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```\w*\n.*?```", "", text, flags=re.DOTALL))]


def test_both_readmes_name_the_two_commands_and_each_other() -> None:
    for page, other in zip(READMES, reversed(READMES), strict=True):
        head = "\n".join(text_of(page).splitlines()[:45])
        assert "make demo" in head
        assert "make test" in head
        assert other.name in head


def test_both_readmes_show_the_same_code() -> None:
    english, chinese = (re.findall(r"```\w*\n(.*?)```", text_of(page), re.DOTALL) for page in READMES)
    assert len(english) == len(chinese)
    for mine, theirs in zip(english, chinese, strict=True):
        assert re.findall(r"(?:make|tidemark|curl|http\S+)\b[^#\n]*", mine) == re.findall(
            r"(?:make|tidemark|curl|http\S+)\b[^#\n]*", theirs
        )


def test_make_explains_every_target() -> None:
    shown = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines() if line.startswith("  make ")} == make_targets()


def test_each_target_runs_something_that_exists() -> None:
    named = re.findall(r"(?:scripts|benchmarks)/[\w./-]+\.(?:py|sh)", text_of(ROOT / "Makefile"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_serve_flag_is_used_by_some_test() -> None:
    """A flag nobody runs is a promise nobody keeps: by flag, by camelCase key or by field name."""
    tests = "\n".join(text_of(path) for path in (ROOT / "tests").rglob("*.py") if path.parent.name != "frame")
    unused = [
        entry.key
        for entry in config_parsing.entries()
        if not any(
            re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", tests)
            for word in (f"--{entry.setting.flag}", entry.key.split(".")[1], entry.name)
        )
    ]
    assert unused == [], "write a test that sets these"


def test_every_verb_is_in_both_readmes() -> None:
    for page in READMES:
        assert [verb for verb in cli.VERBS if f"tidemark {verb}" not in text_of(page)] == []
